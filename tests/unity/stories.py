"""Games that tell hand-written messages, for the collector over agents that come, end and decide when they please."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from palus.config.run_file import EnvSettings
from palus.rollout.exchanging import ExchangeCollector
from palus.rollout.learner_stretches import Demand
from palus.rollout.rollout import Collected, Rollout, Seat
from palus.types import ActionSpec, AgentSpec, BehaviorSpec, Discrete, GameSpec, ObservationSpec
from palus.unity.news import News, Steps

KIND = BehaviorSpec("B", (ObservationSpec("obs_0", (1,)),), ActionSpec((Discrete(2),)))
LATE = BehaviorSpec("Late", KIND.observations, KIND.actions)
SPEC = GameSpec("Story", (KIND,), (AgentSpec("B?team=0", 0, 0, "B"),))
TWO_TEAMS = GameSpec("Story", (KIND,), (AgentSpec("B?team=0", 0, 0, "B"), AgentSpec("B?team=1", 1, 1, "B")))
Told = tuple[int, float, float]  # agent, what it sees, reward


class Counting:
    """Remembers how many decisions an agent took since its memory began."""

    version, state_size, squash = 0, 1, False

    def act(
        self, observations: Mapping[str, Tensor], states: Tensor, masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        return torch.zeros(len(states), 2), torch.zeros(len(states)), states + 1


def steps(*told: Told, group: int = 0, truncated: bool = False, group_reward: float = 0.0) -> Steps:
    agents, seen, rewards = (np.array(column) for column in zip(*told, strict=True))
    n = len(agents)
    return Steps(
        {"obs_0": seen.astype(np.float32)[:, None]}, rewards.astype(np.float32), np.full(n, group_reward, np.float32),
        agents.astype(np.int64), np.full(n, group), np.full(n, truncated),
    )  # fmt: skip


def news(decisions: Steps | None = None, ends: Steps | None = None, name: str = "B?team=0") -> News:
    return News({name: ends} if ends else {}, {name: decisions} if decisions else {})


def together(*parts: Steps) -> Steps:
    """Of agents of several groups, in one message."""
    columns = [np.concatenate([getattr(own, name) for own in parts]) for name in (
        "reward", "group_reward", "agent", "group", "truncated")]  # fmt: skip
    return Steps({"obs_0": np.concatenate([own.observations["obs_0"] for own in parts])}, *columns)


class Story:
    """In the place of a `UnityEnv`: says these messages, then the last one again and again."""

    def __init__(self, told: Sequence[News | Exception]) -> None:
        self.told, self.at, self.waits = list(told), 0, True
        self.behaviors = {"B?team=0": KIND, "B?team=1": KIND, "Late?team=0": LATE}
        self.answers: list[dict[str, int]] = []
        self.sent: list[Mapping[str, Any]] = []
        self.resets = 0

    def reset(self, parameters: Mapping[str, Any], seed: int) -> None:
        self.resets, self.waits = self.resets + 1, False

    def receive(self, stopped: Any = None) -> News:
        said = self.told[min(self.at, len(self.told) - 1)]
        self.at, self.waits = self.at + 1, True
        if isinstance(said, Exception):
            raise said
        return said

    def send(self, actions: Mapping[str, Any], parameters: Mapping[str, Any], seed: int) -> None:
        self.waits = False
        self.sent.append(actions)
        self.answers.append({name: len(own) for name, own in actions.items()})

    def kill(self) -> None:
        self.told = []

    close = kill


def collector(
    *games: Story, rows: int, horizon: int = 100, grouped: bool = False, spec: GameSpec = SPEC, **options: Any
) -> ExchangeCollector:
    learner = {0: ("B", options.pop("policy", Counting()))}
    made: dict[str, Any] = {
        "cast": lambda k: [Seat(0, True)] * spec.num_agents,
        "start": lambda k: pytest.fail("no game is lost here"),
        "load": lambda k: pytest.fail("there is no frozen policy"),
        "settings": EnvSettings(env_path="x"),
    }
    made |= options
    return ExchangeCollector(
        games, made["start"], spec, made["settings"], {0: Demand(rows, horizon, grouped)}, seed=1, learners=learner,
        cast=made["cast"], load=made["load"], members={}, draws={},
        meet=made.get("meet", lambda name, seen: f"{name} is not learned"),
    )  # fmt: skip


def one(collected: Collected) -> Rollout:
    return collected.rollouts[0]


def rows_of(rollout: Rollout) -> list[list[tuple[float, float, str]]]:
    """Each row's decisions: what was seen, the reward, and how it ended: terminated, truncated or not."""
    found = []
    for b in range(rollout.rewards.shape[1]):
        taken = np.flatnonzero(rollout.active[:, b])
        found.append([
            (float(rollout.observations["obs_0"][t, b, 0]), float(rollout.rewards[t, b]),
             "x" if rollout.terminated[t, b] else "cut" if rollout.truncated[t, b] else "")
            for t in taken
        ])  # fmt: skip
    return found


def out_of_step() -> list[News]:
    """1 decides in every even message, 2 in every odd one until it ends; then 1 is paid, and the group is gone."""
    return [
        news(steps((1, 0, 0), group=5)),
        news(steps((2, 1, 0), group=5)),
        news(steps((1, 2, 0), group=5)),
        news(None, steps((2, 99, 3.0), group=5)),
        news(steps((1, 4, 0), group=5)),
        news(None, steps((1, 5, 0), group=5, group_reward=10.0)),
        news(steps((1, 6, 0), group=5)),
        news(steps((1, 7, 0), group=5)),
    ]


class Wild(Story):
    """Agents of three groups that come, decide, move and end at random; what they see is their number."""

    def __init__(self, seed: int) -> None:
        super().__init__([])
        self.random, self.there, self.born = np.random.default_rng(seed), dict[int, int](), 0
        self.ends = self.random.choice([0.002, 0.02, 0.2])
        self.decides = self.random.choice([0.05, 0.3, 1.0], 5)

    def receive(self, stopped: Any = None) -> News:
        self.waits, draw, ends, decisions = True, self.random.random, list[Steps](), list[Steps]()
        for agent in list(self.there):
            if draw() < self.ends:
                cut_off, group = draw() < 0.5, self.there.pop(agent)
                ends.append(steps((agent, agent, 1.0), group=group, truncated=cut_off, group_reward=1.0))
            elif draw() < self.decides[agent % 5]:
                self.there[agent] = self.there[agent] if draw() < 0.99 else int(self.random.integers(3))
                decisions.append(steps((agent, agent, 1.0), group=self.there[agent], group_reward=1.0))
        while len(self.there) < 9:
            self.born += 1
            self.there[self.born] = int(self.random.integers(3))
            decisions.append(steps((self.born, self.born, 0.0), group=self.there[self.born]))
        return news(together(*decisions) if decisions else None, together(*ends) if ends else None)
