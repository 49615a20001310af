"""Which kernels a learner's returns are computed with: one table, by where its network lies.

Those of the CPU are compiled loops (`palus.learn.returns`). Beside them here the same as tensor operators, for devices
that run no loops: a return is a linear recurrence, y_t = x_t + c_t y_{t+1}, and log2 T steps over whole arrays find it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from palus.learn import returns
from palus.nn.place import Placement
from palus.types import F32


@dataclass(frozen=True)
class Kernels:
    """`palus.learn.returns`'s functions of arrays under their names, or what takes and gives the same."""

    gae: Callable[..., tuple[F32, F32]]
    vtrace: Callable[..., tuple[F32, F32]]
    td_lambda: Callable[..., F32]


COMPILED = Kernels(returns.gae, returns.vtrace, returns.td_lambda)


def kernels_of(place: Placement) -> Kernels:
    """The kernels for a place."""
    if place.compiled:
        return COMPILED
    return Kernels(*(partial(_carried, place, work) for work in (gae, vtrace, td_lambda)))


def _carried(place: Placement, work: Callable[..., Any], *given: Any) -> Any:
    """A function of tensors on arrays: there and back."""
    found = work(*(place.tensor(x) if isinstance(x, np.ndarray) else x for x in given))
    return tuple(x.cpu().numpy() for x in found) if isinstance(found, tuple) else found.cpu().numpy()


def recurrence(x: Tensor, c: Tensor) -> Tensor:
    """y_t = x_t + c_t y_{t+1} along the first axis, nothing behind its end. x, c: [T, B].

    Source: Hillis and Steele 1986 (Data Parallel Algorithms), the scan, with c as its operator's other half.
    """
    reach = 1
    while reach < len(x):
        ahead_x, ahead_c = (F.pad(part[reach:], (0, 0, 0, reach)) for part in (x, c))
        x, c, reach = torch.addcmul(x, c, ahead_x), c * ahead_c, 2 * reach
    return x


def gae(
    rewards: Tensor, values: Tensor, next_values: Tensor, ended: Tensor, active: Tensor, gamma: float, lambd: float
) -> tuple[Tensor, Tensor]:
    """`palus.learn.returns.gae` of tensors."""
    deltas = torch.where(active, rewards + gamma * next_values - values, 0.0)
    advantages = recurrence(deltas, gamma * lambd * (active & ~ended).float())
    return advantages, torch.where(active, advantages + values, 0.0)


def vtrace(
    ratios: Tensor,
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    ended: Tensor,
    active: Tensor,
    gamma: float,
    rho: float,
    c: float,
) -> tuple[Tensor, Tensor]:
    """`palus.learn.returns.vtrace` of tensors."""
    weights, traces, goes_on = ratios.clamp(max=rho), ratios.clamp(max=c), (active & ~ended).float()
    errors = rewards + gamma * next_values - values
    ahead = recurrence(torch.where(active, weights * errors, 0.0), gamma * traces * goes_on)
    following = F.pad(ahead[1:], (0, 0, 0, 1)) * goes_on
    advantages = torch.where(active, weights * (errors + gamma * following), 0.0)
    return advantages, torch.where(active, values + ahead, 0.0)


def td_lambda(rewards: Tensor, next_values: Tensor, ended: Tensor, gamma: float, lambd: float) -> Tensor:
    """`palus.learn.returns.td_lambda` of tensors."""
    stops = ended.clone()
    stops[-1] = True
    known = torch.where(stops, next_values, (1.0 - lambd) * next_values)
    return recurrence(rewards + gamma * known, gamma * lambd * (~stops).float())
