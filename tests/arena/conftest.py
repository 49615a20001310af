"""Lets the tests of this folder import `helpers`, and play a game that only they have."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def squads(monkeypatch: pytest.MonkeyPatch):
    """The spec of a game of two behaviors for each side, which comes with palus for now."""
    import team_models

    from palus import envs
    from palus.trust import Trust

    monkeypatch.setitem(envs.BUILT_IN, team_models.ENV, "team_models:Squads")
    monkeypatch.setattr(envs, "_OURS", Trust(frozenset({"palus", "team_models"})))
    return envs.make(team_models.ENV, 1).spec
