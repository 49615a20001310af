"""How the referee draws actions: from probabilities and a counter, so that nothing else can change a match.

The random number of a choice is a pure function of (match seed, decision, agent, branch). It does not depend on how
many matches run side by side, on which side asks first, or on what happened before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from palus.types import F32, F64, I32, I64, AnyArray, Bool

U64 = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SEED_BITS = np.uint64(2**53 - 1)


def pair_seeds(seed: int, pairs: int) -> I64:
    """Match seeds of `pairs` mirrored pairs: [pairs], in [0, 2^53) so that they survive JSON readers with doubles."""
    keys = np.arange(pairs, dtype=np.uint64)
    return (_hash(np.array([seed % 2**64], np.uint64), keys) & _SEED_BITS).astype(np.int64)


def uniforms(match_seeds: I64, decision: int, agents: I64, branches: int) -> F64:
    """Numbers in [0, 1): [rows, branches], one per (match seed, decision, agent, branch).

    match_seeds, agents: [rows]. decision: counted from the start of the match.
    """
    counter = np.uint64(decision) << np.uint64(16)
    agent_and_branch = 256 * agents[:, None] + np.arange(branches)
    keys = counter + agent_and_branch.astype(np.uint64)
    bits = _hash(match_seeds.astype(np.uint64)[:, None], keys)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw(probabilities: F32, uniform: F64, sizes: tuple[int, ...]) -> I32:
    """Sampled choice of each branch by inverting the cumulative distribution: [rows, branches].

    probabilities: [rows, sum(sizes)], each branch summing to about 1; the sum is divided out. uniform: [rows, branches]
    """
    choices = []
    first = 0
    for part in _branches(probabilities, sizes):
        cumulative = np.cumsum(part, axis=2, dtype=np.float64)
        thrown = uniform[:, first : first + part.shape[1], None] * cumulative[:, :, -1:]
        # Strictly: a choice of probability zero has an empty interval and is never drawn.
        choices.append((thrown >= cumulative[:, :, :-1]).sum(axis=2, dtype=np.int32))
        first += part.shape[1]
    return _joined(choices)


def best(probabilities: F32, sizes: tuple[int, ...]) -> I32:
    """Most probable choice of each branch, the lowest index on ties: [rows, branches]."""
    return _joined([part.argmax(axis=2).astype(np.int32) for part in _branches(probabilities, sizes)])


def could_draw(probabilities: F32, uniform: F64, sizes: tuple[int, ...], chosen: I32, slack: float) -> Bool:
    """Where `draw` gives the chosen branch indices for a number within `slack` of this one: [rows, branches].

    Processors round differently, so the same model answers slightly other probabilities elsewhere.
    """
    lowest = draw(probabilities, np.maximum(uniform - slack, 0.0), sizes)
    highest = draw(probabilities, np.minimum(uniform + slack, 1.0 - 2.0**-53), sizes)
    could: Bool = (lowest <= chosen) & (chosen <= highest)
    return could


def could_be_best(probabilities: F32, sizes: tuple[int, ...], chosen: I32, slack: float) -> Bool:
    """Where the chosen branch indices are within `slack` of the most probable: [rows, branches]."""
    parts, first = [], 0
    for part in _branches(probabilities, sizes):
        index = chosen[:, first : first + part.shape[1], None]
        parts.append(np.take_along_axis(part, index, axis=2)[..., 0] >= part.max(axis=2) - slack)
        first += part.shape[1]
    return _joined(parts)


def entropy(probabilities: F32) -> F64:
    """Sum over branches of the entropy in nats: [rows]. Not below 0, even where probabilities add up to more than 1."""
    p = np.maximum(probabilities.astype(np.float64), 0.0)
    terms = np.where(p > 0, -p * np.log(np.where(p > 0, p, 1.0)), 0.0)
    result: F64 = np.maximum(terms.sum(axis=1), 0.0)
    return result


def is_distribution(probabilities: F32, sizes: tuple[int, ...], masks: Bool | None = None) -> Bool:
    """Which rows are finite, not negative and sum to 1 within 1e-3 in every branch: [rows]. NaN compares false.

    masks: where given, what it forbids has no probability at all.
    """
    sums = _joined([part.sum(axis=2) for part in _branches(probabilities, sizes)])
    good: Bool = np.all(np.abs(sums - 1.0) < 1e-3, axis=1) & np.all(probabilities >= 0, axis=1)
    return good if masks is None else good & ~np.any(probabilities * ~masks, axis=1)


def _branches(probabilities: F32, sizes: tuple[int, ...]) -> list[F32]:
    """[rows, branches of one size, size]: one array where all sizes are equal, else one per branch.

    With the few rows of a single match every call of numpy counts.
    """
    if len(set(sizes)) == 1:
        return [probabilities.reshape(len(probabilities), len(sizes), sizes[0])]
    return [part[:, None] for part in np.split(probabilities, np.cumsum(sizes)[:-1], axis=1)]


def _joined(parts: list[AnyArray]) -> AnyArray:
    """Side by side again: [rows, branches]."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _hash(seed: U64, keys: U64) -> U64:
    """splitmix64's finaliser over seed and key, twice, so that neighbouring seeds and keys share nothing."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the point
        return _finalise(_finalise(seed + _GOLDEN) ^ (keys * _GOLDEN))


def _finalise(value: U64) -> U64:
    """Source: Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014."""
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))
