"""Which game and which runtimes a match was played with, as its record says."""

from __future__ import annotations

import functools
import hashlib
import platform
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from palus import __version__, envs
from palus.arena.models.forms import Label, Sha256
from palus.errors import EnvError

_RUNTIMES = ("numpy", "numba", "onnxruntime", "vizdoom")


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
    for name in _RUNTIMES:
        with suppress(PackageNotFoundError):  # Doom's engine is an extra
            found[name] = version(name)
    return found


def platform_name() -> str:
    """System and processor, for instance "Linux-6.1 x86_64"."""
    return f"{platform.system()}-{platform.release()} {platform.machine()}"
