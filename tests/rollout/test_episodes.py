"""What is told of episodes: how many decisions they had, what was paid, and which are not told of."""

from __future__ import annotations

import numpy as np

from palus.rollout.episodes import Episodes
from palus.rollout.rollout import Episode, Seat
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec

SPEC = GameSpec.alike("game", (ObservationSpec("obs", (1,)),), ActionSpec((Discrete(2),)))


def add(episodes: Episodes, active: list[bool], ended: bool) -> list[Episode]:
    """A decision of two matches of one agent, who is paid 1 each time."""
    paid, none = np.ones((2, 1), np.float32), np.zeros((2, 1), np.float32)
    ends = np.full((2, 1), ended)
    return episodes.add(slice(None), np.array(active)[:, None], paid, none, ends, [(Seat(0, True),)] * 2, {})


def test_the_length_counts_decisions_and_the_reward_all_that_was_paid() -> None:
    episodes = Episodes(SPEC, 2)
    assert add(episodes, [False, True], False) == []
    assert [(e.length, e.reward) for e in add(episodes, [True, True], True)] == [(1, 2.0), (2, 2.0)]


def test_after_an_episode_that_is_not_told_of_the_next_one_is() -> None:
    episodes = Episodes(SPEC, 2, first=4)
    episodes.forget(np.array([0]), partial=True)
    assert [e.slot for e in add(episodes, [True, True], True)] == [5]
    assert [e.slot for e in add(episodes, [True, True], True)] == [4, 5]
