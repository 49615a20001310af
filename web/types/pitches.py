"""Prints how matches of every game that the pages draw are written down, as the games declare it; `make web` puts it
where the viewer reads it. So a replay only has to name its pitch.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from palus.arena.referee.games import GAMES


def pitches() -> dict[str, dict[str, Any]]:
    """Name of a pitch -> its `MatchLayout` as plain JSON."""
    layouts = [game.layout for game in GAMES.values() if game.layout is not None]
    found = {layout.pitch: asdict(layout) for layout in layouts if layout.scenery is not None}
    plain: dict[str, dict[str, Any]] = json.loads(json.dumps(found))
    return plain


if __name__ == "__main__":
    print(json.dumps(pitches()))
