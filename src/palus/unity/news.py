"""What a game says whose agents are born, end and ask for decisions when they please, whatever it runs in: an
executable at the other end of a socket, or an object in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from palus.config.environment import Value
from palus.errors import ProtocolError
from palus.files import is_file_name
from palus.types import F32, I64, ActionSpec, AgentSpec, AnyArray, BehaviorSpec, Bool, Continuous, Discrete, GameSpec
from palus.unity.side_channels import Statistic

MAX_ACTIONS = 1 << 16
"""Numbers and choices of an agent's actions together: the last layer of a network has a row for each."""
MAX_BEHAVIORS = 100
"""Behavior ids of a game: each is a player that learns, with networks of its own or of its behavior."""


def never() -> bool:
    """Nobody wants to stop."""
    return False


@dataclass(frozen=True)
class Steps:
    """What a message says of n agents of a behavior id: all decide now, or all ended.

    observations: name -> [n, *shape] float32; with masks among them, True where allowed, for decisions. reward,
    group_reward: [n] since the agent's last word. agent, group: [n] ids, group 0 for none. truncated: [n], of ends.
    """

    observations: Mapping[str, AnyArray]
    reward: F32
    group_reward: F32
    agent: I64
    group: I64
    truncated: Bool

    def __len__(self) -> int:
        return len(self.agent)

    def checked(self, name: str) -> Steps:
        """The same. name: the behavior id. Raises ProtocolError for numbers that are none, and for agents twice."""
        rewards = {"the reward": self.reward, "the group reward": self.group_reward}
        for what, values in (*self.observations.items(), *rewards.items()):
            if not np.isfinite(values).all():
                raise ProtocolError(f"{what} of {name} is NaN or infinite; a game must give finite numbers")
        if len(np.unique(self.agent)) < len(self):
            raise ProtocolError(f"agents {sorted(self.agent.tolist())} of {name}: one is told of twice")
        return self


@dataclass(frozen=True)
class News:
    """One message of a game. Ends come before decisions: an id in both has begun its next episode.

    ends, decisions: by behavior id, those that have any. statistics: what the game tells of itself. strange: side
    channels that nobody here listens to, by their ids.
    """

    ends: Mapping[str, Steps]
    decisions: Mapping[str, Steps]
    statistics: tuple[Statistic, ...] = ()
    strange: tuple[str, ...] = ()


def enter(behaviors: dict[str, BehaviorSpec], name: str, spec: BehaviorSpec) -> None:
    """A behavior id speaks for the first time. Raises ProtocolError where another of its behavior disagrees,
    and for one too many."""
    if len(behaviors) >= MAX_BEHAVIORS:
        raise ProtocolError(
            f"{name!r} is behavior id number {len(behaviors) + 1}; expected {MAX_BEHAVIORS} at most, so give agents "
            "that learn together one Behavior Name, and teams few numbers"
        )
    for other, known in behaviors.items():
        if behavior_of(other)[0] == spec.name and known != spec:
            raise ProtocolError(f"behavior ids {other} and {name} see or do different things; expected the same")
    behaviors[name] = spec


def behavior_of(behavior_id: str) -> tuple[str, int]:
    """Behavior and team: `Name?team=1` is team 1 of Name, a plain name team 0."""
    name, _, query = behavior_id.partition("?")
    team = dict(part.partition("=")[::2] for part in query.split("&")).get("team", "0")
    if not is_file_name(name) or not team.isdecimal():
        raise ProtocolError(
            f"behavior id {behavior_id!r}; expected NAME?team=NUMBER, the name that of a file: without / and without a "
            "dot in front"
        )
    return name, int(team)


def game_of(env_id: str, behaviors: Mapping[str, BehaviorSpec]) -> GameSpec:
    """A game of these behavior ids, in their order: for each of them an agent that stands for all of it."""
    agents = []
    for name in behaviors:
        behavior, team = behavior_of(name)
        agents.append(AgentSpec(name, team, team, behavior))
    return GameSpec(env_id, tuple({spec.name: spec for spec in behaviors.values()}.values()), tuple(agents))


def joined(known: GameSpec, found: GameSpec) -> GameSpec:
    """What is known of a game, and behind it what was found besides; where both tell of a behavior, as it was found."""
    specs = {spec.name: spec for spec in (*known.behaviors, *found.behaviors)}
    agents = {agent.name: agent for agent in (*known.agents, *found.agents)}
    return replace(known, behaviors=tuple(specs.values()), agents=tuple(agents.values()))


def actions_of(continuous: int, branches: Sequence[int]) -> ActionSpec:
    """ML-Agents' action spec: so many numbers in +-1, and a choice for each branch. ValueError where there is none."""
    if (asked := continuous + sum(branches)) > MAX_ACTIONS:
        raise ValueError(f"actions of {asked:,} numbers and choices; expected {MAX_ACTIONS:,} at most")
    parts = ([Continuous(continuous, -1.0, 1.0)] if continuous else []) + [Discrete(size) for size in branches]
    return ActionSpec(tuple(parts), masked=bool(branches))


class TalkingGame(Protocol):
    """One game that is talked to in turns: it says its `News`, and is answered by `send` or `reset`.

    waits: whether it waits for an answer. Everything raises LostGameError where another one may take its place, and
    ProtocolError for what no game may say.
    """

    waits: bool

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        """Behavior id -> what its agents see and do, of those that have spoken so far; ids of one behavior agree."""

    def reset(self, parameters: Mapping[str, Value], seed: int) -> None:
        """Let all episodes begin anew. parameters: name -> number or sampler; seed: of samplers without one."""

    def send(self, actions: Mapping[str, F32], parameters: Mapping[str, Value] | None = None, seed: int = 0) -> None:
        """Answer the latest news. actions: behavior id -> [n, A] in the order of its decisions."""

    def receive(self, stopped: Callable[[], bool] = never) -> News:
        """What it says after `send` or `reset`. stopped: asked while it is silent. Raises StoppedEarly when that is
        so."""

    def close(self) -> bool:
        """End it; whether it ended by itself in time. Calling it twice does no harm."""

    def kill(self) -> None:
        """End it at once."""
