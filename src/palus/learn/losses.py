"""The clipped losses: each formula once as torch computes it, and PPO's once more as one compiled loop for the CPU.

On a CPU the thirty small tensor calls of PPO's loss cost as much as a layer; the loop costs nothing. The tests compare
its value and every gradient with those of the formula, which other devices take (`OnPolicy.objective`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from numba import njit
from torch import Tensor

from palus.nn.distributions import HALF_LOG_TAU, Distribution, table
from palus.nn.graph import LOG_STD_LIMIT
from palus.types import F32, I64, ActionSpec


def clipped_policy_loss(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """-mean min(ratio A, clip(ratio, low, high) A). Source: Schulman et al. 2017, equation 7."""
    return -_clipped_gain(ratio, advantages, low, high).mean()


def _clipped_gain(ratio: Tensor, advantages: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    return torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)  # type: ignore[arg-type]


def _mean(numbers: Tensor, shares: Tensor | None) -> Tensor:
    """The mean over rows, which count by their shares; None: alike. numbers: [R, ...]; shares: [R], their sum 1."""
    return numbers.mean() if shares is None else (shares * numbers.flatten(1).mean(1)).sum()


class Surrogate(NamedTuple):
    """PPO's policy loss and what goes with it: entropy (nats), approximate KL, share of clipped ratios."""

    loss: Tensor
    entropy: Tensor
    kl: Tensor
    clipped: Tensor


def surrogate_formula(
    parameters: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    spec: ActionSpec,
    epsilon: float | Tensor,
    shares: Tensor | None = None,
) -> Surrogate:
    """What `surrogate` computes, as differentiable tensors without dimensions. shares: [R], by which rows count.

    rho = exp(log p(a) - old log p(a)), one ratio for each column (as ML-Agents does, not their product);
    loss = -mean over rows and columns of min(rho A, clip(rho, 1 - epsilon, 1 + epsilon) A), so a column weighs 1 / A.
    The entropy is the mean over rows of the sum over parts; of a Gaussian's, the mean over its numbers (ML-Agents).
    """
    now = Distribution(parameters, spec)
    log_ratio = now.log_probs(actions) - old_log_probs
    ratio = log_ratio.exp()
    entropy = sum(own / part.columns for own, part in zip(now.entropies(), spec.parts, strict=True))
    assert isinstance(entropy, Tensor)
    return Surrogate(
        -_mean(_clipped_gain(ratio, advantages[:, None], 1.0 - epsilon, 1.0 + epsilon), shares),
        _mean(entropy[:, None], shares),
        _mean(ratio - 1.0 - log_ratio, shares),
        _mean(((ratio - 1.0).abs() > epsilon).float(), shares),
    )


def surrogate(
    parameters: Tensor, actions: F32, old_log_probs: F32, advantages: F32, spec: ActionSpec, epsilon: float, beta: float
) -> tuple[tuple[float, float, float, float], Tensor]:
    """PPO's policy loss, entropy, KL and share of clipped ratios (`surrogate_formula`), and a gradient [R, L].

    parameters: [R, L]; actions, old_log_probs: [R, A]; advantages: [R]. The gradient is that of loss - beta entropy.
    """
    gradient = torch.empty(parameters.shape)
    found = _surrogate(
        parameters.detach().numpy(), actions, old_log_probs, advantages, table(spec), epsilon, beta, gradient.numpy()
    )
    return found, gradient


@njit(cache=True, nogil=True)
def _clip(log_ratio: float, advantage: float, epsilon: float, weight: float) -> tuple[float, float, float, float]:
    """Of one column: min(rho A, clip(rho) A), d loss / d log p(a), and what it adds to the KL and to the clipped."""
    ratio = math.exp(log_ratio)
    free = ratio * advantage
    limited = min(max(ratio, 1.0 - epsilon), 1.0 + epsilon) * advantage
    kl, outside = ratio - 1.0 - log_ratio, 1.0 if abs(ratio - 1.0) > epsilon else 0.0
    if free <= limited:
        return free, -free * weight, kl, outside
    return limited, 0.0, kl, outside


@njit(cache=True, nogil=True)
def _surrogate(
    parameters: F32,
    actions: F32,
    old_log_probs: F32,
    advantages: F32,
    parts: I64,
    epsilon: float,
    beta: float,
    gradient: F32,
) -> tuple[float, float, float, float]:
    """`surrogate` in one pass; parts: `palus.nn.distributions.table`; gradient: [R, L], overwritten."""
    R, A = actions.shape
    loss = entropy = kl = clipped = 0.0
    weight = 1.0 / (R * A)
    for r in range(R):
        for part in range(len(parts)):
            size, column, first = parts[part, 1], parts[part, 2], parts[part, 3]
            if parts[part, 0]:
                for i in range(size):
                    raw = parameters[r, first + size + i]
                    log_std = min(max(raw, -LOG_STD_LIMIT), LOG_STD_LIMIT)
                    inverse = math.exp(-log_std)
                    noise = (actions[r, column + i] - parameters[r, first + i]) * inverse
                    log_ratio = -(0.5 * noise * noise + log_std + HALF_LOG_TAU) - old_log_probs[r, column + i]
                    surrogate, slope, own_kl, outside = _clip(log_ratio, advantages[r], epsilon, weight)
                    loss -= surrogate
                    kl += own_kl
                    clipped += outside
                    entropy += (0.5 + HALF_LOG_TAU + log_std) / size
                    # d log p / d mean = noise / std;   d log p / d log std = noise^2 - 1;   d H / d log std = 1 / size
                    gradient[r, first + i] = slope * noise * inverse
                    of_log_std = slope * (noise * noise - 1.0) - beta / R / size
                    gradient[r, first + size + i] = of_log_std if log_std == raw else 0.0
                continue
            low, high = first, first + size
            top = parameters[r, low]
            for j in range(low + 1, high):
                top = max(top, parameters[r, j])
            total = 0.0
            for j in range(low, high):
                total += math.exp(parameters[r, j] - top)
            log_total = math.log(total) + top
            branch_entropy = 0.0
            for j in range(low, high):
                log_p = parameters[r, j] - log_total
                branch_entropy -= math.exp(log_p) * log_p
            chosen = low + int(actions[r, column])
            log_ratio = parameters[r, chosen] - log_total - old_log_probs[r, column]
            surrogate, slope, own_kl, outside = _clip(log_ratio, advantages[r], epsilon, weight)
            loss -= surrogate
            kl += own_kl
            clipped += outside
            entropy += branch_entropy
            for j in range(low, high):
                log_p = parameters[r, j] - log_total
                p = math.exp(log_p)
                # d log p(a) / d z_j = [j = a] - p_j;   d H / d z_j = -p_j (log p_j + H)
                gradient[r, j] = -slope * p + beta / R * p * (log_p + branch_entropy)
            gradient[r, chosen] += slope
    return loss * weight, entropy / R, kl * weight, clipped * weight


def value_loss(values: Tensor, targets: F32, scale: float) -> tuple[float, Tensor]:
    """Mean of (R - V)^2, and `scale` times its gradient with respect to the values. values, targets: [R], or
    [R, streams].

    Not clipped: PPO's clip range is a change of probabilities, and the same number in units of returns stops a critic
    whose returns are large (benchmarks/value_clipping.py).
    """
    error = values.detach() - torch.from_numpy(targets)
    return float(error.double().square().mean()), error * (2.0 * scale / error.numel())


def value_formula(values: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
    """`value_loss`'s mean as a differentiable tensor. values, targets: [R, streams]; shares: [R], by which rows
    count."""
    return _mean((values - targets).square(), shares)


def linear_schedule(initial: float, minimum: float, step: int, max_steps: int) -> float:
    """Linear decay from `initial` at step 0 to `minimum` at max_steps, constant after. Never grows.

    ML-Agents' epsilon schedule ends at 0.1 even when it starts lower; here a start below the minimum stays put.
    """
    if initial <= minimum:
        return initial
    return (initial - minimum) * (1.0 - min(step, max_steps) / max_steps) + minimum
