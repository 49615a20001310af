"""Batched games in worker processes: groups, two behaviors with a learner each, masks, parameters."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import numpy as np
import pytest
import torch
from counting_policy import lost, missing
from processes import eventually

from palus import envs
from palus.config.appo import Sampling
from palus.envs.protocol import room_for
from palus.rollout.rollout import FROZEN, Seat
from palus.rollout.workers import WorkerCollector

MODES = [
    pytest.param({"workers": 0}, id="alone"),
    pytest.param({"workers": 2}, id="workers"),
    pytest.param({"workers": 2, "asynchronous": True}, id="workers, beside the learner"),
]


class Even:
    """Any action, with equal chances; without values, as policies whose critic is apart."""

    version, state_size, squash = 0, 0, False

    def __init__(self, logits):
        self._logits = logits

    def act(self, observations, states, masks=None):
        return torch.zeros(len(states), self._logits), None, states


class Knowing(Even):
    """Reads the answer off its observation or its mask: a function of both that gives a choice for each branch."""

    version = 3

    def __init__(self, branches, answer):
        super().__init__(sum(branches))
        self._branches, self._answer = branches, answer

    def act(self, observations, states, masks=None):
        answers = self._answer({name: array.numpy() for name, array in observations.items()}, masks)
        hot = [np.eye(n, dtype=np.float32)[a] * 80 for n, a in zip(self._branches, answers, strict=True)]
        return torch.from_numpy(np.concatenate(hot, 1)), torch.zeros(len(states)), states


def collector(name, learners, seats, rows, horizon=8, load=missing, **sampling):
    source = envs.GameSource(name)
    settings = Sampling(**{"decorrelate": False, "timeout": 60.0, **sampling})
    made = WorkerCollector(
        source.single, source.spec, settings, rows=rows, horizon=horizon, seed=5,
        learners=learners, cast=lambda slot: seats, load=load, beside=settings.asynchronous is True,
    )  # fmt: skip
    return closing(made)


def test_soccer_in_two_workers_is_the_game_of_its_seeds_with_groups_side_by_side() -> None:
    past, learning = Seat(FROZEN, False), Seat(0, True)
    spec = envs.GameSource("SoccerTwos").spec
    logits = spec.behaviors[0].actions.parameters
    seats = [learning if agent.team == 0 else past for agent in spec.agents]
    order = sorted(range(4), key=lambda agent: (spec.agents[agent].group, agent))
    with collector(
        "SoccerTwos", {0: (spec.behaviors[0].name, Even(logits))}, seats, rows=16, horizon=300,
        load=lambda policy: Even(logits), workers=2,
    ) as s:  # fmt: skip
        s.set_parameters({"ball_touch": 1.0})
        collected = s.collect()
        page = collected.rollouts[0]
    assert page.group_size == 2 and page.values is None
    np.testing.assert_array_equal(page.active, [[1, 1, 0, 0] * 4] * 300)
    assert page.rewards.any() and not page.rewards[:, 2:4].any()
    place = np.argsort(order)
    for slot in range(4):
        game, episode, over = envs.make_game("SoccerTwos"), 0, True
        game.set_parameters({"ball_touch": 1.0})
        rows, seen = slice(slot * 4, slot * 4 + 4), room_for(spec.behaviors[0], 4)
        for t in range(300):
            if over:
                episode += 1
                game.reset(int(np.random.SeedSequence([5, slot, 0, 0, episode]).generate_state(1)[0] >> 1))
            game.observe(seen)
            for name, array in seen.items():
                np.testing.assert_array_equal(page.observations[name][t, rows], array[order])
            step = game.step(page.actions[t, rows][place])
            over = step.over
            paid = np.where(page.active[t, rows], step.reward[order], 0)
            np.testing.assert_array_equal(page.rewards[t, rows], paid)
            shared = np.where(page.active[t, rows], step.group_reward[order], 0)
            np.testing.assert_array_equal(page.group_rewards[t, rows], shared)
            np.testing.assert_array_equal(page.terminated[t, rows], step.terminated[order])
        game.close()
    assert len(collected.matches) * 4 == len(collected.episodes)
    assert all(match.seats == tuple(seats) for match in collected.matches)


def test_a_worker_that_is_replaced_has_the_parameters_too() -> None:
    learners, seats = {0: ("SoccerTwos", Even(9))}, [Seat(0, True)] * 4
    with collector("SoccerTwos", learners, seats, rows=16, horizon=100, workers=2) as s:
        s.set_parameters({"ball_touch": 1.0})
        s.collect()
        os.kill(s.pids[0], signal.SIGKILL)
        os.waitid(os.P_PID, s.pids[0], os.WEXITED | os.WNOWAIT)
        # Worker 0 has games 0 and 2.
        eventually(lambda: s.collect().rollouts[0].rewards[:, [0, 1, 2, 3, 8, 9, 10, 11]].any())
        assert lost(s) == (1, 0)


def striker(observations, masks):
    return [observations["obs_0"][:, :3].argmax(1)]


def keeper(observations, masks):
    cue = observations["obs_0"].argmax(1)
    assert observations["obs_1"].shape == (len(cue), 1)
    return [cue, 1 - cue]


@pytest.mark.parametrize("sampling", MODES)
def test_two_behaviors_have_a_learner_each(sampling) -> None:
    learners = {4: ("Striker", Knowing((3,), striker)), 7: ("Keeper", Knowing((2, 2), keeper))}
    with collector("PenaltyToy", learners, [Seat(4, True), Seat(7, True)], rows=8, horizon=20, **sampling) as s:
        collected = s.collect()
        assert set(collected.rollouts) == set(collected.entropies) == {4, 7}
        shapes = {k: (page.actions.shape, list(page.observations)) for k, page in collected.rollouts.items()}
        assert shapes == {4: ((20, 4, 1), ["obs_0"]), 7: ((20, 4, 2), ["obs_0", "obs_1"])}
        for page in collected.rollouts.values():
            np.testing.assert_array_equal(page.rewards, 1.0)
            assert page.active.all() and page.masks is None and (page.versions == 3).all()
        assert {(e.agent, e.policy, e.stats["hits"]) for e in collected.episodes} == {(0, 4, 1.0), (1, 7, 1.0)}
        assert {match.points for match in collected.matches} == {(0.5, 0.5)}
        length = collected.episodes[0].length
        assert len(collected.matches) == 4 * (20 // length) == len(collected.episodes) / 2


def test_what_is_told_of_an_agent_is_of_its_own_behavior() -> None:
    def wrong(observations, masks):
        return [observations["obs_0"].argmax(1)] * 2

    learners = {4: ("Striker", Knowing((3,), striker)), 7: ("Keeper", Knowing((2, 2), wrong))}
    with collector("PenaltyToy", learners, [Seat(4, True), Seat(7, True)], rows=8, workers=0) as s:
        collected = s.collect()
    assert {(e.agent, e.policy, e.length, e.reward) for e in collected.episodes} == {(0, 4, 4, 4.0), (1, 7, 4, 0.0)}
    assert {match.points for match in collected.matches} == {(1.0, 0.0)}


def dearest(observations, masks):
    return [(masks.numpy() * np.arange(1, 5)).argmax(1)]


@pytest.mark.parametrize("sampling", MODES)
def test_masks_reach_policy_and_learner_and_random_starts_obey_them(sampling) -> None:
    learners = {0: ("MenuToy", Knowing((4,), dearest))}
    with collector("MenuToy", learners, [Seat(0, True)], rows=4, **sampling, decorrelate=True) as s:
        page = s.collect().rollouts[0]
        assert page.masks.shape == (9, 4, 4) and (page.masks.sum(2) == 3).all()
        best = (page.masks[:-1] * np.arange(1, 5)).argmax(2)
        np.testing.assert_array_equal(page.actions[:, :, 0], best)
        np.testing.assert_array_equal(page.rewards, np.float32(best / 3))
        assert {2, 3} == set(np.unique(best).tolist())
