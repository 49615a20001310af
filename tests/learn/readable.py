"""Learners whose estimates can be read off the observations, so that a rollout's targets can be worked out by hand.

An observation is one-hot: it names one of the numbers 1 to 8, or none. PPO's critic answers that number. MA-POCA's
answers the mean of the numbers of the agents present, plus 1 if both of a group of two are there; in a baseline, a mate
stands for 10 if it takes action 0 and for 20 if it takes action 1. Whoever acts, acts evenly.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from palus.config import load_run
from palus.config.trainer import OnPolicyBehavior
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.rollout.rollout import Rollout
from palus.types import BehaviorSpec

NUMBERS, ACTIONS = 8, 2
SPEC = BehaviorSpec.of_vectors("Numbers", (NUMBERS,), (ACTIONS,))
ACTED = (10.0, 20.0)
SHARP = 100.0  # x * sigmoid(x) is x for large x, and 0 for 0
SETTINGS = (
    "hyperparameters.num_epoch=1", "hyperparameters.buffer_size=12", "hyperparameters.batch_size=12",
    "hyperparameters.lambd=0.5", "hyperparameters.learning_rate=0.01", "hyperparameters.beta=0.0",
    "reward_signals.extrinsic.gamma=0.5", "reward_signals.extrinsic.strength=2.0",
    "network_settings.hidden_units=16", "network_settings.num_layers=1",
)  # fmt: skip


def behavior_of(trainer: str, *more: str) -> OnPolicyBehavior:
    settings = (f"trainer_type={trainer}", *SETTINGS, *more)
    return load_run("debug", [f"behaviors.SoccerTwos.{s}" for s in settings]).behaviors["SoccerTwos"]


def readable_ppo(*more: str) -> PPO:
    learner = PPO(behavior_of("ppo", *more), SPEC, torch.float32, 0)
    _write(
        learner,
        {
            "critic_encoder.layers.0.weight": {(0, k): SHARP * (k + 1) for k in range(NUMBERS)},
            "critic_linear.weight": {(0, 0): 1 / SHARP},
        },
    )
    return learner


def readable_poca(*more: str) -> POCA:
    """The critic turns each agent into one of ten classes, its number or its action, and counts what it sees."""
    learner = POCA(behavior_of("poca", *more), SPEC, torch.float32, 0)
    classes = NUMBERS + ACTIONS
    worth = [*range(1, NUMBERS + 1), *ACTED]
    # An entity passes through two layer norms: its own class then reads `high`, every other one `low`.
    high, low = F.layer_norm(F.layer_norm(SHARP * torch.eye(16)[0], (16,)), (16,))[:2].tolist()
    slope = SHARP / (high - low)
    _write(
        learner,
        {
            "critic.observation.weight": {(k, k): SHARP for k in range(NUMBERS)},
            "critic.action.weight": {(NUMBERS + a, NUMBERS + a): SHARP for a in range(ACTIONS)},
            "critic.layers.0.weight": {(0, k): slope * worth[k] for k in range(classes)},
            "critic.layers.0.bias": {(0,): -slope * low * sum(worth)},
            "critic.head.weight": {(0, 0): 1 / SHARP, (0, 16): 1.0},
        },
    )
    return learner


def advantages_of(learner: PPO, data: Rollout, length: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and value targets, [T, B] each, where the game's own reward is the only one."""
    rewards, values = learner.rewards(data, data.active), learner.replay(data, length)[0]
    advantages, targets = learner.advantages(data, rewards, values)
    return advantages, targets[..., 0]


def _write(learner: PPO | POCA, tensors: dict[str, dict[tuple[int, ...], float]]) -> None:
    weights = learner.network.weights
    weights.load(torch.zeros_like(weights.master))
    with torch.no_grad():
        for name, entries in tensors.items():
            for place, value in entries.items():
                weights.tensors[name][place] = value


def numbers(values: object) -> np.ndarray:
    """Observations that name these numbers, 0 for none: [..., 8]."""
    found: np.ndarray = np.eye(NUMBERS + 1, dtype=np.float32)[np.array(values, np.int64)][..., 1:]
    return found


def rollout(
    observed: list[list[int]], last: list[int], final: list[int], rewards: list[list[float]], *,
    group_rewards: list[list[float]], terminated: list[tuple[int, int]], truncated: list[tuple[int, int]],
    absent: list[tuple[int, int]], actions: list[list[int]], ratios: list[list[float]] | None = None,
    last_absent: tuple[int, ...] = (), group_size: int = 2, shown: list[tuple[int, int]] | None = None,
) -> Rollout:  # fmt: skip
    """A rollout from lists [T][B]; ends and absences as (decision, row). ratios: new over acting probability."""
    shape = np.shape(observed)

    def flags(places: list[tuple[int, int]]) -> np.ndarray:
        found = np.zeros(shape, np.bool_)
        for place in places:
            found[place] = True
        return found

    acting, (T, B) = 0.5 / np.array(ratios if ratios is not None else np.ones(shape)), shape
    return Rollout(
        observations={"obs_0": numbers([*observed, last])},
        masks=None,
        states=np.zeros((B, 0), np.float32),
        last_states=np.zeros((B, 0), np.float32),
        actions=np.array(actions, np.float32)[:, :, None],
        log_probs=np.log(acting).astype(np.float32)[:, :, None],
        parameters=np.zeros((T, B, ACTIONS), np.float32),
        values=None,
        rewards=np.array(rewards, np.float32),
        group_rewards=np.array(group_rewards, np.float32),
        terminated=flags(terminated),
        truncated=flags(truncated),
        shown=None if shown is None else flags(shown),
        active=~flags(absent),
        last_active=~np.isin(np.arange(B), last_absent),
        final_observations={"obs_0": numbers(final).reshape(-1, NUMBERS)},
        final_states=np.zeros((len(final), 0), np.float32),
        group_size=group_size,
        versions=np.zeros((T, B), np.int32),
    )


def two_matches() -> Rollout:
    """Two matches of one group of two, three decisions, everything that can happen to an agent:

    decision    match 0, rows 0 and 1                        match 1, rows 2 and 3
    0           row 1 leaves early                           both play on
    1           row 0 ends by the rules, the match with it   both are cut off by the time limit
    2           a new match goes on                          a new match; row 3 is cut off alone, row 2 goes on
    """
    return rollout(
        observed=[[1, 2, 3, 4], [5, 0, 6, 7], [8, 1, 2, 3]], last=[4, 6, 5, 0], final=[8, 2, 7],
        # Row 1 is absent at decision 1: whatever stands there is no reward.
        rewards=[[1, 0.5, -1, 0], [2, 9, 0.25, 1], [0, 1, 0.5, -2]],
        group_rewards=[[0, 0, 0.5, 0.5], [1, 9, 0, 0], [0.25, 0.25, 1, 1]],
        terminated=[(0, 1), (1, 0)], truncated=[(1, 2), (1, 3), (2, 3)], absent=[(1, 1)], last_absent=(3,),
        actions=[[0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0]],
    )  # fmt: skip
