"""The clipped losses and their gradients in one pass over a minibatch.

On a CPU the thirty small tensor calls of such a loss cost as much as a layer; one compiled loop costs nothing. The
tests compare every gradient here with autograd's on the formulas as printed.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from palus.types import F32, I32, I64


@njit(cache=True, nogil=True)
def clipped_surrogate(
    logits: F32,
    actions: I32,
    old_log_probs: F32,
    advantages: F32,
    offsets: I64,
    epsilon: float,
    beta: float,
    gradient: F32,
) -> tuple[float, float, float, float]:
    """Policy loss of PPO with entropy bonus; writes its gradient with respect to the logits.

    logits: [R, sum of branches]; actions, old_log_probs: [R, A]; advantages: [R]; offsets: [A + 1] first logit of each
    branch; gradient: [R, sum of branches], overwritten with d(policy_loss - beta * entropy) / d logits.
    Returns policy_loss, entropy (nats, summed over branches), approximate KL, share of clipped ratios.

    rho = exp(log p(a) - old log p(a)), one ratio for each branch (as ML-Agents does, not their product);
    L = -mean over rows and branches of min(rho A, clip(rho, 1 - epsilon, 1 + epsilon) A).
    Source: Schulman et al. 2017, equation 7. The mean runs over rows and branches, so each branch weighs 1 / A.
    """
    R, A = actions.shape
    loss = entropy = kl = clipped = 0.0
    weight = 1.0 / (R * A)
    for r in range(R):
        adv = advantages[r]
        for a in range(A):
            low, high = offsets[a], offsets[a + 1]
            top = logits[r, low]
            for j in range(low + 1, high):
                top = max(top, logits[r, j])
            total = 0.0
            for j in range(low, high):
                total += math.exp(logits[r, j] - top)
            log_total = math.log(total) + top
            branch_entropy = 0.0
            for j in range(low, high):
                log_p = logits[r, j] - log_total
                branch_entropy -= math.exp(log_p) * log_p
            chosen = low + actions[r, a]
            log_ratio = logits[r, chosen] - log_total - old_log_probs[r, a]
            ratio = math.exp(log_ratio)
            surrogate = ratio * adv
            limited = min(max(ratio, 1.0 - epsilon), 1.0 + epsilon) * adv
            slope = 0.0  # d loss / d log p(a)
            if surrogate <= limited:
                loss -= surrogate
                slope = -surrogate * weight
            else:
                loss -= limited
            entropy += branch_entropy
            kl += ratio - 1.0 - log_ratio
            clipped += abs(ratio - 1.0) > epsilon
            for j in range(low, high):
                log_p = logits[r, j] - log_total
                p = math.exp(log_p)
                # d log p(a) / d z_j = [j = a] - p_j;   d H / d z_j = -p_j (log p_j + H)
                gradient[r, j] = -slope * p + beta / R * p * (log_p + branch_entropy)
            gradient[r, chosen] += slope
    return loss * weight, entropy / R, kl * weight, clipped * weight


def value_loss(values: F32, targets: F32, scale: float) -> tuple[float, F32]:
    """Mean of (R - V)^2, and `scale` times its gradient with respect to the values. values, targets: [R].

    Not clipped: PPO's clip range is a change of probabilities, and the same number in units of returns stops a critic
    whose returns are large (benchmarks/value_clipping.py).
    """
    error = values - targets
    return float(np.square(error, dtype=np.float64).mean()), error * np.float32(2.0 * scale / len(error))


def linear_schedule(initial: float, minimum: float, step: int, max_steps: int) -> float:
    """Linear decay from `initial` at step 0 to `minimum` at max_steps, constant after. Never grows.

    ML-Agents' epsilon schedule ends at 0.1 even when it starts lower; here a start below the minimum stays put.
    """
    if initial <= minimum:
        return initial
    return (initial - minimum) * (1.0 - min(step, max_steps) / max_steps) + minimum
