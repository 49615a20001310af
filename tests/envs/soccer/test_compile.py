"""Compiled kernels are found again only while every source of the folder is unchanged."""

from __future__ import annotations

import numba

from palus.envs.soccer import compile as compiled


def cache_folder(function):
    return compiled.kernel(function)._cache.cache_path


def double(x):
    return 2 * x


def test_an_edit_anywhere_in_the_folder_moves_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "HERE", tmp_path)
    (tmp_path / "match.py").write_text("entry")
    (tmp_path / "physics.py").write_text("old")
    before = cache_folder(double)
    assert cache_folder(double) == before
    (tmp_path / "physics.py").write_text("new")
    assert cache_folder(double) != before


def test_the_users_own_cache_setting_is_left_alone():
    setting = numba.config.CACHE_DIR
    assert compiled.kernel(double)(4) == 8
    assert setting == numba.config.CACHE_DIR
