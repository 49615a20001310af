"""What an agent of a sampled game sees and does: images and vectors by name, discrete and continuous action parts.

Leaf module, like `palus.types`, which describes the built-in games: vectors only, discrete branches only. Letters: P
agents of a game, A action parts' columns, L numbers that describe an action distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class ObservationSpec:
    """One named observation. shape: () is not allowed; images are (channels, height, width).

    Images stay uint8 until the network reads them. Raises ValueError on a shape or a type that no encoder takes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Literal["uint8", "float32"] = "float32"

    def __post_init__(self) -> None:
        if len(self.shape) not in (1, 3) or min(self.shape, default=0) < 1:
            raise ValueError(
                f"observation {self.name}: shape {self.shape}; expected (size,) or (channels, height, width)"
            )
        if self.dtype not in ("uint8", "float32"):
            raise ValueError(f"observation {self.name}: type {self.dtype}; expected uint8 or float32")

    @property
    def size(self) -> int:
        """Numbers in one observation."""
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        """Whether it goes through a convolutional encoder."""
        return len(self.shape) == 3


@dataclass(frozen=True)
class Discrete:
    """One choice out of `choices`; one column of actions (the index), `choices` logits.

    low, high: when given, index k means the number low + k (high - low) / (choices - 1); the game does the mapping.
    """

    choices: int
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
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


ActionPart = Discrete | Continuous


@dataclass(frozen=True)
class ActionSpec:
    """Independent parts, side by side: log-probabilities, entropies and KLs are sums over them.

    Actions are float32 [..., A] arrays: a discrete part's column holds its index.
    """

    parts: tuple[ActionPart, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("an action needs at least one part")

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
    def column_slices(self) -> tuple[slice, ...]:
        """The columns of each part in an action array."""
        return _slices([part.columns for part in self.parts])

    @property
    def parameter_slices(self) -> tuple[slice, ...]:
        """The columns of each part in an array of distribution parameters."""
        return _slices([part.parameters for part in self.parts])


def _slices(sizes: list[int]) -> tuple[slice, ...]:
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(slice(a, b) for a, b in pairwise(ends))


@dataclass(frozen=True)
class GameSpec:
    """The constant facts of a game whose instances run by themselves (`palus.envs.game.Game`).

    num_agents: P, all with the same observations and actions. teams: the side of each agent, () for each its own.
    frameskip: engine frames of one decision; steps that users see count frames. fps: frames per second of game time.
    shaping: numbers of the reward that may be tuned, with their defaults (`palus.envs.game.ShapedGame`).
    """

    env_id: str
    observations: tuple[ObservationSpec, ...]
    actions: ActionSpec
    num_agents: int = 1
    teams: tuple[int, ...] = ()
    frameskip: int = 1
    fps: float = 30.0
    shaping: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        names = [o.name for o in self.observations]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"{self.env_id}: observations {names}; expected at least one, each name once")
        if self.num_agents < 1 or self.frameskip < 1:
            raise ValueError(f"{self.env_id}: num_agents {self.num_agents}, frameskip {self.frameskip}; expected >= 1")
        if self.teams and len(self.teams) != self.num_agents:
            raise ValueError(f"{self.env_id}: {len(self.teams)} teams for {self.num_agents} agents; expected one each")
