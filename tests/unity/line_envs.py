"""Environments with the interface of `mlagents_envs`' BaseEnv, and its classes as far as they are needed, as a user
would have them: nothing here knows palus.

The game is the one that ML-Agents tests its trainers with. An agent stands at 0 on a line, or on several, one for each
part of its action, and moves on each by at most a stride. At the end of all lines it is paid for every end that was the
goal, +1 or -1, and loses as much for every other. It sees the goal. Solved, an episode pays 1; at random, less than 0.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

STEP = 0.2
TIME_PENALTY = 0.01
SHOWN = 2
"""Decisions for which an environment with `memory` shows the goal."""
SUCCESS = 1.0 + TIME_PENALTY / STEP
SHAPES: dict[str, tuple[int, ...]] = {
    "vector": (1,),
    "picture": (3, 20, 20),
    "large": (3, 36, 36),
    "board": (5, 6, 6),
    "entities": (6, 3),
}
FLAGS: dict[str, tuple[int, ...]] = {
    "vector": (1,),
    "picture": (1, 2, 2),
    "large": (1, 2, 2),
    "board": (1, 2, 2),
    "entities": (4, 1),
}
"""`DimensionProperty`: 1 none, 2 translational equivariance, 4 variable size."""


class ActionTuple:
    def __init__(self, continuous: Any = None, discrete: Any = None) -> None:
        self.continuous, self.discrete = continuous, discrete

    def add_continuous(self, continuous: Any) -> None:
        assert continuous.dtype == np.float32
        self.continuous = continuous

    def add_discrete(self, discrete: Any) -> None:
        assert discrete.dtype == np.int32
        self.discrete = discrete


class ActionSpec(NamedTuple):
    continuous_size: int
    discrete_branches: tuple[int, ...]

    def empty_action(self, n: int) -> ActionTuple:
        return ActionTuple(
            np.zeros((n, self.continuous_size), np.float32), np.zeros((n, len(self.discrete_branches)), np.int32)
        )


class ObservationType(Enum):
    DEFAULT = 0
    GOAL_SIGNAL = 1


class ObservationSpec(NamedTuple):
    shape: tuple[int, ...]
    dimension_property: tuple[int, ...]
    observation_type: ObservationType
    name: str


class BehaviorSpec(NamedTuple):
    observation_specs: list[ObservationSpec]
    action_spec: ActionSpec


@dataclass
class DecisionSteps:
    obs: list[Any]
    reward: Any
    agent_id: Any
    action_mask: list[Any] | None
    group_id: Any
    group_reward: Any

    def __len__(self) -> int:
        return len(self.agent_id)


@dataclass
class TerminalSteps:
    obs: list[Any]
    reward: Any
    interrupted: Any
    agent_id: Any
    group_id: Any
    group_reward: Any

    def __len__(self) -> int:
        return len(self.agent_id)


@dataclass
class Agent:
    """One that plays. reward: since its latest word."""

    id: int
    positions: list[float]
    reward: float = 0.0
    group_reward: float = 0.0
    age: int = 0

    @property
    def arrived(self) -> bool:
        return all(abs(position) > 0.999 for position in self.positions)


@dataclass
class Team:
    """Those that share a goal. group: its id, 0 for one that plays by itself. here: who has not arrived."""

    group: int
    goal: int
    members: list[Agent]
    here: list[Agent]
    earned: float = 0.0


@dataclass
class Line:
    """observations: forms of `SHAPES`, which all show the goal. goals: places of those that are goal signals, if any:
    then the others show 1, and nothing can be seen in them.

    teams: that play side by side. size: of a team. With more than one, members leave one by one, each when it arrives,
    and what they earned is paid to the group when the last one does. memory: the goal is shown at first only.
    behaviors: each plays the same. late: steps after which the last of them appears. masked: branches have three
    choices, of which one, that leads nowhere, is allowed only to those whose goal is -1. stride: of one decision; with
    short ones, who goes the wrong way by one part of its action and the right way by another hardly ever turns back.
    """

    observations: Sequence[str] = ("vector",)
    continuous: int = 1
    discrete: int = 0
    teams: int = 16
    size: int = 1
    memory: bool = False
    goals: Sequence[int] = ()
    behaviors: Sequence[str] = ("Line",)
    late: int = 0
    masked: bool = False
    stride: float = STEP
    seed: int = 0

    def __post_init__(self) -> None:
        self.random, self.time, self.lines = random.Random(self.seed), 0, self.continuous + self.discrete
        self.playing: dict[str, list[Team]] = {}
        self.said: dict[str, tuple[DecisionSteps, TerminalSteps]] = {}
        self.actions: dict[str, ActionTuple] = {}
        specs = [
            ObservationSpec(SHAPES[form], FLAGS[form], ObservationType(int(i in self.goals)), form)
            for i, form in enumerate(self.observations)
        ]
        self.spec = BehaviorSpec(specs, ActionSpec(self.continuous, (2 + self.masked,) * self.discrete))

    # -- the interface --------------------------------------------------------------------------------------------

    @property
    def behavior_specs(self) -> dict[str, BehaviorSpec]:
        return dict.fromkeys(self.behaviors[: len(self.behaviors) - (self.time < self.late)], self.spec)

    def reset(self) -> None:
        self.playing = {}
        self._begin()

    def step(self) -> None:
        self.time += 1
        for name, teams in self.playing.items():
            told = self.said[name][0]
            moves = iter(self._moves(self.actions.pop(name)) if len(told) else ())
            ended = [self._play(team, moves) for team in teams]
            terminal = [(team, agent) for team, gone in zip(teams, ended, strict=True) for agent in gone]
            last = TerminalSteps(**self._columns(terminal), interrupted=np.zeros(len(terminal), np.bool_))
            teams[:] = [t if t.here else self._fresh(t.group, [agent.id for agent in t.members]) for t in teams]
            self.said[name] = self._decisions(teams), last
        self._begin()

    def get_steps(self, name: str) -> tuple[DecisionSteps, TerminalSteps]:
        return self.said[name]

    def set_actions(self, name: str, action: ActionTuple) -> None:
        n = len(self.said[name][0])
        assert action.continuous.shape == (n, self.continuous) and action.discrete.shape == (n, self.discrete)
        self.actions[name] = action

    def close(self) -> None:
        self.playing = {}

    # -- the game -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Let those behaviors play that are there and do not."""
        for name in self.behavior_specs.keys() - self.playing.keys():
            first = 1000 * self.behaviors.index(name)
            self.playing[name] = [
                self._fresh(k + 1 if self.size > 1 else 0, range(first + k * self.size, first + (k + 1) * self.size))
                for k in range(self.teams)
            ]
            none = TerminalSteps(**self._columns([]), interrupted=np.zeros(0, np.bool_))
            self.said[name] = self._decisions(self.playing[name]), none

    def _fresh(self, group: int, ids: Iterable[int]) -> Team:
        members = [Agent(number, [0.0] * self.lines) for number in ids]
        return Team(group, self.random.choice([-1, 1]), members, list(members))

    def _moves(self, action: ActionTuple) -> Any:
        """[n, lines] in -1 to 1."""
        return np.concatenate([action.continuous, np.array([-1.0, 1.0, 0.0])[action.discrete]], axis=1)

    def _play(self, team: Team, moves: Iterator[Any]) -> list[Agent]:
        """Returns who arrives."""
        for agent in team.here:
            agent.age, agent.reward = agent.age + 1, -TIME_PENALTY
            for line, number in enumerate(next(moves).tolist()):
                agent.positions[line] += max(-self.stride, min(self.stride, number))
                agent.positions[line] = max(-1.0, min(1.0, agent.positions[line]))
        gone = [agent for agent in team.here if agent.arrived]
        team.here = [agent for agent in team.here if not agent.arrived]
        for agent in gone:
            reached = sum(position * team.goal for position in agent.positions) / self.lines
            team.earned += (1.0 + TIME_PENALTY / self.stride) * reached / self.size
        for agent in gone if not team.here else ():
            if self.size > 1:
                agent.group_reward = team.earned
            else:
                agent.reward += team.earned
        return gone

    def _sees(self, team: Team, agent: Agent) -> list[Any]:
        goal, seen = 0 if self.memory and agent.age > SHOWN else team.goal, []
        for i, form in enumerate(self.observations):
            values = np.full(SHAPES[form], goal if not self.goals or i in self.goals else 1, np.float32)
            if form == "entities":
                values[1 + (agent.id + agent.age) % len(values) :] = 0.0  # there are few at one time, many at another
            seen.append(values)
        return seen

    def _decisions(self, teams: list[Team]) -> DecisionSteps:
        told = [(team, agent) for team in teams for agent in team.here]
        masks = [np.zeros((len(told), 2), np.bool_) for _ in range(self.discrete)]
        if self.masked:
            own = [[False, False, team.goal > 0] for team, _ in told]
            masks = [np.array(own, np.bool_).reshape(len(told), 3)] * self.discrete
        return DecisionSteps(**self._columns(told), action_mask=masks or None)

    def _columns(self, told: list[tuple[Team, Agent]]) -> dict[str, Any]:
        seen = [self._sees(team, agent) for team, agent in told]
        return {
            "obs": [
                np.array([own[i] for own in seen], np.float32).reshape(len(told), *SHAPES[form])
                for i, form in enumerate(self.observations)
            ],
            "reward": np.array([agent.reward for _, agent in told], np.float32),
            "agent_id": np.array([agent.id for _, agent in told], np.int32),
            "group_id": np.array([team.group for team, _ in told], np.int32),
            "group_reward": np.array([agent.group_reward for _, agent in told], np.float32),
        }


class Raising(Line):
    """Its third step raises what an environment of nobody's expectation raises."""

    def step(self) -> None:
        super().step()
        if self.time == 3:
            raise KeyError("unexpected")


def solved(env: Line, decisions: int) -> Iterator[tuple[DecisionSteps, TerminalSteps, ActionTuple]]:
    """What an expert sees and does in the first behavior of an environment, for demonstrations."""
    name = env.behaviors[0]
    env.reset()
    for _ in range(decisions):
        goals = np.array([[team.goal] for team in env.playing[name] for _ in team.here], np.float32)
        way = np.repeat(goals > 0, env.discrete, axis=1).astype(np.int32)
        action = ActionTuple(np.repeat(goals, env.continuous, axis=1), way)
        yield (*env.get_steps(name), action)
        env.set_actions(name, action)
        env.step()
