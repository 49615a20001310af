"""An update on several threads is the update on one, also where agents of a group are absent."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sampled import appo_behavior
from toys import Play, Recall, behavior_of

from palus.config import load_run
from palus.learn.appo import APPO
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
        observations={"obs_0": rng.random((T + 1, B, D), np.float32)},
        masks=None,
        states=np.zeros((B, 0), np.float32),
        last_states=np.zeros((B, 0), np.float32),
        actions=rng.integers(0, 2, (T, B, 2)).astype(np.float32),
        log_probs=np.full((T, B, 2), -0.9, np.float32),
        parameters=np.zeros((T, B, 5), np.float32),
        values=None,
        rewards=rng.standard_normal((T, B)).astype(np.float32),
        group_rewards=rng.standard_normal((T, B)).astype(np.float32),
        terminated=never,
        truncated=never,
        active=active,
        last_active=np.ones(B, np.bool_),
        final_observations={"obs_0": np.zeros((0, D), np.float32)},
        final_states=np.zeros((0, 0), np.float32),
        group_size=GROUP,
        versions=np.zeros((T, B), np.int32),
    )


@pytest.mark.parametrize(("learner", "preset"), [(PPO, "soccertwos-ppo"), (POCA, "soccertwos")])
def test_two_threads_learn_what_one_does(learner, preset):
    small = ("hyperparameters.batch_size=16", "hyperparameters.buffer_size=48", "network_settings.hidden_units=16")
    behavior = load_run(preset, [f"behaviors.SoccerTwos.{setting}" for setting in small]).behaviors["SoccerTwos"]
    one, two = (learner(behavior, SPEC, torch.float32, 1, threads) for threads in (1, 2))
    first, second = (each.update(rollout(), 0) for each in (one, two))
    # Adam's first steps turn rounding into up to a learning rate where a gradient is almost zero: compare the moments.
    np.testing.assert_allclose(two.optimizer.mean, one.optimizer.mean, atol=2e-6)
    assert second == pytest.approx(first, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("threads", "gone", "decisions", "steps"),
    [(1, 0, 8, 4), (2, 0, 8, 4), (1, 0, 4, 4), (2, 0, 4, 4), (2, 1, 8, 2), (1, 1, 16, 2)],
)
def test_appo_takes_a_step_for_every_minibatch_that_has_a_row(
    threads: int, gone: int, decisions: int, steps: int
) -> None:
    """Of four rows of eight decisions, one perhaps gone; a minibatch is asked to have so many: 24 are two of 16."""
    sizes = (f"time_horizon={decisions}", f"hyperparameters.batch_size={decisions}", "hyperparameters.num_epoch=1")
    learner = APPO(appo_behavior(*sizes), Recall.spec, torch.float32, 0, threads)
    found = learner.update(_without(Play(learner, Recall(4)).collect(), gone), 0)
    assert learner.network.version == steps and np.isfinite(list(found.values())).all()


@pytest.mark.parametrize(("gone", "steps"), [(0, 32), (1, 16)])
def test_ppo_takes_a_step_for_every_minibatch_that_has_a_decision(gone: int, steps: int) -> None:
    """Of one decision each, where two threads have 16 and 16, or 16 and 8."""
    sizes = ("hyperparameters.batch_size=1", "hyperparameters.num_epoch=1")
    learner = PPO(behavior_of("ppo", *sizes), Recall.spec, torch.float32, 0, 2)
    found = learner.update(_without(Play(learner, Recall(4)).collect(), gone), 0)
    assert learner.network.version == steps and np.isfinite(list(found.values())).all()


def _without(rollout: Rollout, gone: int) -> Rollout:
    """The rollout without its last rows."""
    active = rollout.active.copy()
    active[:, active.shape[1] - gone :] = False
    return replace(rollout, active=active)
