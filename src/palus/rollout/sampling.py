"""Drawing actions from logits in one compiled pass, with a counter-based generator.

Counter-based means: the draw for (seed, tick, row, branch) is a hash of these numbers. Nothing has to be stored to
resume a run, and no draw depends on how rows are batched.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint64

from palus.types import F32, I32, I64


@njit(cache=True, nogil=True, inline="always")
def uniform(seed: int, tick: int, row: int, branch: int) -> float:
    """A number in [0, 1). Source: SplitMix64's finaliser (Steele, Lea and Flood 2014), applied to a mixed key."""
    z = uint64(seed) * uint64(0x9E3779B97F4A7C15) + uint64(tick) * uint64(0xD1B54A32D192ED03)
    z ^= uint64(row) * uint64(0xABC98388FB8FAC03) + uint64(branch) * uint64(0x8CB92BA72F3D8DD7)
    for _ in range(2):
        z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
        z = z ^ (z >> uint64(31))
    return (z >> uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def sample(logits: F32, offsets: I64, seed: int, tick: int, actions: I32, log_probs: F32) -> F32:
    """Draw one choice for each row and branch; returns the entropy of each row [R], nats, summed over its branches.

    logits: [R, sum of branches]; offsets: [A + 1]; actions, log_probs: [R, A], overwritten.
    """
    R, A = actions.shape
    entropies = np.zeros(R, np.float32)
    for r in range(R):
        for a in range(A):
            low, high = offsets[a], offsets[a + 1]
            top = logits[r, low]
            for j in range(low + 1, high):
                top = max(top, logits[r, j])
            total = 0.0
            for j in range(low, high):
                total += math.exp(logits[r, j] - top)
            target = uniform(seed, tick, r, a) * total
            chosen, cumulated = high - 1, 0.0
            for j in range(low, high):
                cumulated += math.exp(logits[r, j] - top)
                if target < cumulated:
                    chosen = j
                    break
            log_total = math.log(total) + top
            for j in range(low, high):
                log_p = logits[r, j] - log_total
                entropies[r] -= math.exp(log_p) * log_p
            actions[r, a] = chosen - low
            log_probs[r, a] = np.float32(logits[r, chosen] - log_total)
    return entropies
