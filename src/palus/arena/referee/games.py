"""The games that an arena can rank, as they declare themselves. Everything else is the same for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palus import envs
from palus.envs import GameSource
from palus.envs.arena_game import ArenaGame
from palus.envs.recording import MatchLayout
from palus.errors import ArenaError, ReplayError

GAMES = envs.arena_games()
DEFAULT_GAME = next(iter(GAMES))
"""Meant where none is named."""


def game_of(env: str) -> ArenaGame:
    """How a game is shown and counted: a log may hold matches of games that this palus does not know."""
    return GAMES.get(env) or ArenaGame(env, ("reinforcement-learning", "ml-agents", f"ML-Agents-{env}"))


def playable_game(env: str) -> ArenaGame:
    """The game to play, or to play again, for a name that may come from anywhere: sockets, jobs, logs, run files.

    Raises ArenaError when no arena plays it.
    """
    if env not in GAMES:
        raise ArenaError(f"{env!r:.80} is no game of an arena; there are {', '.join(GAMES)}")
    return GAMES[env]


def layout_of(env: str) -> MatchLayout:
    """How matches of a game are written down. Raises ReplayError for games whose matches are not."""
    layout = playable_game(env).layout
    if layout is None:
        raise ReplayError(f"matches of {env} do not repeat; what there is of them is a video")
    return layout


def source_of(env: str, params: Mapping[str, Any] | None = None) -> GameSource:
    """The game by an arena's rules. params: in their place. Raises EnvError when there is no such game of palus."""
    return GameSource(env, {**game_of(env).options, **(params or {})})
