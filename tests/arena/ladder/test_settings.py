"""The settings of an arena stay with its data."""

from __future__ import annotations

from pathlib import Path

import pytest

from palus.arena.ladder.service import ArenaService, Sources
from palus.arena.ladder.settings import ArenaSettings, settings_of
from palus.errors import ArenaError
from palus.store import open_store
from palus.store.engine import SETTINGS_FILE


def test_a_service_leaves_its_settings_for_whoever_recomputes(tmp_path: Path) -> None:
    assert settings_of(tmp_path) == ArenaSettings()
    settings = ArenaSettings(mode="rounds", repos_per_owner=3, envs=("SoccerTwos", "Other"))
    store = open_store(tmp_path)
    with ArenaService(store, settings, Sources(), workers=0):
        pass
    store.close()
    assert settings_of(tmp_path) == settings


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text('{"envs": ["SoccerTwos"], "speed": 1}')
    with pytest.raises(ArenaError, match=r"arena\.json: not the settings of an arena .*speed"):
        settings_of(tmp_path)
