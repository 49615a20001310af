"""The clipped losses of PPO and MA-POCA, each with its gradient in closed form: as one compiled loop for the CPU, and
as few operators of torch for other devices.

By autograd the same takes a hundred small kernels a step, more than all layers together. The tests compare values and
gradients of both with the formula as it is printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

import torch
from numba import njit
from torch import Tensor

from palus.nn.distributions import HALF_LOG_TAU, table
from palus.nn.graph import LOG_STD_LIMIT
from palus.types import F32, I64, ActionPart, ActionSpec, Discrete


def clipped_policy_loss(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """-mean min(ratio A, clip(ratio, low, high) A). Source: Schulman et al. 2017, equation 7."""
    return -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages).mean()


def surrogate(
    parameters: Tensor, actions: F32, old_log_probs: F32, advantages: F32, spec: ActionSpec, epsilon: float, beta: float
) -> tuple[tuple[float, float, float, float], Tensor]:
    """PPO's policy loss, entropy (nats), approximate KL and share of clipped ratios, and a gradient [R, L].

    parameters: [R, L]; actions, old_log_probs: [R, A]; advantages: [R]. The gradient is that of loss - beta entropy.

    rho = exp(log p(a) - old log p(a)), one ratio for each column (as ML-Agents does, not their product);
    loss = -mean over rows and columns of min(rho A, clip(rho, 1 - epsilon, 1 + epsilon) A), so a column weighs 1 / A.
    The entropy is the mean over rows of the sum over parts; of a Gaussian's, the mean over its numbers (ML-Agents).
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


@torch.no_grad()
def surrogate_tensors(
    parameters: Tensor,
    actions: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    spec: ActionSpec,
    epsilon: Tensor,
    beta: Tensor,
    shares: Tensor,
) -> tuple[Tensor, Tensor]:
    """`surrogate` by torch's operators: loss, KL and share of clipped ratios [3], and the gradient [R, L].

    shares: [R], by which rows count, their sum 1; epsilon, beta: without dimensions. Nothing is read back.
    """
    R, A, scale = len(parameters), spec.columns, advantages.unsqueeze(1)
    parts = [
        (_several_branches if isinstance(part, Discrete) else _numbers)(
            parameters[:, numbers].view(R, count, -1), actions[:, columns]
        )
        for part, count, columns, numbers in _runs(spec)
    ]
    log_ratio = torch.cat([own.log_probs for own in parts], 1) - old_log_probs
    ratio = log_ratio.exp()
    away = ratio - 1.0
    free, limited = ratio * scale, (away.clamp(-epsilon, epsilon) + 1.0) * scale
    told = torch.cat([-torch.minimum(free, limited), away - log_ratio, away.abs() > epsilon], 1)
    weight = shares.unsqueeze(1)
    falls = torch.where(free <= limited, free, 0.0) * (weight / A)
    pieces = torch.split(falls, [own.log_probs.shape[1] for own in parts], 1)
    gradient = torch.cat([own.gradient(piece, weight * beta) for own, piece in zip(parts, pieces, strict=True)], 1)
    return (shares @ told).view(3, A).mean(1), gradient


class _Part(NamedTuple):
    """Log-probabilities [R, columns] of some parts, and the loss's gradient: (how the loss falls with each of them [R,
    columns], and with the entropy [R, 1]) -> [R, numbers]."""

    log_probs: Tensor
    gradient: Callable[[Tensor, Tensor], Tensor]


def _runs(spec: ActionSpec) -> Iterator[tuple[ActionPart, int, slice, slice]]:
    """A part, how many like it follow each other, their columns and their parameters; numbers each for itself."""
    parts = list(zip(spec.parts, spec.column_slices, spec.parameter_slices, strict=True))
    for part, own in groupby(parts, lambda each: each[0]):
        whole = [*own]
        for run in [whole] if isinstance(part, Discrete) else ([each] for each in whole):
            (_, columns, numbers), (_, last_column, last_number) = run[0], run[-1]
            yield part, len(run), slice(columns.start, last_column.stop), slice(numbers.start, last_number.stop)


def _several_branches(logits: Tensor, actions: Tensor) -> _Part:
    """logits: [R, branches, choices]."""
    log_p, chosen = logits.log_softmax(2), actions.long().unsqueeze(2)
    p = log_p.exp()

    def gradient(of_log_probs: Tensor, of_entropy: Tensor) -> Tensor:
        # d log p(a) / d z_j = [j = a] - p_j;   d H / d z_j = -p_j (log p_j + H)
        entropy, of_log_probs = -(p * log_p).sum(2, keepdim=True), of_log_probs.unsqueeze(2)
        slope = p * torch.addcmul(of_log_probs, of_entropy.unsqueeze(2), log_p + entropy)
        return slope.scatter_add(2, chosen, -of_log_probs).flatten(1)

    return _Part(log_p.gather(2, chosen).squeeze(2), gradient)


def _numbers(parameters: Tensor, actions: Tensor) -> _Part:
    """parameters: [R, 1, means and logarithms of deviations]."""
    mean, raw = parameters.squeeze(1).chunk(2, 1)
    log_std = raw.clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)
    inverse = (-log_std).exp()
    noise = (actions - mean) * inverse

    def gradient(of_log_probs: Tensor, of_entropy: Tensor) -> Tensor:
        # d log p / d mean = noise / std;   d log p / d log std = noise^2 - 1;   d H / d log std = 1 / size
        of_log_std = of_log_probs * (noise * noise - 1.0) + of_entropy / mean.shape[1]
        return -torch.cat([of_log_probs * noise * inverse, torch.where(log_std == raw, of_log_std, 0.0)], 1)

    return _Part(-(0.5 * noise * noise + log_std + HALF_LOG_TAU), gradient)


def value_loss(values: Tensor, targets: F32, scale: float) -> tuple[float, Tensor]:
    """Mean of (R - V)^2, and `scale` times its gradient with respect to the values. values, targets: [R], or
    [R, streams].

    Not clipped: PPO's clip range is a change of probabilities, and the same number in units of returns stops a critic
    whose returns are large (benchmarks/value_clipping.py).
    """
    error = values.detach() - torch.from_numpy(targets)
    return float(error.double().square().mean()), error * (2.0 * scale / error.numel())


@torch.no_grad()
def value_tensors(values: Tensor, targets: Tensor, shares: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """`value_loss` by torch's operators. values, targets: [R, streams]; shares: [R], by which rows count, their sum
    1."""
    error, streams = values - targets, values.shape[1]
    weighted = error * shares.unsqueeze(1)
    return torch.dot(weighted.flatten(), error.flatten()) / streams, weighted * (2.0 * scale / streams)


def linear_schedule(initial: float, minimum: float, step: int, max_steps: int) -> float:
    """Linear decay from `initial` at step 0 to `minimum` at max_steps, constant after. Never grows.

    ML-Agents' epsilon schedule ends at 0.1 even when it starts lower; here a start below the minimum stays put.
    """
    if initial <= minimum:
        return initial
    return (initial - minimum) * (1.0 - min(step, max_steps) / max_steps) + minimum
