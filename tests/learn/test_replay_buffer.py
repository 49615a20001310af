"""The replay buffer: which rows it holds, what follows them, and which saved buffers it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from readable import SPEC, numbers, two_matches

from palus.errors import ConfigError
from palus.learn import replay_buffer
from palus.learn.replay_buffer import ReplayBuffer
from palus.learn.returns import usable_decisions


def filled(capacity: int, times: int = 1) -> ReplayBuffer:
    """After rollouts of eleven usable decisions, rewards 0 to 11 in the first, 12 to 23 in the second, ..."""
    buffer, data = ReplayBuffer(SPEC, capacity), two_matches()
    for k in range(times):
        rewards = np.arange(12, dtype=np.float32).reshape(3, 4) + 12 * k
        buffer.add(data, usable_decisions(data), rewards)
    return buffer


def test_what_follows_a_decision_is_the_next_observation_or_the_episodes_last() -> None:
    buffer = filled(20)
    assert buffer.size == 11
    assert buffer.rewards[:11].tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]  # row 1 is absent at decision 1
    assert (buffer.observations["obs_0"][:11] == numbers([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3])).all()
    assert buffer.terminated[:11].tolist() == [False, True, False, False, True, *[False] * 6]
    goes_on = ~buffer.terminated[:11]
    # rows 2 and 3 are cut off at decision 1 before an 8 and a 2, row 3 at decision 2 before a 7
    assert (buffer.following["obs_0"][:11][goes_on] == numbers([5, 6, 7, 8, 2, 4, 6, 5, 7])).all()
    assert buffer.actions[:11, 0].tolist() == [0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0]


def test_the_newest_rows_stay() -> None:
    assert sorted(filled(20, 2).rewards) == [2, 3, 4, 6, 7, 8, 9, 10, 11, *(12 + k for k in range(12) if k != 5)]
    assert sorted(filled(4).rewards) == [8, 9, 10, 11]
    drawn = filled(20).draw(2000, torch.Generator().manual_seed(0))
    assert sorted(set(drawn.ravel().tolist())) == list(range(11))


def test_a_saved_buffer_goes_on_as_it_would_have() -> None:
    whole, again = filled(20, 3), ReplayBuffer(SPEC, 20)
    again.load_state_dict(filled(20, 2).state_dict())
    data = two_matches()
    again.add(data, usable_decisions(data), np.arange(24, 36, dtype=np.float32).reshape(3, 4))
    for name, array in whole._arrays().items():
        assert (again._arrays()[name] == array).all(), name


def test_sequences_keep_gaps_and_count_what_is_known_once_they_are_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three decisions of four agents in sequences of two: the second ones are filled up."""
    monkeypatch.setattr(replay_buffer, "WARM_UP", 0.5)
    buffer, data = ReplayBuffer(SPEC, 17, 2, state_size=3), two_matches()
    states = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3)
    buffer.add(data, usable_decisions(data), np.arange(12, dtype=np.float32).reshape(3, 4), states)
    # agent 1 is absent at decision 1, and decision 0 only warms up: its first sequence is not kept
    kept = [0, 2, 3, 4, 5, 6, 7]
    assert (buffer.capacity, buffer.size) == (16, 14)
    assert buffer.rewards.tolist() == [0, 4, 2, 6, 3, 7, 8, 8, 9, 9, 10, 10, 11, 11, 0, 0]
    assert (buffer.memory[:7] == states.reshape(8, 3)[kept]).all()
    # agent 1 leaves at decision 0, agent 0 at 1, agents 2 and 3 are cut off there: decision 2 begins anew for all
    assert buffer.keep[:14].reshape(7, 2).tolist() == [*[[1, 1]] * 3, *[[0, 0]] * 4]
    # of what begins amid an episode the first half only warms up
    assert buffer.counts[:14].reshape(7, 2).tolist() == [*[[False, True]] * 3, *[[True, False]] * 4]
    drawn = buffer.draw(6, torch.Generator().manual_seed(0))
    assert drawn.shape == (2, 3) and (drawn[1] == drawn[0] + 1).all() and (drawn[0] % 2 == 0).all()
    again = ReplayBuffer(SPEC, 17, 2, state_size=3)
    again.load_state_dict(buffer.state_dict())
    for name, array in buffer._arrays().items():
        assert (again._arrays()[name] == array).all(), name


@pytest.mark.parametrize(("before", "first"), [(1.0, False), (0.0, True)])
def test_of_a_rollout_shorter_than_a_sequence_its_own_share_warms_up_and_nothing_where_an_episode_begins(
    before: float, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three decisions in sequences of six. before: the actor's memory, empty where an episode begins."""
    monkeypatch.setattr(replay_buffer, "WARM_UP", 0.5)
    buffer, data = ReplayBuffer(SPEC, 24, 6, state_size=3), two_matches()
    usable = usable_decisions(data)
    usable[2] = False  # an episode begins there
    buffer.add(data, usable, np.zeros((3, 4), np.float32), np.full((1, 4, 3), before, np.float32))
    counts = buffer.counts[: buffer.size].reshape(-1, 6)
    assert counts[:, 3:].sum() == 0
    # agent 1 decides at decision 0 only
    assert counts[:, :2].tolist() == [[first, True], *([[True, False]] if first else []), *[[first, True]] * 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s | {"capacity": 21}, "saved with buffer_size 21, now 20"),
        (lambda s: s | {"size": 21}, "21 rows of 20"),
        (lambda s: s | {"size": 10}, "10 rows of 20, the next at 11"),
        (lambda s: s | {"next": 3}, "11 rows of 20, the next at 3"),
        (lambda s: s | {"rows": s["rows"] | {"rewards": s["rows"]["rewards"][1:]}}, r"rewards: \(10,\) float32"),
        (lambda s: s | {"rows": s["rows"] | {"actions": s["rows"]["actions"] * np.nan}}, "actions: holds numbers that"),
        (lambda s: s | {"rows": s["rows"] | {"terminated": s["rows"]["rewards"]}}, "expected .* bool"),
        (lambda s: s | {"rows": {}}, "rewards|observations"),
    ],
)
def test_a_saved_buffer_that_does_not_fit_is_refused_and_changes_nothing(change: Any, message: str) -> None:
    buffer, before = filled(20, 1), filled(20, 1)
    with pytest.raises((ValueError, KeyError), match=message):
        buffer.load_state_dict(change(filled(20).state_dict()))
    assert all((array == before._arrays()[name]).all() for name, array in buffer._arrays().items())


def test_a_buffer_that_memory_has_no_room_for_is_told_with_its_size() -> None:
    with pytest.raises(ConfigError, match=r"buffer_size 1125899906842624: so many rows of 64 bytes are 67108864.0 GiB"):
        ReplayBuffer(SPEC, 2**50)
