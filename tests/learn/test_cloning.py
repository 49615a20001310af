"""Behavioral cloning: its loss by hand, and which decisions of the demonstrations an update takes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from toys import behavior_of

from palus.learn.cloning import Cloning, cloning_loss
from palus.learn.ppo import PPO
from palus.learn.ranks import Ranks
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

SPEC = BehaviorSpec.of_vectors("Toy", (1,), (2,))


@pytest.mark.parametrize(
    ("squash", "numbers"),
    # In units of half the range: of 0 to 4, 3 was drawn and 1 wanted; without a range, -1 and 1. Or the draws' tanh.
    [
        (False, ((0.5 + 0.5) ** 2 + (-1 - 1) ** 2) / 2),
        (True, ((math.tanh(3) + 0.5) ** 2 + (math.tanh(-1) - 1) ** 2) / 2),
    ],
)
def test_the_loss_is_the_mean_over_branches_and_over_numbers_that_are_drawn(squash: bool, numbers: float) -> None:
    # p(1) = 3/4 of two choices, p(2) = 1/2 of three; mean 2, deviation 2, noise 1/2; mean 1, deviation 1, noise -2
    spec = ActionSpec((Discrete(2), Continuous(1, 0.0, 4.0), Discrete(3), Continuous(1)))
    parameters = torch.tensor([[0.0, math.log(3), 2.0, math.log(2), 0.0, 0.0, math.log(2), 1.0, 0.0]])
    shown = torch.tensor([[1.0, 1.0, 2.0, 1.0]])
    found = cloning_loss(parameters, torch.tensor([[0.5, -2.0]]), shown, spec, squash)
    assert found.item() == pytest.approx((math.log(4 / 3) + math.log(2)) / 2 + numbers, rel=1e-5)


def cloning_of(folder: Path, settings: str, *more: str) -> tuple[Cloning, PPO]:
    """Of ten decisions, in episodes of six and four."""
    episodes = []
    for length in (6, 4):
        seen, nothing = {SPEC.observations[0].name: np.ones((length, 1), np.float32)}, np.zeros(length, np.float32)
        episodes.append(ExpertEpisode(seen, np.zeros((length, 1), np.float32), None, nothing, nothing, False))
    write_demonstrations(folder / "x.demo", SPEC, SPEC.name, episodes)
    cloning = f"behavioral_cloning={{demo_path: {folder}, {settings}}}"
    learner = PPO(behavior_of("ppo", cloning, *more), SPEC, torch.float32, 0)
    assert learner.cloning is not None
    return learner.cloning, learner


@pytest.mark.parametrize(
    ("settings", "epochs", "count", "size"),
    [
        ("batch_size: 4", 3, 2, 4),  # of ten decisions
        ("batch_size: 4, num_epoch: 2", 2, 2, 4),
        ("batch_size: 4, samples_per_update: 7", 3, 1, 4),
        ("batch_size: 4, samples_per_update: 1", 3, 1, 4),
        ("num_epoch: 1", 1, 1, 10),  # the trainer's 256 are more than there are
    ],
)
def test_an_update_takes_whole_minibatches_of_every_epoch(
    settings: str, epochs: int, count: int, size: int, tmp_path: Path
) -> None:
    cloning, learner = cloning_of(tmp_path, settings)
    found = np.array([numbers for _, numbers in cloning.minibatches(learner.behavior)])
    assert found.shape == (epochs * count, size)
    assert all(len(set(epoch.ravel())) == count * size for epoch in np.split(found, epochs)), "none twice"


def test_with_memory_an_update_takes_sequences_and_an_episode_begins_with_an_empty_one(tmp_path: Path) -> None:
    memory = "network_settings.memory={memory_size: 8, sequence_length: 3}"
    for settings, count in (("batch_size: 7", 6), ("batch_size: 7, samples_per_update: 11", 3)):  # 4 sequences by 2
        for own in (memory, memory.replace("3", "null")):
            cloning, learner = cloning_of(tmp_path, settings, own, "time_horizon=3")
            found = cloning.minibatches(learner.behavior)
            assert [(sequences.length, len(numbers)) for sequences, numbers in found] == [(3, 2)] * count
    assert cloning._keep[:, 0].tolist() == [1, 1, 1, 1, 1, 1, 0, 1, 1, 1]
    longer = "network_settings.memory={memory_size: 8, sequence_length: 12}"
    cloning, learner = cloning_of(tmp_path, "num_epoch: 1", longer)
    ((sequences, numbers),) = cloning.minibatches(learner.behavior)
    assert (sequences.length, numbers.tolist()) == (10, [0])


def test_ranks_each_follow_all_demonstrations_and_add_nothing_up(tmp_path: Path) -> None:
    cloning, learner = cloning_of(tmp_path, "batch_size: 4")
    twin = cloning_of(tmp_path, "batch_size: 4")[1]
    learner.ranks = Ranks(0, 2)  # which nobody has joined
    assert learner.imitate(0) == twin.imitate(0) and cloning.optimizer.steps == 6
    assert torch.equal(learner.network.weights.master, twin.network.weights.master)


@pytest.mark.parametrize(("settings", "rate"), [("strength: 2", 0.02), ("steps: 1000, strength: 2", 0.005)])
def test_the_rate_is_a_share_of_the_trainer_s_and_falls_where_there_are_steps(
    settings: str, rate: float, tmp_path: Path
) -> None:
    cloning, _ = cloning_of(tmp_path, settings)
    assert cloning.rate(0.01, 750) == pytest.approx(rate)
