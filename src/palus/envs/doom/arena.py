"""Doom's duel in the arena: most frags when the time is up win. Its map comes with ViZDoom, so everybody can play."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palus.envs.arena_game import ArenaGame
from palus.envs.doom.scenarios import TICS_PER_SECOND


class DoomDuel(ArenaGame):
    """Engines exchange packets, so a match does not repeat bit by bit: it is filmed."""

    def length_s(self, params: Mapping[str, Any]) -> float:
        """The time limit, in minutes."""
        return 60.0 * float({**self.options, **params}["timelimit"])

    def kill(self, env: Any) -> None:
        """Of every game its own."""
        for game in env.games:
            game.kill()


GAME = DoomDuel(
    env="doom_duel",
    tags=("reinforcement-learning", "palus", "doom_duel"),
    options={"wad": "multi_duel.wad", "timelimit": 2.0},
    preset="doom-duel",
    tick_s=1 / TICS_PER_SECOND,
    pictures=True,
    max_p99_ms=40.0,
    cpu_s=120,
    score_word="Frags",
    score_note="opponents shot, less own accidents",
    score_stat="frags",
    max_ticks=TICS_PER_SECOND * 60 * 15,
    max_score=1000,
    side_by_side=1,
    filmed=True,
    packages=("vizdoom", "av"),
    install="palus[doom,video]",
)
