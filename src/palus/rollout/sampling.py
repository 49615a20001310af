"""Drawing actions from logits in one compiled pass, by counters: the key of a draw is (seed, tick, row, branch)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from palus.nn.counter import uniform
from palus.types import F32, I32, I64


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
