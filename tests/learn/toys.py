"""Tiny games that step as one in numpy, and a collector of a few lines, for tests of the learners alone."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from palus.config import load_run
from palus.learn.learner import Learner
from palus.nn.distributions import sample, told
from palus.rollout.rollout import Rollout
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

Arrays = dict[str, np.ndarray]
SETTINGS = (
    "hyperparameters.batch_size=256", "hyperparameters.buffer_size=1024", "hyperparameters.learning_rate=0.01",
    "hyperparameters.beta=0.002", "network_settings.hidden_units=16", "network_settings.num_layers=1",
)  # fmt: skip


def behavior_of(trainer: str, *more: str) -> Any:
    """A behavior trained by PPO or MA-POCA with settings for small games."""
    overrides = [f"behaviors.SoccerTwos.{s}" for s in (f"trainer_type={trainer}", *SETTINGS, *more)]
    return load_run("debug", overrides).behaviors["SoccerTwos"]


class Toy(Protocol):
    """B rows of a game. active, masks: [B], [B, M] or None, of the coming decision."""

    spec: BehaviorSpec
    group_size: int
    active: np.ndarray
    masks: np.ndarray | None

    def observe(self) -> Arrays: ...

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reward and end of every row; new episodes begin at once."""


class Play:
    """Collects rollouts of T decisions of a toy; `score` is the mean reward of decisions that ended an episode."""

    def __init__(self, learner: Learner, toy: Toy, T: int = 8, seed: int = 0) -> None:
        torch.set_num_threads(1)  # as in training: threads inside such small operators only get in each other's way
        self.network, self.toy, self.T, self.seed, self.tick = learner.network, toy, T, seed, 0
        self.states = np.zeros((len(toy.active), self.network.state_size), np.float32)

    def collect(self) -> Rollout:
        toy, first, rows = self.toy, self.states.copy(), np.arange(len(self.states))
        steps: list[Arrays] = []
        for _ in range(self.T):
            seen, masks, active = toy.observe(), toy.masks, toy.active.copy()
            allowed = torch.from_numpy(masks) if masks is not None else None
            tensors = {name: torch.from_numpy(x) for name, x in seen.items()}
            found = self.network.act(tensors, torch.from_numpy(self.states), allowed)
            parameters, values, after = (x.cpu().numpy().copy() if x is not None else None for x in found)
            actions, log_probs, _ = sample(parameters, toy.spec.actions, self.seed, self.tick, rows)
            self.tick += 1
            reward, ended = toy.step(told(actions, toy.spec.actions, self.network.squash))
            self.states = np.where(ended[:, None], np.float32(0), after)
            step = {"parameters": parameters, "actions": actions, "log_probs": log_probs, "active": active}
            step |= {"rewards": reward.astype(np.float32), "terminated": ended}
            step |= {"values": values} if values is not None else {}
            steps.append(step | {"masks": masks} if masks is not None else step)
            steps[-1] |= {f"seen {name}": x for name, x in seen.items()}
        last = {f"seen {name}": x for name, x in toy.observe().items()} | {"masks": toy.masks}
        both = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
        whole = {name: np.concatenate([x, last[name][None]]) for name, x in both.items() if name in last}
        nothing = np.zeros(both["rewards"].shape, np.float32)
        self.score = float(both["rewards"][both["terminated"]].mean())
        return Rollout(
            observations={name.removeprefix("seen "): x for name, x in whole.items() if name != "masks"},
            masks=whole.get("masks"),
            states=first,
            last_states=self.states.copy(),
            actions=both["actions"],
            log_probs=both["log_probs"],
            parameters=both["parameters"],
            values=both.get("values"),
            rewards=both["rewards"],
            group_rewards=nothing,
            terminated=both["terminated"],
            truncated=nothing > 0,
            active=both["active"],
            last_active=toy.active.copy(),
            final_observations={o.name: np.zeros((0, *o.shape), o.dtype) for o in toy.spec.observations},
            final_states=np.zeros((0, self.states.shape[1]), np.float32),
            group_size=toy.group_size,
            versions=np.full(nothing.shape, self.network.version, np.int32),
        )


def curve(learner: Learner, play: Play, updates: int, steps: int = 1) -> list[float]:
    """The score of every rollout that was learned from. steps: trainer steps of one, where the learner counts them."""
    scores = []
    for update in range(updates):
        rollout = play.collect()
        learner.update(rollout, update * steps)
        scores.append(play.score)
    return scores


class Recall:
    """One of two cues is shown at first; LENGTH - 1 decisions later the agent is paid for naming it. Chance: 0.5."""

    LENGTH = 4
    spec = BehaviorSpec("recall", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(2),)))
    group_size, masks = 1, None

    def __init__(self, rows: int = 128, seed: int = 0) -> None:
        self.rng, self.active = np.random.default_rng(seed), np.ones(rows, np.bool_)
        self.age, self.cue = np.arange(rows) % self.LENGTH, self.rng.integers(0, 2, rows)  # out of step

    def observe(self) -> Arrays:
        seen = np.zeros((len(self.age), 3), np.float32)
        seen[np.arange(len(seen)), self.cue] = self.age == 0
        seen[:, 2] = self.age == self.LENGTH - 1
        return {"obs": seen}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ended = self.age == self.LENGTH - 1
        paid = ended & (actions[:, 0] == self.cue)
        self.cue = np.where(ended, self.rng.integers(0, 2, len(ended)), self.cue)
        self.age = np.where(ended, 0, self.age + 1)
        return paid, ended


class Pictures:
    """A bright spot in a picture: the agent is paid for naming the quarter where it is. Chance: 0.25."""

    SIZE = 6
    spec = BehaviorSpec("pictures", (ObservationSpec("eye", (1, SIZE, SIZE), "uint8"),), ActionSpec((Discrete(4),)))
    group_size, masks = 1, None

    def __init__(self, rows: int = 128, seed: int = 0) -> None:
        self.rng, self.active = np.random.default_rng(seed), np.ones(rows, np.bool_)
        self.spot = self.rng.integers(0, self.SIZE, (2, rows))

    def observe(self) -> Arrays:
        seen = np.zeros((len(self.active), 1, self.SIZE, self.SIZE), np.uint8)
        seen[np.arange(len(seen)), 0, self.spot[0], self.spot[1]] = 255
        return {"eye": seen}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, right = self.spot >= self.SIZE // 2
        self.spot = self.rng.integers(0, self.SIZE, self.spot.shape)
        return actions[:, 0] == 2 * low + right, np.ones(len(low), np.bool_)


class Forbidden:
    """Four choices worth 0 to 3 thirds, of which one to three are allowed. Groups of two play two decisions; sometimes
    the second member leaves after the first. Who takes what is forbidden ends the test."""

    spec = BehaviorSpec("forbidden", (ObservationSpec("obs", (1,)),), ActionSpec((Discrete(4),), masked=True))
    group_size = 2

    def __init__(self, rows: int = 128, seed: int = 0) -> None:
        self.rng, self.active, self.age = np.random.default_rng(seed), np.ones(rows, np.bool_), 0
        self._forbid()

    def _forbid(self) -> None:
        ranks = self.rng.random((len(self.active), 4)).argsort(1)
        self.masks = ranks < self.rng.integers(1, 4, (len(ranks), 1))

    def observe(self) -> Arrays:
        return {"obs": self.active[:, None].astype(np.float32)}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, chosen = np.arange(len(actions)), actions[:, 0].astype(np.int64)
        assert self.masks[rows, chosen].all()
        best = 3 - self.masks[:, ::-1].argmax(1)
        leaves = (rows % 2 == 1) & (self.rng.random(len(rows)) < 0.5)
        ended = self.active & (leaves if self.age == 0 else True)
        reward = np.where(self.active, (chosen - best) / 3, 0.0)
        self.age = 1 - self.age
        self.active = ~ended if self.age == 1 else np.ones_like(ended)
        self._forbid()
        return reward, ended


class Aim:
    """A number is shown: the agent says its sign and names it, and is paid 1 for the sign less the squared error."""

    spec = BehaviorSpec("aim", (ObservationSpec("obs", (1,)),), ActionSpec((Discrete(2), Continuous(1))))
    group_size, masks = 1, None

    def __init__(self, rows: int = 128, seed: int = 0) -> None:
        self.rng, self.active = np.random.default_rng(seed), np.ones(rows, np.bool_)
        self.number = self.rng.uniform(-1, 1, rows)

    def observe(self) -> Arrays:
        return {"obs": self.number[:, None].astype(np.float32)}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        reward = (actions[:, 0] == (self.number > 0)) - (actions[:, 1] - self.number) ** 2
        self.number = self.rng.uniform(-1, 1, len(reward))
        return reward, np.ones(len(reward), np.bool_)


class Errand:
    """A place and a goal are shown: the agent is paid for naming the place that lies as far on as the goal says.

    Chance, and whoever does not see the goal: 1/3.
    """

    spec = BehaviorSpec(
        "errand", (ObservationSpec("goal", (3,), goal=True), ObservationSpec("place", (3,))), ActionSpec((Discrete(3),))
    )
    group_size, masks = 1, None

    def __init__(self, rows: int = 128, seed: int = 0) -> None:
        self.rng, self.active = np.random.default_rng(seed), np.ones(rows, np.bool_)
        self.drawn = self.rng.integers(0, 3, (2, rows))

    def observe(self) -> Arrays:
        goal, place = np.eye(3, dtype=np.float32)[self.drawn]
        return {"goal": goal, "place": place}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        paid = actions[:, 0] == self.drawn.sum(0) % 3
        self.drawn = self.rng.integers(0, 3, self.drawn.shape)
        return paid, np.ones(len(paid), np.bool_)


class Remember(Recall):
    """`Recall` with a number to say (low or high as the cue was), alone or beside the choice, and the cue in a list of
    entities where `listed`. Both parts are paid alike; 1 at best, about 0.5 without a memory."""

    def __init__(self, *parts: Discrete | Continuous, listed: bool = False, rows: int = 128, seed: int = 0) -> None:
        super().__init__(rows, seed)
        shown = (ObservationSpec("obs", (1,)), ObservationSpec("cues", (2, 2))) if listed else Recall.spec.observations
        self.spec = BehaviorSpec("remember", shown, ActionSpec(parts))

    def observe(self) -> Arrays:
        seen = super().observe()["obs"]
        if len(self.spec.observations) == 1:
            return {"obs": seen}
        cues = np.zeros((len(seen), 2, 2), np.float32)
        cues[:, 1] = seen[:, :2]
        return {"obs": seen[:, 2:], "cues": cues}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked = self.cue.copy()
        told = np.zeros((len(asked), len(self.spec.actions.parts)))
        for k, (part, columns) in enumerate(zip(self.spec.actions.parts, self.spec.actions.column_slices, strict=True)):
            own = actions[:, columns.start]
            told[:, k] = own == asked if isinstance(part, Discrete) else 1 - 0.5 * (own - (2 * asked - 1)) ** 2
        _, ended = super().step(np.zeros_like(actions[:, :1]))
        return np.where(ended, told.mean(1), 0.0), ended
