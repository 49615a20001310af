"""Returns and advantages as pure functions of arrays `[T, B]`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numba import njit

from palus.rollout.rollout import Rollout
from palus.types import F32, F64, AnyArray, Bool


def usable_decisions(rollout: Rollout) -> Bool:
    """[T, B]: active, and followed by something known: an end, a decision, or the rollout's last state."""
    known = np.ones_like(rollout.active)
    known[:-1] = rollout.active[1:] | rollout.terminated[:-1] | rollout.truncated[:-1]
    usable: Bool = rollout.active & np.take_along_axis(known, rollout.until, 0)
    return usable


def kept_memory(rollout: Rollout) -> F32:
    """[T, B]: 0 where a row's memory is empty before a time, because an episode ended or nobody was there; else 1."""
    keep = np.ones(rollout.active.shape, np.float32)
    keep[1:] = rollout.goes_on[:-1]
    return keep


@njit(cache=True, nogil=True)
def gae(
    rewards: F32, values: F32, next_values: F32, ended: Bool, active: Bool, gamma: float, lambd: float
) -> tuple[F32, F32]:
    """Generalised advantage estimates and the value targets A + V; both [T, B] float32, zero on inactive rows.

    next_values: [T, B], V of the state that follows row (t, b): the next row's value inside a segment, the value of
    the final observation where it was truncated, 0 where it was terminated, the bootstrap value in the last row.
    ended: [T, B], nothing of the following rows flows back over (t, b). active: rows that hold a decision.
    Source: Schulman et al. 2016, equation 16: delta_t = r_t + gamma V_{t+1} - V_t; A_t = sum_k (gamma lambda)^k delta.
    """
    T, B = rewards.shape
    advantages = np.zeros((T, B), np.float32)
    targets = np.zeros((T, B), np.float32)
    carry = np.zeros(B, np.float32)
    for t in range(T - 1, -1, -1):
        for b in range(B):
            if not active[t, b]:
                carry[b] = 0.0
                continue
            if ended[t, b]:
                carry[b] = 0.0
            delta = rewards[t, b] + gamma * next_values[t, b] - values[t, b]
            carry[b] = delta + gamma * lambd * carry[b]
            advantages[t, b] = carry[b]
            targets[t, b] = carry[b] + values[t, b]
    return advantages, targets


def following_values(values: F32, last_values: F32, final_values: F32, concluded: Bool) -> F32:
    """V of what is seen after each decision, [T, B]: of an episode's last observation, where that is known.

    last_values: [B], value of the state after decision T - 1. final_values: [K], in the order of
    `Rollout.final_observations`; concluded: [T, B], where these are. All may have an axis more behind, of streams.
    """
    following = np.concatenate([values[1:], last_values[None]]).astype(np.float32)
    following[concluded] = final_values
    return following


def next_episode_values(following: F32, there: Bool) -> F32:
    """V of what somebody sees next, [T, N, ...], be it in another episode; 0 where nothing is known of it.

    For rewards whose return runs on over the end of an episode. Source: Burda et al. 2018 (arXiv 1810.12894),
    section 2.3. following: [T, N, ...], V of what is seen after each decision; there: [T, N], where something is: who
    is out of a match waits for the next.
    """
    found = np.zeros_like(following)
    carried = np.zeros_like(following[0])
    for t in reversed(range(len(following))):
        carried = found[t] = np.where(there[t].reshape(-1, *(1,) * (following.ndim - 2)), following[t], carried)
    return found


@njit(cache=True, nogil=True)
def vtrace(
    ratios: F32,
    rewards: F32,
    values: F32,
    next_values: F32,
    ended: Bool,
    active: Bool,
    gamma: float,
    rho: float,
    c: float,
) -> tuple[F32, F32]:
    """V-trace advantages and value targets v; both [T, B] float32, zero on inactive rows.

    ratios: [T, B], new over acting probability of the action taken; the other arrays as in `gae`, values by the new
    weights. rho, c: truncations of the ratios. Source: Espeholt et al. 2018 (IMPALA, arXiv 1802.01561), section 4.1:
    delta_t = rho_t (r_t + gamma V_{t+1} - V_t);  v_t = V_t + delta_t + gamma c_t (v_{t+1} - V_{t+1});
    A_t = rho_t (r_t + gamma v_{t+1} - V_t).
    """
    T, B = rewards.shape
    advantages = np.zeros((T, B), np.float32)
    targets = np.zeros((T, B), np.float32)
    for b in range(B):
        ahead = 0.0  # v_{t+1} - V_{t+1}
        for t in range(T - 1, -1, -1):
            if not active[t, b]:
                ahead = 0.0
                continue
            if ended[t, b]:
                ahead = 0.0
            weight, trace = min(rho, ratios[t, b]), min(c, ratios[t, b])
            error = rewards[t, b] + gamma * next_values[t, b] - values[t, b]
            advantages[t, b] = weight * (error + gamma * ahead)
            ahead = weight * error + gamma * trace * ahead
            targets[t, b] = values[t, b] + ahead
    return advantages, targets


@njit(cache=True, nogil=True)
def td_lambda(rewards: F32, next_values: F32, ended: Bool, gamma: float, lambd: float) -> F32:
    """TD(lambda) returns of groups, [T, B] float32.

    G_t = r_t + gamma [(1 - lambda) V_{t+1} + lambda G_{t+1}]; where ended and in the last row G_{t+1} = V_{t+1}.
    next_values as in `gae`. Source: Cohen et al. 2021 (MA-POCA, arXiv 2111.05992), section 4.
    """
    T, B = rewards.shape
    returns: F32 = np.zeros((T, B), np.float32)
    for b in range(B):
        following = next_values[T - 1, b]
        for t in range(T - 1, -1, -1):
            if ended[t, b]:
                following = next_values[t, b]
            following = rewards[t, b] + gamma * ((1.0 - lambd) * next_values[t, b] + lambd * following)
            returns[t, b] = following
    return returns


def normalized(parts: Sequence[F32], total: Callable[[Sequence[float]], float]) -> list[F32]:
    """Zero mean, unit population deviation over several arrays together; constant input gives zeros.

    total: adds up one number for each of them, and those of other ranks.
    """
    count = max(total([len(own) for own in parts]), 1)

    def centre(arrays: Sequence[AnyArray]) -> list[F64]:
        mean = total([float(own.sum(dtype=np.float64)) for own in arrays]) / count
        return [own - np.float64(mean) for own in arrays]

    centred = centre(parts)
    squares = [float(np.square(own).sum()) for own in centre(centred)]
    deviation = math.sqrt(total(squares) / count) + 1e-10
    return [(own / deviation).astype(np.float32) for own in centred]
