"""`palus unity-serve`: a palus game behaves as a Unity executable, for whoever trains on those."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from palus import envs
from palus.cli.output import stderr
from palus.errors import EnvError, PalusError, StorageError

EPILOG = """
Write an executable, and train on it with ML-Agents' own trainer:

  palus unity-serve SoccerTwos --num-matches 8 --write-executable SoccerTwos

  mlagents-learn config.yaml --env=./SoccerTwos --run-id=mine

Be the Unity Editor for a trainer that waits (port 5004):

  palus unity-serve SoccerTwos
"""


def unity_serve(
    game: Annotated[str, typer.Argument(metavar="GAME", help="A built-in game, such as `SoccerTwos`.")],
    unity_arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- ARGUMENTS]", help="What a trainer starts executables with: `--mlagents-port`, `-logFile`, ..."
        ),
    ] = None,
    num_matches: Annotated[int, typer.Option(min=1, max=4096, help="Matches side by side, for each area.")] = 1,
    timeout_wait: Annotated[float, typer.Option(min=0.1, max=1e6, help="Seconds to wait for a trainer.")] = 60.0,
    write_executable: Annotated[
        Path | None, typer.Option(help="Write a script that is such an executable to this file, and end.")
    ] = None,
) -> None:
    """Let any trainer of Unity games train on a palus game."""
    if game not in envs.BUILT_IN:
        raise EnvError(f"no built-in game {game!r}; there are {', '.join(envs.BUILT_IN)}")
    if write_executable is not None:
        _write(write_executable, game, num_matches)
        return
    try:
        from palus.unity.serving import parse_launch, serve
    except ImportError as error:
        raise EnvError(f"ML-Agents' protocol is not installed ({error}); pip install 'palus[unity]'") from error
    launch = parse_launch(unity_arguments or [])
    with ExitStack() as stack:
        log = None
        if launch.log_file is not None:
            try:
                log = stack.enter_context(launch.log_file.open("w", buffering=1))
            except OSError as error:
                stderr.print(f"-logFile: {error}; messages are shown here only")

        def tell(text: str) -> None:
            stderr.print(text, markup=False)
            if log is not None:
                log.write(text + "\n")

        if launch.ignored:
            tell(f"arguments without a meaning here: {' '.join(launch.ignored)}")
        source = envs.GameSource(game)
        try:
            serve(source.batch, num_matches, launch.port, timeout_wait, tell)
        except PalusError as error:
            if log is not None:
                log.write(f"error: {error}\n")
            raise


def _write(path: Path, game: str, num_matches: int) -> None:
    words = [sys.executable, "-m", "palus", "unity-serve", game, "--num-matches", str(num_matches), "--"]
    try:
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        path.chmod(0o755)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written ({error.strerror}); choose another place for --write-executable"
        ) from error
    env = shlex.quote(os.path.join(".", path))  # without a slash ML-Agents looks for it in PATH
    stderr.print(f"Wrote {path}. Train on it: mlagents-learn config.yaml --env={env} --run-id=mine", markup=False)
