"""Doom whose engine ends as soon as it is started; a module, since workers import it."""

from __future__ import annotations

from typing import Any

from palus.envs import make_game
from palus.envs.doom.player import EngineSeat
from palus.envs.game import Game

_build = EngineSeat.build


def _build_broken(seat: EngineSeat, seed: int) -> Any:
    game = _build(seat, seed)
    game.set_vizdoom_path("/bin/false")
    return game


def make() -> Game:
    EngineSeat.build = _build_broken  # type: ignore[method-assign]
    return make_game("doom_basic")
