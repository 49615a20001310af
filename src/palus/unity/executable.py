"""A Unity executable as a child process: found, started with ML-Agents' arguments, watched, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from palus.errors import EnvError, LostGameError

SUFFIXES = (".app", ".exe", ".x86_64", ".x86")


def find_executable(given: str) -> Path:
    """The file that starts the game. given: its path, with or without a suffix. Raises EnvError where there is none."""
    bare = given.strip()
    for suffix in SUFFIXES:
        bare = bare.removesuffix(suffix)
    path = Path(bare).absolute()
    if sys.platform == "darwin":
        inside = Path(f"{path}.app") / "Contents" / "MacOS"
        tried = [inside / path.name, *(sorted(inside.iterdir()) if inside.is_dir() else []), path]
    elif sys.platform == "win32":
        others = sorted(path.parent.glob("*.exe")) if path.parent.is_dir() else []
        tried = [Path(f"{path}.exe"), *(p for p in others if not p.name.startswith("UnityCrashHandler"))]
    else:
        tried = [Path(f"{path}{suffix}") for suffix in (".x86_64", ".x86", "")]
    for candidate in tried:
        if candidate.is_file():
            return candidate
    raise EnvError(f"env_path {given}: no executable there; looked for {', '.join(map(str, tried))}")


class Executable:
    """A running game. Its process group is its own: Ctrl-C is the trainer's, which ends the game itself."""

    def __init__(
        self, path: Path, port: int, log_file: Path | None, *, no_graphics: bool, arguments: Sequence[str], show: bool
    ) -> None:
        """show: its output goes to the terminal. Raises EnvError when it cannot be started."""
        words = [str(path)]
        words += ["-nographics", "-batchmode"] if no_graphics else []
        words += ["--mlagents-port", str(port)]
        if log_file is not None and not any(argument.lower() == "-logfile" for argument in arguments):
            words += ["-logFile", str(log_file.absolute())]
        output = None if show else subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                [*words, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except PermissionError as error:
            raise EnvError(f"env_path {path} may not be run ({error}); chmod -R 755 {path}") from error
        except OSError as error:
            raise EnvError(f"env_path {path} cannot be run: {error}") from error
        self._log_file, self._unseen = log_file, not show

    def check(self, timeout_s: float = 0.0) -> None:
        """Raises LostGameError when it has ended, or does within so long."""
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout_s)
            name = f" ({signal.Signals(-code).name})" if code < 0 else ""
            unseen = "; debug: true shows what it says" if self._unseen else ""
            log = f"; its log is {self._log_file}" if self._log_file is not None and self._log_file.exists() else unseen
            raise LostGameError(f"Environment shut down with return code {code}{name}{log}")

    def wait(self, timeout_s: float) -> bool:
        """Let it end by itself; kill it, and everything it started, when it has not within so long. Whether it did."""
        try:
            self._process.wait(timeout_s)
            return True
        except subprocess.TimeoutExpired:
            return False
        finally:
            if self._process.poll() is None:
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()
                self._process.wait()
