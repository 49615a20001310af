"""How one arena is run: every number that decides who is matched, for how long and how often. Plain values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from palus.arena.referee.games import DEFAULT_GAME, GAMES
from palus.arena.referee.result import Mode
from palus.errors import ArenaError
from palus.store.engine import SETTINGS_FILE

ArenaMode = Literal["continuous", "rounds"]


@dataclass(frozen=True)
class ArenaSettings:
    """Defaults suit a laptop with a class of thirty.

    envs: games that are ranked.   duel_minutes: that a match lasts where a game has such an option.
    mode: "continuous" hands out pairs by information gain and never pauses; "rounds" copies the reference competition.
    sampling: how policies act in rated games.   season: meetings are counted and matches are marked by it.

    quiet_s: a repository's head must have rested this long, because a push may arrive as several commits.
    repos_per_owner: at most so many of an owner's repositories are ranked, the newest; 0 is no limit.
    entry_pairs: mirrored pairs of a newcomer against spread-out anchors.

    meetings: of a pairing per season, before every open pairing had one.   uniform_share: of pairs drawn without regard
    to gain, so that the win matrix stays connected.   target_half_width: points; a player this sure is not played for
    its own sake.

    round_interval_s, round_neighbours: schedule and the unpublished `n` of the reference.

    lease_s: a job whose worker has not been heard of for so long goes to another.   max_attempts: after so many it is
    called poisonous.   refresh_share: of the time of a core that refitting the ratings may take.
    audit_share: of the pairs, that somebody else plays again.   audit_interval_s: how often workers are compared.
    """

    envs: tuple[str, ...] = (DEFAULT_GAME,)
    duel_minutes: float = 2.0
    mode: ArenaMode = "continuous"
    sampling: Mode = "stochastic"
    season: int = 1

    quiet_s: float = 5.0
    repos_per_owner: int = 10
    entry_pairs: int = 10

    meetings: int = 20
    uniform_share: float = 0.1
    target_half_width: float = 25.0

    round_interval_s: float = 4 * 3600.0
    round_neighbours: int = 10

    lease_s: float = 60.0
    max_attempts: int = 4
    refresh_share: float = 0.2
    audit_share: float = 0.01
    audit_interval_s: float = 24 * 3600.0

    def params_of(self, env: str) -> dict[str, Any] | None:
        """What a game is set to here, {} for its defaults; None for a game that this arena does not play."""
        if env not in self.envs:
            return None
        options = GAMES[env].options
        return {**options, **({"timelimit": self.duel_minutes} if "timelimit" in options else {})}

    def to_json(self) -> str:
        """For `from_json`."""
        return json.dumps(asdict(self), sort_keys=True, indent=1)

    @staticmethod
    def from_json(text: str) -> ArenaSettings:
        """Raises ArenaError when it is not what `to_json` of this palus wrote."""
        try:
            values = json.loads(text)
            return ArenaSettings(**values | {"envs": tuple(values["envs"])})
        except (ValueError, KeyError, TypeError) as error:
            raise ArenaError(
                f"{SETTINGS_FILE}: not the settings of an arena ({error}); start `palus arena` once to write it anew"
            ) from error


def settings_of(folder: Path) -> ArenaSettings:
    """The settings that the arena on a data folder runs with, or ran with last; the defaults where none ever did."""
    path = folder / SETTINGS_FILE
    return ArenaSettings.from_json(path.read_text("utf-8")) if path.exists() else ArenaSettings()
