"""The games that an arena can rank, as they declare themselves; everything else is the same for all. And which build of
a game, and which runtimes, a match was played with, as its record says."""

from __future__ import annotations

import difflib
import functools
import hashlib
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from palus import __version__, envs
from palus.arena.models.forms import Label, Sha256
from palus.envs import GameSource
from palus.envs.arena_game import ArenaGame
from palus.envs.recording import MatchLayout
from palus.errors import ArenaError, EnvError, ReplayError

GAMES = envs.arena_games()
DEFAULT_GAME = next(iter(GAMES))
"""Meant where none is named."""
_RUNTIMES = ("numpy", "numba", "onnxruntime")
"""Of every game; `ArenaGame.packages` names the others."""


def game_of(env: str) -> ArenaGame:
    """How a game is shown and counted: a log may hold matches of games that this palus does not know."""
    return GAMES.get(env) or ArenaGame(env, ("reinforcement-learning", "ml-agents", f"ML-Agents-{env}"))


def playable_game(env: str) -> ArenaGame:
    """The game to play, or to play again, for a name that may come from anywhere: sockets, jobs, logs, run files.

    Raises ArenaError when no arena plays it.
    """
    if env not in GAMES:
        near = difflib.get_close_matches(env, GAMES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(GAMES)}"
        raise ArenaError(f"{env!r:.80} is no game of an arena; {hint}")
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


@dataclass(frozen=True)
class EnvBuild:
    """The game that was played. build_hash: of its sources, so that a verification knows whether it has the same."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: Annotated[str, Field(max_length=64)]
    version: Label
    build_hash: Sha256
    params: Annotated[dict[str, Any], Field(max_length=20)]


@functools.cache
def env_build(env_id: str) -> EnvBuild:
    """The game as installed here. build_hash: of all sources in its folder; equal hashes play equal matches.

    Raises EnvError when there is no such environment.
    """
    game = envs.BUILT_IN.get(env_id)
    if game is None:
        raise EnvError(f"{env_id!r:.80} is no game of palus, so it has no build; it does not come from this palus")
    found = find_spec(game.factory.partition(":")[0])
    if found is None or found.origin is None:
        raise EnvError(f"{env_id}: its module has no file, so its build cannot be named; install it from files")
    folder = Path(found.origin).parent
    digest = hashlib.sha256()
    for source in sorted(folder.rglob("*.py")):
        digest.update(f"{source.relative_to(folder).as_posix()}\n".encode())
        digest.update(source.read_bytes())
    return EnvBuild(env_id, __version__, digest.hexdigest(), {})


def runtimes() -> dict[str, str]:
    """Versions of what computes a match, by package."""
    found = {"python": platform.python_version()}
    for name in (*_RUNTIMES, *(package for game in GAMES.values() for package in game.packages)):
        with suppress(PackageNotFoundError):  # what a game takes beside palus is an extra
            found[name] = version(name)
    return found


def platform_name() -> str:
    """System and processor, for instance "Linux-6.1 x86_64"."""
    return f"{platform.system()}-{platform.release()} {platform.machine()}"
