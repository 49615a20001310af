"""Which game and which runtimes a match was played with, as its record says."""

from __future__ import annotations

import functools
import hashlib
import importlib
import platform
from importlib.metadata import version
from pathlib import Path

from palus import __version__, envs
from palus.arena.log import EnvBuild
from palus.errors import EnvError

_RUNTIMES = ("numpy", "numba", "onnxruntime")


@functools.cache
def env_build(env_id: str) -> EnvBuild:
    """The game as installed here. build_hash: of all sources in its folder; equal hashes play equal matches.

    Raises EnvError when there is no such environment.
    """
    module = importlib.import_module(envs.BUILT_IN.get(env_id, env_id).partition(":")[0])
    if module.__file__ is None:
        raise EnvError(f"{env_id}: its module has no file, so its build cannot be named; install it from files")
    folder = Path(module.__file__).parent
    digest = hashlib.sha256()
    for source in sorted(folder.rglob("*.py")):
        digest.update(f"{source.relative_to(folder).as_posix()}\n".encode())
        digest.update(source.read_bytes())
    return EnvBuild(env_id, __version__, digest.hexdigest(), {})


def runtimes() -> dict[str, str]:
    """Versions of what computes a match, by package."""
    return {"python": platform.python_version()} | {name: version(name) for name in _RUNTIMES}


def platform_name() -> str:
    """System and processor, for instance "Linux-6.1 x86_64"."""
    return f"{platform.system()}-{platform.release()} {platform.machine()}"
