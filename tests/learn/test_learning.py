"""The algorithms learn: tiny games solved from nothing in seconds."""

import numpy as np
import pytest
import torch

from palus import envs
from palus.config import load_run
from palus.learn.learner import frozen_policy
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.rollout.collector import Collector, Teams
from palus.rollout.rollout import LATEST, Matchup

SETTINGS = [
    "hyperparameters.batch_size=256",
    "hyperparameters.buffer_size=1024",
    "hyperparameters.learning_rate=0.01",
    "hyperparameters.beta=0.002",
    "network_settings.hidden_units=16",
    "network_settings.num_layers=1",
]


def behavior_of(trainer, *more):
    overrides = [f"behaviors.SoccerTwos.{s}" for s in (f"trainer_type={trainer}", *SETTINGS, *more)]
    return load_run("debug", overrides).behaviors["SoccerTwos"]


def learn(algorithm, env_id, trainer, updates, *, self_play, draw=None, opponents=None, seed=0, **options):
    """Train for a number of updates; returns learner, collector and each update's mean reward per group episode."""
    env = envs.make(env_id, 64, **options)
    teams = Teams.of(env, self_play)
    learner = algorithm(behavior_of(trainer), env.spec.behaviors[0], torch.float32, seed)
    collector = Collector(env, teams, 16, seed, draw or (lambda slot: Matchup(0, LATEST)))
    curve = []
    for update in range(updates):
        rollout, episodes = collector.collect(learner.actor, opponents or (lambda snapshot: None))
        learner.update(rollout, update)
        curve.append(teams.group_size * float(np.mean([e.group_reward + e.reward for e in episodes])))
    return learner, collector, curve


@pytest.mark.parametrize(("algorithm", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
def test_a_competitive_game_is_solved_by_self_play(algorithm, trainer):
    env = envs.make("DuelToy", 64)
    behavior = env.spec.behaviors[0]
    untrained = algorithm(behavior_of(trainer), behavior, torch.float32, 1).actor.arrays()
    first = frozen_policy(untrained, torch.float32)
    # Half of the slots against the first policy, half against the latest, as a ghost pool of one would draw.
    learner, collector, _ = learn(
        algorithm, "DuelToy", trainer, 40, self_play=True,
        draw=lambda slot: Matchup(0, 0 if slot % 2 else LATEST), opponents=lambda snapshot: first,
    )  # fmt: skip
    _, episodes = collector.collect(learner.actor, lambda snapshot: first)
    against_first = [e.result for e in episodes if e.opponent == 0]
    assert len(against_first) > 50
    assert np.mean([r == 1 for r in against_first]) > 0.9
    assert np.mean([r == -1 for r in against_first]) < 0.02


@pytest.mark.parametrize(("algorithm", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
def test_a_cooperative_game_is_solved(algorithm, trainer):
    _, _, curve = learn(algorithm, "DuelToy", trainer, 40, self_play=False, cooperative=True)
    per_agent = np.array(curve) / 2  # both members are paid the share of cues that the group matched
    assert per_agent[0] < 0.5  # a third by chance
    assert per_agent[-5:].mean() > 0.97


def test_poca_credits_an_agent_that_left_before_the_reward_came():
    _, _, curve = learn(POCA, "RescueToy", "poca", 40, self_play=False)
    assert np.mean(curve[:2]) < 0.5 * curve[-1]
    assert np.mean(curve[-5:]) > 0.95


def test_ppo_with_shared_reward_does_not():
    _, _, curve = learn(PPO, "RescueToy", "ppo", 40, self_play=False)
    assert np.mean(curve[-5:]) < 0.5
