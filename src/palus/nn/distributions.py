"""Distributions over actions of several parts: categorical and diagonal Gaussian, side by side and independent.

Acting draws in one compiled pass with a counter-based generator; learning needs gradients, so `Distribution` is made of
tensors. A choice whose logit is FORBIDDEN has probability 0. Letters: R rows, A action columns, L parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numba import get_num_threads, njit, prange, uint64
from torch import Tensor

from palus.nn.graph import FORBIDDEN, LOG_STD_LIMIT
from palus.types import F32, I64, ActionSpec, Continuous, Discrete

HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


@lru_cache(maxsize=256)
def table(spec: ActionSpec) -> I64:
    """An action's parts for compiled passes, [parts, 4]: 1 where continuous, choices or numbers, first column, first
    parameter."""
    rows = zip(spec.parts, spec.column_slices, spec.parameter_slices, strict=True)
    return np.array(
        [
            (isinstance(p, Continuous), p.choices if isinstance(p, Discrete) else p.size, c.start, k.start)
            for p, c, k in rows
        ],
        np.int64,
    )


@njit(cache=True, nogil=True, inline="always")
def uniform(seed: int, tick: int, row: int, column: int) -> float:
    """A random number in [0, 1): a hash of its key. Nothing has to be stored to resume a run.

    Source: SplitMix64's finaliser (Steele, Lea and Flood 2014), applied to a mixed key."""
    z = uint64(seed) * uint64(0x9E3779B97F4A7C15) + uint64(tick) * uint64(0xD1B54A32D192ED03)
    z ^= uint64(row) * uint64(0xABC98388FB8FAC03) + uint64(column) * uint64(0x8CB92BA72F3D8DD7)
    for _ in range(2):
        z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
        z = z ^ (z >> uint64(31))
    return (z >> uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def _sample(
    parameters: F32, table: I64, seed: int, ticks: I64, rows: I64, actions: F32, log_probs: F32, entropies: F32
) -> None:
    R, A = actions.shape
    for r in range(R):
        entropy = 0.0
        for part in range(len(table)):
            size, column, first = table[part, 1], table[part, 2], table[part, 3]
            if table[part, 0]:
                for i in range(size):
                    log_std = min(max(parameters[r, first + size + i], -LOG_STD_LIMIT), LOG_STD_LIMIT)
                    # Box and Muller 1958; 1 - u lies in (0, 1].
                    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(seed, ticks[r], rows[r], column + i)))
                    noise = radius * math.cos(2.0 * math.pi * uniform(seed, ticks[r], rows[r], A + column + i))
                    actions[r, column + i] = parameters[r, first + i] + math.exp(log_std) * noise
                    log_probs[r, column + i] = -(0.5 * noise * noise + log_std + HALF_LOG_TAU)
                    entropy += 0.5 + HALF_LOG_TAU + log_std
                continue
            top = parameters[r, first]
            for j in range(1, size):
                top = max(top, parameters[r, first + j])
            total = 0.0
            for j in range(size):
                total += math.exp(parameters[r, first + j] - top)
            target = uniform(seed, ticks[r], rows[r], column) * total
            chosen, cumulated = size - 1, 0.0  # the last where rounding leaves the sum below the target
            for j in range(size):
                cumulated += math.exp(parameters[r, first + j] - top)
                if target < cumulated:
                    chosen = j
                    break
            log_total = math.log(total) + top
            for j in range(size):
                log_p = parameters[r, first + j] - log_total
                entropy -= math.exp(log_p) * log_p
            actions[r, column] = chosen
            log_probs[r, column] = parameters[r, first + chosen] - log_total
        entropies[r] = entropy


@njit(cache=True, nogil=True, parallel=True)
def _sample_ranges(
    parameters: F32,
    table: I64,
    seed: int,
    ticks: I64,
    rows: I64,
    actions: F32,
    log_probs: F32,
    entropies: F32,
    ranges: int,
) -> None:
    R = len(rows)
    for k in prange(ranges):
        a, b = k * R // ranges, (k + 1) * R // ranges
        _sample(parameters[a:b], table, seed, ticks[a:b], rows[a:b], actions[a:b], log_probs[a:b], entropies[a:b])


def sample(parameters: F32, spec: ActionSpec, seed: int, tick: int | I64, rows: I64) -> tuple[F32, F32, F32]:
    """Draw one action for each row. parameters: [R, L]; tick: of all rows, or [R]; rows: [R]: with the seed
    the key.

    Returns actions [R, A], log-probabilities [R, A] of every column (densities where continuous) and entropies [R],
    nats. The draw for (seed, tick, row) does not depend on which rows are drawn together.
    """
    return _sampled(_sample, parameters, spec, seed, tick, rows)


def sample_side_by_side(
    parameters: F32, spec: ActionSpec, seed: int, tick: int | I64, rows: I64
) -> tuple[F32, F32, F32]:
    """`sample` on all threads that spin (`palus.spinning`), which share the rows."""
    return _sampled(_sample_ranges, parameters, spec, seed, tick, rows, get_num_threads())


def _sampled(
    work: Callable[..., None], parameters: F32, spec: ActionSpec, seed: int, tick: int | I64, rows: I64, *more: int
) -> tuple[F32, F32, F32]:
    R, A = len(parameters), spec.columns
    actions, log_probs, entropies = np.empty((R, A), np.float32), np.empty((R, A), np.float32), np.empty(R, np.float32)
    ticks = np.full(R, tick, np.int64)
    work(np.ascontiguousarray(parameters), table(spec), seed, ticks, rows, actions, log_probs, entropies, *more)
    return actions, log_probs, entropies


Draw = Callable[[F32, ActionSpec, int, int | I64, I64], tuple[F32, F32, F32]]
"""`sample`, or `likeliest` in its place."""


def likeliest(parameters: F32, spec: ActionSpec, seed: int, tick: int | I64, rows: I64) -> tuple[F32, F32, F32]:
    """As `sample`, but the likeliest action of each row; seed, tick and rows do not matter."""
    actions, distribution = mode(parameters, spec), Distribution(torch.from_numpy(parameters), spec)
    return actions, distribution.log_probs(torch.from_numpy(actions)).numpy(), distribution.entropy().numpy()


def mode(parameters: F32, spec: ActionSpec) -> F32:
    """The likeliest action of each row: [R, L] -> [R, A]; the mean where continuous."""
    actions = np.empty((len(parameters), spec.columns), np.float32)
    for part, columns, numbers in zip(spec.parts, spec.column_slices, spec.parameter_slices, strict=True):
        own = parameters[:, numbers]
        actions[:, columns] = own.argmax(1)[:, None] if isinstance(part, Discrete) else own[:, : part.size]
    return actions


def told(actions: F32, spec: ActionSpec, squash: bool) -> F32:
    """What games are told where `actions` [R, A] were drawn; the same array where all is discrete.

    A number is clipped to the game's range; squash: it is tanh of what was drawn, stretched from +-1 to a range that
    is finite. Source: Haarnoja et al. 2018 (SAC, arXiv 1812.05905), appendix C.
    """
    if spec.is_discrete:
        return actions
    out = actions.copy()
    for part, columns in zip(spec.parts, spec.column_slices, strict=True):
        if isinstance(part, Continuous):
            own = actions[:, columns]
            if squash:
                middle, half = part.squashed
                own = np.float32(middle) + np.float32(half) * np.tanh(own)
            out[:, columns] = np.clip(own, part.low, part.high)
    return out


@dataclass(frozen=True)
class Categorical:
    log_p: Tensor

    def log_probs(self, actions: Tensor) -> Tensor:
        return self.log_p.gather(1, actions.long())

    def entropy(self) -> Tensor:
        return -(self.log_p.exp() * self.log_p).sum(1)

    def kl(self, other: Categorical) -> Tensor:
        return (self.log_p.exp() * (self.log_p - other.log_p)).sum(1)

    def symmetric_kl(self) -> Tensor:
        """1/2 [KL(p, U) + KL(U, p)] = 1/2 sum (p - 1/n) log p: the entropies of U cancel. U, n: of allowed choices."""
        allowed = self.log_p > 0.5 * FORBIDDEN
        apart = self.log_p.exp() - 1.0 / allowed.sum(1, keepdim=True)
        return 0.5 * torch.where(allowed, apart * self.log_p, 0.0).sum(1)


@dataclass(frozen=True)
class Gaussian:
    mean: Tensor
    log_std: Tensor

    def log_probs(self, actions: Tensor) -> Tensor:
        noise = (actions - self.mean) * (-self.log_std).exp()
        return -(0.5 * noise * noise + self.log_std + HALF_LOG_TAU)

    def entropy(self) -> Tensor:
        return (0.5 + HALF_LOG_TAU + self.log_std).sum(1)

    def kl(self, other: Gaussian) -> Tensor:
        apart = (self.mean - other.mean) * (-other.log_std).exp()
        wider = (2.0 * (self.log_std - other.log_std)).exp()
        return (other.log_std - self.log_std + 0.5 * (wider + apart * apart - 1.0)).sum(1)


class Distribution:
    """The distribution that parameters [R, L] describe, as differentiable tensors; methods return [R] unless noted."""

    def __init__(self, parameters: Tensor, spec: ActionSpec) -> None:
        self.spec = spec
        self.parts: list[Categorical | Gaussian] = []
        for part, numbers in zip(spec.parts, spec.parameter_slices, strict=True):
            own = parameters[:, numbers]
            if isinstance(part, Discrete):
                self.parts.append(Categorical(own.log_softmax(1)))
            else:
                log_std = own[:, part.size :].clamp(-LOG_STD_LIMIT, LOG_STD_LIMIT)
                self.parts.append(Gaussian(own[:, : part.size], log_std))

    def log_prob(self, actions: Tensor) -> Tensor:
        """log p(actions), the sum over the parts. actions: [R, A]."""
        return self.log_probs(actions).sum(1)

    def log_probs(self, actions: Tensor) -> Tensor:
        """log p of every column, [R, A]; densities where continuous."""
        columns = self.spec.column_slices
        return torch.cat([p.log_probs(actions[:, own]) for p, own in zip(self.parts, columns, strict=True)], 1)

    def entropy(self) -> Tensor:
        """Entropy in nats, the sum over the parts."""
        return self.entropies().sum(0)

    def entropies(self) -> Tensor:
        """Entropy in nats of every part, [parts, R]."""
        return torch.stack([p.entropy() for p in self.parts])

    def kl(self, other: Distribution) -> Tensor:
        """KL(self, other): E_self [log self - log other]."""
        pairs = zip(self.parts, other.parts, strict=True)
        return torch.stack([p.kl(q) for p, q in pairs]).sum(0)  # type: ignore[arg-type]  # both follow one spec

    def symmetric_kl(self) -> Tensor:
        """Mean of the KLs to and from the uniform distribution. ValueError where a part is continuous."""
        if not self.spec.is_discrete:
            raise ValueError("symmetric_kl: the uniform distribution needs discrete actions; use the entropy instead")
        return torch.stack([p.symmetric_kl() for p in self.parts if isinstance(p, Categorical)]).sum(0)
