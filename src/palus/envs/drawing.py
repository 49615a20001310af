"""Environment parameters that are drawn at random: one value for each match, as it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from palus.types import F64, I64

if TYPE_CHECKING:  # workers start without the schema of run files
    from palus.config.environment import Value


def draw(value: Value, *key: int) -> float:
    """The value of a parameter. key: beside its seed, all that a draw depends on."""
    if isinstance(value, int | float):
        return float(value)
    if value.sampler_type == "constant":
        return value.sampler_parameters.value
    generator = np.random.default_rng((value.sampler_parameters.seed % 2**63, *key))
    if value.sampler_type == "uniform":
        return float(generator.uniform(value.sampler_parameters.min_value, value.sampler_parameters.max_value))
    if value.sampler_type == "multirangeuniform":
        bounds = np.array(value.sampler_parameters.intervals)
        lengths = bounds[:, 1] - bounds[:, 0]
        total = lengths.sum()
        low, high = generator.choice(bounds, p=lengths / total if total > 0 else None)
        return float(generator.uniform(low, high))
    return float(generator.normal(value.sampler_parameters.mean, value.sampler_parameters.st_dev))


def is_random(value: Value) -> bool:
    """Whether two matches may have different numbers."""
    return not isinstance(value, int | float) and value.sampler_type != "constant"


class Adjustable(Protocol):
    """N matches whose numbers can be changed, for all by one number or for each by its own, [N]."""

    num_matches: int

    def set_parameters(self, parameters: Mapping[str, float | F64]) -> None: ...


class MatchParameters:
    """The parameters of N matches. Constants change at once; what is drawn stays as it is until a match ends."""

    def __init__(self, env: Adjustable, first: int = 0) -> None:
        """first: the number of the first match in its run."""
        self._env = env
        self._settings: Mapping[str, Value] = {}
        self._keys: Sequence[tuple[int, ...]] = [(first + n,) for n in range(env.num_matches)]
        self._values: dict[str, F64] = {}
        self._begun: I64 = np.zeros(env.num_matches, np.int64)

    def change(self, settings: Mapping[str, Value]) -> None:
        """Other values, or other ways to draw them. Raises EnvError for names that the game does not have."""
        self._settings, N = settings, self._env.num_matches
        numbers: dict[str, float | F64] = {}
        for name, value in settings.items():
            if not is_random(value):
                numbers[name] = draw(value)
                self._values[name] = np.full(N, numbers[name])
            elif name not in self._values:
                self._values[name] = np.array([draw(value, *self._key(n)) for n in range(N)])
                numbers[name] = self._values[name]
        if numbers:
            self._env.set_parameters(numbers)

    def restart(self, keys: Sequence[tuple[int, ...]]) -> None:
        """All matches begin anew. keys: of their draws, [N]."""
        self._keys, self._begun[:] = keys, 0
        self.begin(range(self._env.num_matches))

    def begin(self, matches: Sequence[int]) -> None:
        """Draw for matches that begin. A batched game has begun them already: it plays with these from now on."""
        random = {name: value for name, value in self._settings.items() if is_random(value)}
        self._begun[matches] += 1
        for name, value in random.items():
            self._values[name][matches] = [draw(value, *self._key(n)) for n in matches]
        if random:
            self._env.set_parameters({name: self._values[name] for name in random})

    def _key(self, n: int) -> tuple[int, ...]:
        return (*self._keys[n], int(self._begun[n]))

    def state_dict(self) -> dict[str, Any]:
        """What was drawn; nothing where nothing was ever set."""
        return {"begun": self._begun.copy(), "values": {name: array.copy() for name, array in self._values.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken; the settings are told by `change`. Raises ValueError for other than N
        matches."""
        saved, N = len(state["begun"]), self._env.num_matches
        if saved != N:
            raise ValueError(f"it holds {saved} matches side by side, and the run file asks for {N}")
        self._begun[:] = state["begun"]
        self._values = {name: np.asarray(array, np.float64) for name, array in state["values"].items()}
        if self._values:
            self._env.set_parameters(dict(self._values))
