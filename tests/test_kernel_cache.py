"""Kernels compile where Numba could keep them nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import palus
from palus.envs.soccer.compile import KERNELS, kernel
from palus.kernels import config

PROGRAM = """
import os
access = os.access
os.access = lambda path, mode: mode != os.W_OK and access(path, mode)
import palus
print(os.environ.get("NUMBA_CACHE_DIR"))
"""


def kept(tmp_path: Path, **environment: str) -> Path | None:
    """Where Numba is told to keep kernels, on a machine where neither the code's folder nor a home can be written."""
    clean = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment = {**clean, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(palus.__file__).parents[1]), **environment}
    run = [sys.executable, "-c", PROGRAM]
    said = subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    return None if said == "None" else Path(said)


def test_kernels_get_a_folder_that_ends_with_the_process(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    assert folder is not None
    assert (folder.parent, folder.name[:14], folder.exists()) == (tmp_path, "palus-kernels-", False)


def test_a_folder_that_was_named_stays(tmp_path: Path) -> None:
    assert kept(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "mine")) == tmp_path / "mine"


def test_the_kernels_of_the_pitch_are_kept_in_the_folder_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    made = kernel(lambda: 1)
    assert Path(made.stats.cache_path).parent == tmp_path / f"kernels-{KERNELS.digest}"


def test_an_edit_of_what_a_kernel_calls_in_another_file_is_heard(tmp_path: Path) -> None:
    (tmp_path / "entry.py").write_text(
        "from palus.kernels import KeptKernels\nfrom called import number\n"
        "@KeptKernels.beside(__file__, 'called')\ndef entry():\n    return number()\n"
    )
    program = "from entry import entry; print(entry(), sum(entry.stats.cache_hits.values()))"
    paths = f"{tmp_path}:{Path(palus.__file__).parents[1]}"
    environment = os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def told(number: int) -> str:
        (tmp_path / "called.py").write_text(f"import numba\n@numba.njit\ndef number():\n    return {number}\n")
        run = [sys.executable, "-B", "-c", program]
        return subprocess.run(run, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    assert [told(1), told(1), told(2)] == ["1 0\n", "1 1\n", "2 0\n"]
