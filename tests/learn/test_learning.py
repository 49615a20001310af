"""The algorithms learn from real games through the in-process collector: tiny ones, solved from nothing in seconds."""

import numpy as np
import pytest
import torch
from toys import behavior_of

from palus import envs
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import FROZEN, Seat

TRAINERS = pytest.mark.parametrize(
    ("algorithm", "trainer"), [(PPO, "ppo"), pytest.param(POCA, "poca", marks=pytest.mark.slow)]
)


class Training:
    """Learners, one for each behavior of a game, and 64 matches of it. cast: slot -> seats, by default all learn."""

    def __init__(self, env_id, *makers, cast=None, frozen=None, rows=None, **options):
        """makers: algorithm and trainer_type for each behavior."""
        env = envs.make(env_id, 64, **options)
        self.learners = {
            k: algorithm(behavior_of(trainer), spec, torch.float32, k)
            for k, ((algorithm, trainer), spec) in enumerate(zip(makers, env.spec.behaviors, strict=True))
        }
        names = [spec.name for spec in env.spec.behaviors]
        seats = [Seat(names.index(agent.behavior), True) for agent in env.spec.agents]
        self.collector = InProcessCollector(
            env, {k: (names[k], learner.network) for k, learner in self.learners.items()},
            cast or (lambda slot: seats), 16, 0, {k: rows or len(env.spec.agents_of(names[k])) for k in self.learners},
            lambda policy: frozen,
        )  # fmt: skip

    def train(self, updates, score):
        """Each update's score of its episodes that were learned from, [updates]."""
        curve = []
        for update in range(updates):
            collected = self.collector.collect()
            for k, learner in self.learners.items():
                learner.update(collected.rollouts[k], update)
            curve.append(score([e for e in collected.episodes if e.learned]))
        return np.array(curve)


def group_pay(size):
    """The mean of what episodes were paid, over a group."""
    return lambda episodes: size * float(np.mean([e.group_reward + e.reward for e in episodes]))


@TRAINERS
def test_a_competitive_game_is_solved_by_self_play(algorithm, trainer):
    behavior = envs.make("DuelToy", 1).spec.behaviors[0]
    first = algorithm(behavior_of(trainer), behavior, torch.float32, 1).network
    # Half of the slots against the first policy, half against the latest, as a ghost pool of one would draw.
    cast = lambda slot: (Seat(0, True), Seat(FROZEN if slot % 2 else 0, False))  # noqa: E731
    training = Training("DuelToy", (algorithm, trainer), cast=cast, frozen=first, rows=1)
    training.train(40, len)
    matches = training.collector.collect().matches
    against_first = [match.points[0] for match in matches if match.seats[1].policy == FROZEN]
    assert len(against_first) > 50
    assert np.mean([points == 1 for points in against_first]) > 0.9
    assert np.mean([points == 0 for points in against_first]) < 0.02


@TRAINERS
def test_a_cooperative_game_is_solved(algorithm, trainer):
    curve = Training("DuelToy", (algorithm, trainer), cooperative=True).train(16, group_pay(1))
    # both members are paid the share of cues that the group matched
    assert curve[0] < 0.5  # a third by chance
    assert curve[-5:].mean() > 0.97


def test_poca_credits_an_agent_that_left_before_the_reward_came():
    curve = Training("RescueToy", (POCA, "poca")).train(16, group_pay(2))
    assert np.mean(curve[:2]) < 0.5 * curve[-1]
    assert np.mean(curve[-5:]) > 0.95


@pytest.mark.slow
def test_ppo_with_shared_reward_does_not():
    curve = Training("RescueToy", (PPO, "ppo")).train(40, group_pay(2))
    assert np.mean(curve[-5:]) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("makers", [((PPO, "ppo"), (POCA, "poca")), ((POCA, "poca"), (PPO, "ppo"))])
def test_two_behaviors_in_one_match_both_learn(makers):
    def hits(episodes):
        return [float(np.mean([e.stats["hits"] for e in episodes if e.policy == k])) for k in (0, 1)]

    curve = Training("PenaltyToy", *makers).train(40, hits)
    assert (curve[0] < 0.45).all()  # a third and a quarter by chance
    assert (curve[-5:].mean(0) > 0.95).all()


@TRAINERS
def test_the_best_of_what_is_allowed_is_learned(algorithm, trainer):
    # the game ends the run when what is off the menu is ordered
    curve = Training("MenuToy", (algorithm, trainer)).train(16, lambda es: float(np.mean([e.reward for e in es])) / 4)
    assert curve[0] < 0.6
    assert curve[-5:].mean() > 0.88  # 11/12 at best; 0.75 for the dearest or nothing
