"""How often a game may be lost, by a clock of our own."""

from __future__ import annotations

import pytest

from palus.config.run_file import EnvSettings
from palus.errors import LostGameError, WorkerError
from palus.rollout.restarts import Restarts

PERIOD = {"restarts_rate_limit_n": 1, "restarts_rate_limit_period_s": 60}


@pytest.mark.parametrize(
    ("limits", "instants", "refused"),
    [
        (PERIOD, [0, 61, 130, 200], ""),
        (PERIOD, [0, 61, 100], "restarts_rate_limit_n is 1"),
        ({"restarts_rate_limit_n": -1, "max_lifetime_restarts": 2}, [0, 100, 200], "max_lifetime_restarts is 2"),
        ({"max_lifetime_restarts": 0}, [0], "max_lifetime_restarts is 0"),
        ({"restarts_rate_limit_n": 0}, [0], "restarts_rate_limit_n is 0"),
        ({"restarts_rate_limit_n": -1, "max_lifetime_restarts": -1}, [*range(30)], ""),
    ],
)
def test_a_game_is_replaced_as_often_as_the_limits_say(limits, instants, refused, monkeypatch) -> None:
    clock = iter(instants)
    monkeypatch.setattr("palus.rollout.restarts.time.monotonic", lambda: next(clock))
    restarts = Restarts(EnvSettings(env_path="x", **limits))
    for _ in instants[1:] if refused else instants:
        restarts.take(0, LostGameError("gone"))
    if refused:
        with pytest.raises(WorkerError, match=f"game 0: gone.*{refused}"):
            restarts.take(0, LostGameError("gone"))
    assert restarts.count == len(instants)
