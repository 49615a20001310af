"""Lets the tests of this folder import `helpers`, and play a game that only they have."""

import sys
from pathlib import Path

import pytest

from ready_tables import ready_tables, store, tables  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def squads(monkeypatch: pytest.MonkeyPatch):
    """The spec of a game of two behaviors for each side, which comes with palus for now."""
    from helpers import add_game
    from team_models import ENV, GAME, Squads

    from palus import envs

    add_game(monkeypatch, GAME, Squads)
    return envs.make(ENV, 1).spec
