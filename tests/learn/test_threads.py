"""An update on several threads is the update on one, also where agents of a group are absent."""

import numpy as np
import pytest
import torch

from palus.config import load_run
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.rollout.rollout import Rollout
from palus.types import BehaviorSpec

T, B, D, GROUP = 8, 6, 5, 2
SPEC = BehaviorSpec.of_vectors("Toy", (D,), (3, 2))


def rollout() -> Rollout:
    rng = np.random.default_rng(0)
    active = rng.random((T, B)) < 0.7
    active[:, ::2] = True
    never = np.zeros((T, B), np.bool_)
    return Rollout(
        observations=rng.random((T, B, D), np.float32) * active[:, :, None],
        actions=rng.integers(0, 2, (T, B, 2)).astype(np.int32),
        log_probs=np.full((T, B, 2), -0.9, np.float32),
        rewards=rng.standard_normal((T, B)).astype(np.float32),
        group_rewards=rng.standard_normal((T, B)).astype(np.float32),
        terminated=never,
        truncated=never,
        active=active,
        last_observations=rng.random((B, D), np.float32),
        last_active=np.ones(B, np.bool_),
        final_observations=np.zeros((0, D), np.float32),
        group_size=GROUP,
        policy_version=0,
    )


@pytest.mark.parametrize(("learner", "preset"), [(PPO, "soccertwos-ppo"), (POCA, "soccertwos")])
def test_two_threads_learn_what_one_does(learner, preset):
    small = ("hyperparameters.batch_size=16", "hyperparameters.buffer_size=48", "network_settings.hidden_units=16")
    behavior = load_run(preset, [f"behaviors.SoccerTwos.{setting}" for setting in small]).behaviors["SoccerTwos"]
    one, two = (learner(behavior, SPEC, torch.float32, 1, threads) for threads in (1, 2))
    first, second = (each.update(rollout(), 0) for each in (one, two))
    # Adam's first steps turn rounding into up to a learning rate where a gradient is almost zero: compare the moments.
    np.testing.assert_allclose(two.optimizer.mean, one.optimizer.mean, atol=2e-6)
    assert second.policy_loss == pytest.approx(first.policy_loss, abs=1e-6)
    assert second.value_loss == pytest.approx(first.value_loss, rel=1e-5)
    assert second.kl == pytest.approx(first.kl, abs=1e-6)
