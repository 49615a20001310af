"""Population-based training: the worst policies take over the best ones' weights, and their numbers mutate.

Source: Jaderberg et al. 2017 (arXiv 1711.09846) with Sample Factory 2.1.1's rules. What differs: the relative lead is
measured against the objective's size, so that negative objectives work too. In self-play the objective is the share of
the points against the whole league (`League.points`), as Jaderberg et al. 2019 (Human-level performance in 3D
multiplayer games) compare by the probability to win: what one of two equals is paid, the other pays. They replace who
would win less than 0.3 against the other; here the lead that it takes is the run file's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palus.config.population import Population
from palus.config.trainer import Behavior

MUTABLE = ("learning_rate", "beta", "value_coefficient", "max_grad_norm", "epsilon", "value_epsilon")
RESET_CHANCE = 0.01
"""How often a changing number returns to the run file's value instead."""
GAMMA_FACTORS = (1.01, 1.2)
"""Range of the factor of 1 - gamma."""
SHAPING = "shaping."
"""Stands before the names of `GameSpec.shaping` among a policy's numbers."""


def numbers_of(behavior: Behavior, optimize_gamma: bool, shaping: Sequence[tuple[str, float]] = ()) -> dict[str, float]:
    """The numbers that mutate, by name: a behavior's, and those of its game's reward."""
    hyper = behavior.hyperparameters
    numbers = {name: float(getattr(hyper, name)) for name in MUTABLE if hasattr(hyper, name)}
    gamma = {"gamma": behavior.extrinsic.gamma} if optimize_gamma else {}
    return numbers | gamma | {SHAPING + name: value for name, value in shaping}


def shaping_of(numbers: Mapping[str, float]) -> list[float]:
    """Those of the game's reward, in the order of `GameSpec.shaping`."""
    return [value for name, value in numbers.items() if name.startswith(SHAPING)]


def with_numbers(behavior: Behavior, numbers: Mapping[str, float]) -> Behavior:
    """The behavior with these numbers in place of its own."""
    own = {name: value for name, value in numbers.items() if name in MUTABLE}
    changes: dict[str, Any] = {"hyperparameters": behavior.hyperparameters.model_copy(update=own)}
    if "gamma" in numbers:
        extrinsic = behavior.extrinsic.model_copy(update={"gamma": numbers["gamma"]})
        changes["reward_signals"] = behavior.reward_signals.model_copy(update={"extrinsic": extrinsic})
    return behavior.model_copy(update=changes)


@dataclass(frozen=True)
class Turn:
    """What happens to a policy. donor: whose weights it takes over, None for nobody's; numbers: its new ones."""

    donor: int | None
    numbers: Mapping[str, float]


class PopulationLeague:
    """Keeps the numbers of each policy of one behavior, counted from 0, and decides, one policy's turn after the other.

    shaping: of the game."""

    def __init__(
        self,
        settings: Population,
        behavior: Behavior,
        seed: int,
        shaping: Sequence[tuple[str, float]] = (),
    ) -> None:
        self.settings = settings
        self.random = np.random.default_rng(seed)
        self.defaults = numbers_of(behavior, settings.optimize_gamma, shaping)
        self.numbers = [dict(self.defaults)]
        self.numbers += [self._mutated(self.defaults) for _ in range(settings.size - 1)]
        self.last = [0] * settings.size

    def is_due(self, policy: int, steps: int) -> bool:
        """Whether a policy that has made so many trainer steps has its turn."""
        return steps >= self.settings.start and steps - self.last[policy] >= self.settings.period

    def turn(self, policy: int, steps: int, objectives: Sequence[float | None]) -> Turn | None:
        """A policy's turn. objectives: of every policy, of late; a None, before there is one, postpones the turn."""
        known = [value for value in objectives if value is not None]
        if len(known) < len(objectives):
            return None
        self.last[policy] = steps
        order = sorted(range(len(known)), key=lambda k: known[k], reverse=True)
        count = math.ceil(self.settings.replace_fraction * len(known))
        best, worst = order[:count], order[len(order) - count :]
        if policy in best:
            return Turn(None, self.numbers[policy])
        donor = None
        if policy in worst:
            candidate = int(self.random.choice(best))
            lead = known[candidate] - known[policy]
            if lead > max(self.settings.replace_gap * abs(known[candidate]), self.settings.replace_gap_absolute):
                donor = candidate
        numbers = self.numbers[policy if donor is None else donor]
        # Policy 0 can be replaced but never mutates: one line of descent keeps numbers that were played.
        self.numbers[policy] = dict(numbers) if policy == 0 else self._mutated(numbers)
        return Turn(donor, self.numbers[policy])

    def _mutated(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Each number changed with the chance of `mutation_rate`: times or divided by a random factor."""
        settings, random, changed = self.settings, self.random, dict(numbers)
        for name, value in numbers.items():
            if random.random() >= settings.mutation_rate:
                continue
            if random.random() < RESET_CHANCE:
                changed[name] = self.defaults[name]
                continue
            low, high = GAMMA_FACTORS if name == "gamma" else (settings.perturb_min, settings.perturb_max)
            factor = random.uniform(low, high)
            factor = factor if random.random() < 0.5 else 1.0 / factor
            changed[name] = 1.0 - min((1.0 - value) * factor, 1.0) if name == "gamma" else value * factor
        return changed

    def state_dict(self) -> dict[str, Any]:
        """Numbers, clocks and the random state."""
        random = self.random.bit_generator.state
        return {"random": random, "numbers": [dict(n) for n in self.numbers], "last": list(self.last)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. ValueError when the population had another size."""
        if len(state["numbers"]) != self.settings.size:
            raise ValueError(f"population of {len(state['numbers'])} policies; the run file says {self.settings.size}")
        self.random.bit_generator.state = state["random"]
        self.numbers = [dict(n) for n in state["numbers"]]
        self.last = [int(steps) for steps in state["last"]]
