"""What is drawn for a match reaches it, whoever steps the game, and stays until the match ends."""

from __future__ import annotations

import numpy as np
import pytest
from counting_game import PayingGame, counting_spec
from counting_policy import CountingPolicy, missing

from palus.config.appo import Sampling
from palus.config.environment import UniformSampler
from palus.envs.matches import Matches
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import Collector, Seat
from palus.rollout.workers import WorkerCollector

WAGES = {"wage": UniformSampler.model_validate({"sampler_type": "uniform", "sampler_parameters": {"seed": 4}})}


def collector(kind: str) -> Collector:
    learners = {0: ("", CountingPolicy())}
    if kind == "in process":
        env = Matches(PayingGame, 4)
        return InProcessCollector(env, learners, lambda slot: [Seat(0, True)], 12, 1, {0: 1}, missing)
    settings = Sampling(workers=int(kind[0]), decorrelate=False)
    return WorkerCollector(
        PayingGame, counting_spec(1), settings, rows=4, horizon=12, seed=1, learners=learners,
        cast=lambda slot: [Seat(0, True)], load=missing,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["in process", "0 workers", "2 workers"])
def test_every_match_begins_with_a_number_of_its_own(kind: str) -> None:
    s = collector(kind)
    s.set_parameters(WAGES)
    collected = s.collect()
    pay = collected.rollouts[0].rewards.copy()  # episodes of 5 decisions
    assert len(collected.episodes) == 8
    for episode in collected.episodes:
        assert episode.reward == pytest.approx(5 * episode.stats["agreed"])
    assert ((pay >= 0) & (pay <= 1)).all()
    np.testing.assert_array_equal(pay[0:4], pay[1:5])
    np.testing.assert_array_equal(pay[5:9], pay[6:10])
    assert len(set(pay[[0, 5, 10]].ravel().tolist())) == 12
    s.set_parameters({"wage": 3.0})
    following = s.collect().rollouts[0]
    np.testing.assert_array_equal(following.rewards, 3.0)
    assert not following.terminated[0].any()
    s.restart()  # after 24 decisions, before the last of an episode
    assert not s.collect().rollouts[0].terminated[0].any()
    s.close()
