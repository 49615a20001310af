"""Ranks play the matches that one process would: the same seeds, the same opponents, the same draws."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch
from counting_policy import CountingPolicy, counting_collector

from palus.envs.toy import DuelToy, RescueToy
from palus.errors import ConfigError
from palus.rollout.collector import InProcessCollector
from palus.rollout.plan import Share
from palus.rollout.rollout import FROZEN, Seat

ARRAYS = ("actions", "log_probs", "rewards", "group_rewards", "terminated", "truncated", "active")


class Even:
    """A policy that chooses evenly."""

    version, state_size, squash = 0, 0, False

    def __init__(self, behavior):
        self._parameters = behavior.actions.parameters

    def act(self, observations, states, masks=None):
        return torch.zeros(len(states), self._parameters), None, states


def in_process(make, share, per_match, learns):
    """Two rollouts of a rank of a run of 8 matches, and one after a restart; a match's second agent is another snapshot
    in each."""
    env = make(share.of(8, "matches"))
    first = share.first(env.num_matches)
    behavior = env.spec.behaviors[0]

    def cast(slot):
        assert first <= slot < first + env.num_matches
        agents = range(env.spec.num_agents)
        return [Seat(0, True) if agent in learns else Seat(FROZEN + slot % 3, False) for agent in agents]

    learners = {0: (behavior.name, Even(behavior))}
    rows = InProcessCollector(env, learners, cast, 20, 3, {0: per_match}, lambda _: Even(behavior), share=share)
    with closing(rows):
        found = [copied(rows.collect()) for _ in range(2)]
        rows.restart()
        return [*found, copied(rows.collect())]


def copied(collected):
    """Arrays [T, B] of the rollout, and who ended where and when."""
    rollout = collected.rollouts[0]
    seen = {name: array[:-1].copy() for name, array in rollout.observations.items()}
    ends = [(e.decision, e.slot, e.agent, e.policy, e.length, e.reward) for e in collected.episodes]
    ends += [(m.decision, m.slot, -1, m.seats, m.points) for m in collected.matches]
    return {name: getattr(rollout, name).copy() for name in ARRAYS} | seen, ends


def compare(one, parts):
    """Rollouts of one process, and those of its ranks side by side."""
    for (whole, ends), *others in zip(one, *parts, strict=True):
        for name, array in whole.items():
            np.testing.assert_array_equal(array, np.concatenate([part[name] for part, _ in others], 1), name)
        assert sorted(ends, key=str) == sorted((end for _, told in others for end in told), key=str)


@pytest.mark.parametrize(("make", "per_match", "learns"), [(DuelToy, 1, (0,)), (RescueToy, 2, (0, 1))])
def test_ranks_play_the_matches_of_one_process(make, per_match, learns):
    one = in_process(make, Share(), per_match, learns)
    assert np.mean(one[0][0]["actions"] != one[1][0]["actions"]) > 0
    compare(one, [in_process(make, Share(rank, 4), per_match, learns) for rank in range(4)])


@pytest.mark.parametrize("sampling", [{"workers": 0, "decorrelate": True}, {"workers": 1, "splits": 2}])
def test_ranks_play_the_matches_of_one_process_in_workers(sampling):
    def told(share):
        matches = share.of(8, "matches")
        first = share.first(matches)

        def cast(slot):
            assert first <= slot < first + matches
            return [Seat(0, True), Seat(FROZEN + slot % 3, False)]

        options = {
            "agents": 2,
            "length": 7,
            "truncate": True,
            "cast": cast,
            "load": lambda _: CountingPolicy(even=True),
        }
        policies = {0: CountingPolicy(even=True)}
        with counting_collector(2 * matches, policies=policies, sampling=sampling, share=share, **options) as rows:
            found = [copied(rows.collect()) for _ in range(3)]
            rows.load(rows.save())
            return [*found, copied(rows.collect())]

    one = told(Share())
    compare(one, [told(Share(rank, 2)) for rank in range(2)])


def test_matches_that_do_not_divide_are_refused_with_what_to_set():
    with pytest.raises(ConfigError, match=r"palus.num_matches: 10 matches, on 4 ranks; make them a multiple of 4"):
        Share(1, 4).of(10, "palus.num_matches")
