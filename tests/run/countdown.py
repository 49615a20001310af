"""A game of seconds for tests of what surrounds training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from palus.envs.game import GameStep
from palus.envs.toy import DuelToy
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec


class Countdown:
    """Two agents count down from numbers that the seed gives; the reward is the action, the objective the number."""

    def __init__(self) -> None:
        self.spec = GameSpec.alike(
            "countdown", (ObservationSpec("left", (1,)),), ActionSpec((Discrete(9),)), num_agents=2, frameskip=4
        )
        self.active = np.ones(2, np.bool_)
        self.closed = False
        self.drawn = 0

    def reset(self, seed: int) -> None:
        self.start = np.random.default_rng(seed).integers(1, 30, 2)
        self.left = self.start.copy()
        self.active[:] = True

    def observe(self, out: Mapping[str, Any]) -> None:
        out["left"][self.active, 0] = self.left[self.active]

    def observe_final(self, out: Mapping[str, Any]) -> None:
        self.observe(out)

    def step(self, actions: Any) -> GameStep:
        self.left -= self.active
        ended = self.active & (self.left == 0)
        reward = np.where(self.active, actions[:, 0], 0).astype(np.float32)
        self.active &= ~ended
        stats = {int(i): {"true_objective": float(self.start[i])} for i in np.flatnonzero(ended)}
        return GameStep(reward, ended, np.zeros(2, np.bool_), not self.active.any(), stats)

    def render(self) -> Any:
        self.drawn += 1
        return np.full((8, 8, 3), self.drawn % 256, np.uint8)

    def close(self) -> None:
        self.closed = True


class Blushing(Countdown):
    """The number to count down from grows with every picture: whoever films changes the game, as Doom's face does."""

    recorder: Any = None

    def step(self, actions: Any) -> GameStep:
        for _ in range(self.spec.frameskip):
            if self.recorder is not None:
                self.recorder(self.render())
                self.start += 1
        return super().step(actions)


class Filmed(Countdown):
    """The same with a recorder: every engine frame's picture, as Doom gives them."""

    recorder: Any = None

    def step(self, actions: Any) -> GameStep:
        for _ in range(self.spec.frameskip):
            if self.recorder is not None:
                self.recorder(self.render())
        return super().step(actions)


class Unskipped(Countdown):
    """A decision in every frame."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = replace(self.spec, frameskip=1)


def of_two_kinds(spec: GameSpec) -> GameSpec:
    """The game of two agents with a behavior for each."""
    (only,), (left, right) = spec.behaviors, spec.agents
    agents = (replace(left, behavior="Left"), replace(right, behavior="Right"))
    return replace(spec, behaviors=(replace(only, name="Left"), replace(only, name="Right")), agents=agents)


class CountdownOfTwo(Countdown):
    """One game at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = of_two_kinds(self.spec)


class DuelOfTwo(DuelToy):
    """Many matches in one call."""

    def __init__(self, num_matches: int) -> None:
        super().__init__(num_matches)
        self.spec = of_two_kinds(self.spec)


class CountdownOfThree(Countdown):
    """The same for a group of two and a group of one."""

    def __init__(self) -> None:
        super().__init__()
        (behavior,) = self.spec.behaviors
        self.spec = GameSpec.alike("three", behavior.observations, behavior.actions, 3, (0, 0, 1))


class OneLevel:
    """Episodes of four decisions, paid at level 0 only."""

    def __init__(self) -> None:
        seen, actions = (ObservationSpec("left", (1,)),), ActionSpec((Discrete(2),))
        self.spec = GameSpec.alike("one-level", seen, actions, num_agents=1)
        self.active, self.level = np.ones(1, np.bool_), 0

    def set_parameters(self, parameters: Mapping[str, Any]) -> None:
        self.level = parameters["level"]

    def reset(self, seed: int) -> None:
        self.left = 4

    def observe(self, out: Mapping[str, Any]) -> None:
        out["left"][:] = self.left

    def observe_final(self, out: Mapping[str, Any]) -> None:
        self.observe(out)

    def step(self, actions: Any) -> GameStep:
        self.left -= 1
        ended = np.array([self.left == 0])
        return GameStep((ended & (self.level == 0)).astype(np.float32), ended, np.zeros(1, np.bool_), bool(ended))

    def close(self) -> None: ...
