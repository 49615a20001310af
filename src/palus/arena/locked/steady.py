"""How far rounding moves a model's answers: whether it answers alike where what it sees moves by no more than that.

Processors add up in other orders, and a float32 network's answers differ by it. A network made to amplify that plays
differently on every machine: what it chose on one can be checked on no other. It is told by moving its inputs by a few
units in their last place; policies that people trained move by 1e-5 of a probability then. `benchmarks/rounding.py`
measures how far their answers differ in fact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from palus.arena.models.refusal import RefusedError
from palus.types import F32, AnyArray

SLACK = 1e-3
"""Of a probability: a model that rounding moves by more is refused."""
ROUNDING = 1e-5
"""Float32 networks agree across processors to this, or to `_MARGIN` times what rounding moves them by, if more."""
_MARGIN = 10
_ULPS = 4
_SEEDS = range(4)


def moved_by_rounding(
    answer: Callable[[Mapping[str, AnyArray], F32], F32], seen: Mapping[str, AnyArray], states: F32
) -> float:
    """By how much a probability moves at most.

    answer: observations and memory to [rows, ...].   seen, states: what it is asked.
    """
    before = answer(seen, states)
    most = 0.0
    for seed in _SEEDS:
        rng = np.random.default_rng(seed)
        moved = answer({name: rounded(rng, values) for name, values in seen.items()}, rounded(rng, states))
        most = max(most, float(np.abs(moved - before).max()))
    return most


def slack_of(moved: float) -> float:
    """How far from this machine's answer another's may be, of a model that rounding moves by so much here."""
    return min(max(ROUNDING, _MARGIN * moved), SLACK)


def unsteady() -> RefusedError:
    """What a model is refused with whose answers move."""
    return RefusedError(
        "unsteady",
        "Answers otherwise where its observations differ by rounding, so that other machines would play another model.",
        "Keep the numbers in it small: differences of nearly equal sums, multiplied by large weights, are rounding.",
    )


def rounded(rng: np.random.Generator, values: AnyArray) -> AnyArray:
    """Each number by up to four units in its last place, up or down; integers stay."""
    if values.dtype != np.float32:
        return values
    steps = rng.integers(-_ULPS, _ULPS + 1, values.shape)
    moved: F32 = (values * (1.0 + steps * float(np.finfo(np.float32).eps))).astype(np.float32)
    return moved
