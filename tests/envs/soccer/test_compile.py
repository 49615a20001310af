"""Compiled kernels are found again while every source of the folder is unchanged, and games call their own."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numba

from palus.envs.soccer import compile as compiled
from palus.kernels import KeptKernels


def cache_folder(function, monkeypatch):
    """Of a process that starts now."""
    monkeypatch.setattr(compiled, "KERNELS", KeptKernels.of(sorted(compiled.HERE.glob("*.py"))))
    return compiled.kernel(function)._cache.cache_path


def double(x):
    return 2 * x


class Size(NamedTuple):
    steps: int


SIZE = Size(0)


@numba.njit
def term(i):
    return i * SIZE.steps


@numba.njit
def one(i):
    return term(i)


@numba.njit
def two(i):
    return term(i) + term(i)


TWO_GAMES = """
import sys
from pathlib import Path
from typing import NamedTuple
import numba
from palus.envs.soccer import compile as compiled

class Size(NamedTuple):
    steps: int

SIZE = Size(0)

@numba.njit(_dbg_optnone=True)  # called by its name, not copied into its caller
def term(i):
    return i % SIZE.steps

@numba.njit
def total(start):
    for i in range(SIZE.steps):
        start += term(i)
    return start

def play(*games):
    compiled.HERE = Path(__file__).parent
    print(*[compiled.compiled([total], f"of_{size}", SIZE=Size(size))[0](0) for size in games])
"""


def test_an_edit_anywhere_in_the_folder_moves_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "HERE", tmp_path)
    (tmp_path / "match.py").write_text("entry")
    (tmp_path / "physics.py").write_text("old")
    before = cache_folder(double, monkeypatch)
    assert cache_folder(double, monkeypatch) == before
    (tmp_path / "physics.py").write_text("new")
    assert cache_folder(double, monkeypatch) != before


def test_the_users_own_cache_setting_is_left_alone():
    setting = numba.config.CACHE_DIR
    assert compiled.kernel(double)(4) == 8
    assert setting == numba.config.CACHE_DIR


def test_threads_that_make_kernels_leave_the_users_setting_alone(monkeypatch):
    def slow(**options):
        time.sleep(0.02)  # time for the other thread to look at the setting
        return njit(**options)

    njit, setting = numba.njit, numba.config.CACHE_DIR
    monkeypatch.setattr(numba, "njit", slow)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: compiled.kernel(double), range(2)))
    assert setting == numba.config.CACHE_DIR
    assert len({kernel._cache.cache_path for kernel in made}) == 1


def test_kernels_that_two_processes_left_in_the_cache_call_their_own_functions(tmp_path):
    """Each process counts functions from one, so that those of two games get the same numbers."""
    (tmp_path / "two_games.py").write_text(TWO_GAMES)

    def process(*games):
        command = [sys.executable, "-c", f"import two_games; two_games.play{games}"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    assert process(3) + process(5) == ["3", "10"]
    assert process(3, 5) == ["3", "10"]


def test_kernels_of_one_game_share_what_they_call():
    kernels = compiled.compiled([one, two], "of_3", SIZE=Size(3))
    assert [kernel(2) for kernel in kernels] == [6, 12]
    shared = {id(kernel.py_func.__globals__["term"]) for kernel in kernels}
    assert len(shared) == 1 and id(term) not in shared
