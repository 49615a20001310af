"""What games, policies and learners agree upon: arrays, what an agent sees and does, who plays in a match.

Leaf module: imports nothing of palus. Letters: N matches side by side, P agents of a match, A columns of an action,
L numbers that describe a distribution of actions, M choices that a mask speaks of.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Literal, SupportsIndex

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
AnyArray = NDArray[Any]

BASE_ENV = "palus.unity.base_env:make"
"""`palus.env` of an environment in this process that was written for ML-Agents' Python interface."""
DEFAULT_GAME = "SoccerTwos"
"""The game that is meant where none is named."""
MASKS = "action_masks"
"""Beside the observations of a behavior with masks: [rows, M] bool, True where a choice is allowed now."""
RAY_TAGS, RAY_DISTANCES = " tags", " distances"
"""Behind the name of an observation of n rays, [rows, n k] float32, in its compact form: [rows, n] uint8, 1 + the place
of a one among the ray's k numbers, 0 where all of them are 0; and [rows, n] float32, the last of the k."""

FROZEN = 1 << 16
"""Policy ids: 0, 1, ... are learning policies; FROZEN + n is the league's snapshot n, which never learns."""
MEMBERS = 1 << 24
"""MEMBERS + n, a frozen id too, is the league's member n: a scripted player, or a file that came with the run."""


def _make_plain(spec: object, **values: object) -> None:
    """Python's own numbers in the place of another library's, or of `1` for `1.0`: files are written of them."""
    for name, value in values.items():
        object.__setattr__(spec, name, value)


def _whole(what: str, number: SupportsIndex) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise ValueError(f"{what} is {number!r}; expected a whole number") from None


@dataclass(frozen=True)
class ObservationSpec:
    """One named observation of an agent.

    shape: (size,) a vector; (entities, size) a list of up to so many vectors, absent ones all zero; (channels, height,
    width) an image, uint8 until the network reads it. normalize: whether a network that normalises may. goal: it says
    what is to be done, not how things are (`network_settings.goal_conditioning_type`). sparse: two thirds of a vector
    and more are zeros, as with rays and one-hot numbers; rays: as how many rays it may be written in compact form
    (`RAY_TAGS`), where it is nothing else. Networks are faster then, and policies fit either way.
    Raises ValueError on a shape or a type that no encoder takes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Literal["uint8", "float32"] = "float32"
    normalize: bool = True
    goal: bool = False
    sparse: bool = field(default=False, compare=False)
    rays: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        _make_plain(self, shape=tuple(_whole(f"observation {self.name}: a size", n) for n in self.shape))
        if len(self.shape) not in (1, 2, 3) or min(self.shape, default=0) < 1:
            raise ValueError(
                f"observation {self.name}: shape {self.shape}; expected (size,) or (channels, height, width), or "
                "(entities, size)"
            )
        if self.dtype not in ("uint8", "float32"):
            raise ValueError(f"observation {self.name}: type {self.dtype}; expected uint8 or float32")
        if self.rays and (self.rays < 0 or not self.is_vector or self.size % self.rays or self.size < 2 * self.rays):
            raise ValueError(
                f"observation {self.name}: {self.rays} rays in shape {self.shape}; expected (size,), as many numbers "
                "of each ray, 2 or more"
            )

    @property
    def size(self) -> int:
        """Numbers in one observation."""
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        """Whether it goes through a convolutional encoder."""
        return len(self.shape) == 3

    @property
    def is_vector(self) -> bool:
        """Whether it is a plain row of numbers."""
        return len(self.shape) == 1


@dataclass(frozen=True)
class Discrete:
    """One choice out of `choices` (ML-Agents' branch); one column of actions (the index), `choices` logits.

    low, high: when given, index k means the number low + k (high - low) / (choices - 1); the game does the mapping.
    """

    choices: int
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        _make_plain(self, choices=_whole("a discrete action's choices", self.choices))
        _make_plain(self, **{end: float(v) for end in ("low", "high") if (v := getattr(self, end)) is not None})
        if self.choices < 1:
            raise ValueError(f"discrete action with {self.choices} choices; expected 1 or more")
        if (self.low is None) != (self.high is None) or (self.low is not None and self.choices < 2):
            raise ValueError("a discretised action needs low, high and at least 2 choices")

    @property
    def columns(self) -> int:
        """Columns of an action array."""
        return 1

    @property
    def parameters(self) -> int:
        """Numbers that describe its distribution: one logit per choice."""
        return self.choices

    def value(self, index: int) -> float:
        """The number that an index means: itself, unless low and high are given."""
        if self.low is None or self.high is None:
            return float(index)
        return self.low + index * (self.high - self.low) / (self.choices - 1)


@dataclass(frozen=True)
class Continuous:
    """`size` real numbers, a diagonal Gaussian: `size` means, then `size` logarithms of standard deviations.

    low, high: what the game accepts; samples are clipped to it on their way into the game, not in the stored action.
    """

    size: int
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        _make_plain(self, size=_whole("a continuous action's size", self.size))
        _make_plain(self, low=float(self.low), high=float(self.high))
        if self.size < 1 or not self.low < self.high:
            raise ValueError(f"continuous action of size {self.size} in [{self.low}, {self.high}]; expected a box")

    @property
    def columns(self) -> int:
        """Columns of an action array."""
        return self.size

    @property
    def parameters(self) -> int:
        """Numbers that describe its distribution."""
        return 2 * self.size

    @property
    def is_finite(self) -> bool:
        """Whether it has both ends."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def squashed(self) -> tuple[float, float]:
        """Middle and half width of the range that numbers in +-1 are stretched to; 0 and 1 where it is not finite."""
        if not self.is_finite:
            return 0.0, 1.0
        return (self.low + self.high) / 2, (self.high - self.low) / 2


ActionPart = Discrete | Continuous


@dataclass(frozen=True)
class ActionSpec:
    """Independent parts, side by side: log-probabilities, entropies and KLs are sums over them.

    Actions are float32 [..., A] arrays: a discrete part's column holds its index. masked: the game says before every
    decision which choices of the discrete parts are allowed.
    """

    parts: tuple[ActionPart, ...]
    masked: bool = False

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("an action needs at least one part")
        if self.masked and not self.branches:
            raise ValueError("masks forbid choices of discrete parts, and there is none")

    @property
    def columns(self) -> int:
        """A."""
        return sum(part.columns for part in self.parts)

    @property
    def parameters(self) -> int:
        """L: the width of the network's action output."""
        return sum(part.parameters for part in self.parts)

    @property
    def is_discrete(self) -> bool:
        """Whether every part is discrete: then the network's output is logits alone."""
        return all(isinstance(part, Discrete) for part in self.parts)

    @property
    def branches(self) -> tuple[int, ...]:
        """Choices of each discrete part; M is their sum."""
        return tuple(part.choices for part in self.parts if isinstance(part, Discrete))

    @property
    def column_slices(self) -> tuple[slice, ...]:
        """The columns of each part in an action array."""
        return _slices([part.columns for part in self.parts])

    @property
    def parameter_slices(self) -> tuple[slice, ...]:
        """The columns of each part in an array of distribution parameters."""
        return _slices([part.parameters for part in self.parts])


def _slices(sizes: list[int]) -> tuple[slice, ...]:
    return tuple(slice(a, b) for a, b in pairwise(accumulate(sizes, initial=0)))


@dataclass(frozen=True)
class Reflection:
    """The mirror image of what one kind of agent sees and does, where a game plays on in it by the same rules.

    observations: number k of all vectors, joined in their order, is number observations[k] of their mirror image;
    logits: likewise, of all choices. Mirrored twice, everything is as it was. Raises ValueError where it is not.
    """

    observations: tuple[int, ...]
    logits: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("observations", "logits"):
            places = getattr(self, name)
            if any(not 0 <= k < len(places) or places[k] != i for i, k in enumerate(places)):
                raise ValueError(f"reflection of {name} {places}: expected places in pairs, each the other's image")


@dataclass(frozen=True)
class BehaviorSpec:
    """What one kind of agent sees and does. name: "" where the game has one kind only, and any name fits it.

    reflection: its mirror image, where there is one; not a part of what policies have to fit.
    """

    name: str
    observations: tuple[ObservationSpec, ...]
    actions: ActionSpec
    reflection: Reflection | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of_vectors(cls, name: str, sizes: tuple[int, ...], branches: tuple[int, ...]) -> BehaviorSpec:
        """Vectors `obs_0`, `obs_1`, ... of these sizes, ML-Agents' names, and discrete branches of these choices."""
        observations = tuple(ObservationSpec(f"obs_{i}", (size,)) for i, size in enumerate(sizes))
        return cls(name, observations, ActionSpec(tuple(Discrete(choices) for choices in branches)))

    @property
    def observation_sizes(self) -> tuple[int, ...]:
        """Numbers of each observation."""
        return tuple(observation.size for observation in self.observations)

    @property
    def observation_size(self) -> int:
        """Numbers of all observations of one agent."""
        return sum(self.observation_sizes)

    @property
    def branches(self) -> tuple[int, ...]:
        """Choices of each discrete part of its actions."""
        return self.actions.branches

    @property
    def branch_offsets(self) -> I64:
        """First logit of each branch, and the end: branches (3, 3, 3) -> [0, 3, 6, 9]."""
        return np.concatenate([[0], np.cumsum(self.branches)]).astype(np.int64)


@dataclass(frozen=True)
class AgentSpec:
    """One agent slot of a match: which side it is on, whose result it shares, which behavior drives it."""

    name: str
    team: int
    group: int
    behavior: str


@dataclass(frozen=True)
class GameSpec:
    """The constant facts of a game, however it is stepped.

    agents: the P agent slots of a match, in the order of every `[N, P]` array; they may be born late and leave early.
    max_decisions: decisions after which a match is truncated; 0 means never, or that the game does not say.
    frameskip: engine frames of one decision. fps: frames per second of game time.
    shaping: numbers of the reward that may be tuned, with their defaults. A `palus.envs.game.Game` that has any has an
    attribute of that name: [P, numbers] float64, for each agent its own, one array for the game's life, written by
    whoever tunes and obeyed from the next step on.
    """

    env_id: str
    behaviors: tuple[BehaviorSpec, ...]
    agents: tuple[AgentSpec, ...]
    max_decisions: int = 0
    frameskip: int = 1
    fps: float = 30.0
    shaping: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for behavior in self.behaviors:
            names = [o.name for o in behavior.observations]
            if not names or len(set(names)) < len(names):
                raise ValueError(f"{self.env_id}: observations {names}; expected at least one, each name once")
        if not self.agents or self.frameskip < 1:
            raise ValueError(f"{self.env_id}: {len(self.agents)} agents, frameskip {self.frameskip}; expected >= 1")

    @classmethod
    def alike(
        cls,
        env_id: str,
        observations: tuple[ObservationSpec, ...],
        actions: ActionSpec,
        num_agents: int = 1,
        teams: tuple[int, ...] = (),
        **facts: Any,
    ) -> GameSpec:
        """A game whose agents all see and do the same. teams: the side of each agent, () for each its own.

        A side is a group. facts: the other fields.
        """
        if teams and len(teams) != num_agents:
            raise ValueError(f"{env_id}: {len(teams)} teams for {num_agents} agents; expected one each")
        agents = tuple(AgentSpec(f"agent {i}", t, t, "") for i, t in enumerate(teams or range(num_agents)))
        return cls(env_id, (BehaviorSpec("", observations, actions),), agents, **facts)

    @property
    def num_agents(self) -> int:
        """P."""
        return len(self.agents)

    @cached_property
    def teams(self) -> tuple[int, ...]:
        """The side of each agent."""
        return tuple(agent.team for agent in self.agents)

    @cached_property
    def sides(self) -> tuple[int, ...]:
        """All teams, ascending: the order of every match's points."""
        return tuple(sorted(set(self.teams)))

    def behavior(self, name: str) -> BehaviorSpec:
        """The behavior of that name, or the one without a name; KeyError when the game has none."""
        known = {b.name: b for b in self.behaviors}
        return known[""] if "" in known else known[name]

    def agents_of(self, behavior: str) -> tuple[int, ...]:
        """Indices into `agents` of the slots that a behavior drives, ascending: the P_b of its arrays."""
        return tuple(i for i, a in enumerate(self.agents) if a.behavior == behavior)


@dataclass(frozen=True)
class Step:
    """What one decision step of N matches brought. Arrays belong to the environment and live until its next step.

    reward:       [N, P] float32, the agent's own.
    group_reward: [N, P] float32, its group's (the same number for every member still in the match).
    terminated:   [N, P] bool, the agent's episode ended by the rules: do not bootstrap.
    truncated:    [N, P] bool, it was cut off by the time limit: bootstrap from the final observation.
    match_over:   [N] bool, the whole match ended; the environment has already started the next one in that slot.
    points:       [N, sides] float32, the game's verdict where a match is over, in the order of `GameSpec.sides`: 1 won,
                  0 lost, 0.5 level, the mean over the others where there are more; NaN for a match without a verdict.
    stats:        slot -> agent -> name -> number, of episodes that ended; `true_objective`, where present, is what
                  reports show in place of the sum of rewards.

    An agent that leaves early is terminated alone; its slot is inactive (`MultiAgentEnv.active`) until the match ends.
    """

    reward: F32
    group_reward: F32
    terminated: Bool
    truncated: Bool
    match_over: Bool
    points: F32
    stats: Mapping[int, Mapping[int, Mapping[str, float]]] = field(default_factory=dict)
