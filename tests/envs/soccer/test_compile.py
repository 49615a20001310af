"""Compiled kernels are found again only while every source of the folder is unchanged."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba

from palus.envs.soccer import compile as compiled


def cache_folder(function, monkeypatch):
    """Of a process that starts now."""
    monkeypatch.setattr(compiled, "SOURCES", compiled._sources_digest())
    return compiled.kernel(function)._cache.cache_path


def double(x):
    return 2 * x


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


def test_threads_that_make_two_games_keep_their_kernels_apart(monkeypatch):
    def slow(**options):
        time.sleep(0.02)  # time for the other thread to name its own folder
        return njit(**options)

    njit = numba.njit
    monkeypatch.setattr(numba, "njit", slow)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda folder: compiled.kernel(double, folder=folder), ("first", "second")))
    folders = [Path(kernel._cache.cache_path).parent.name for kernel in made]
    assert folders == ["first", "second"]
