"""Whom to meet among many, as a mixture: by how well one does against each, or by what nobody can beat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from palus.ratings.nash import any_equilibrium, equilibrium, mixtures
from palus.types import F64

Mixture = dict[int, float]
"""Policy id -> weight; they add up to 1."""
HARDNESS = 2.0
"""Exponent of PFSP's preference for opponents that win."""


def normalized(weights: Mapping[int, float]) -> Mixture:
    """Weights of at least 0 as a mixture; where all are 0, everybody alike."""
    total = sum(weights.values())
    return {k: w / total if total > 0.0 else 1.0 / len(weights) for k, w in weights.items()}


def blended(parts: Iterable[tuple[float, Mixture]]) -> Mixture:
    """Mixtures, each by its share, as one."""
    mixture: Mixture = {}
    for share, part in parts:
        for policy, weight in part.items():
            mixture[policy] = mixture.get(policy, 0.0) + share * weight
    return mixture


def prioritized(shares: Mapping[int, float], *, hard: bool) -> Mixture:
    """Prioritized fictitious self-play: weights (1 - p)^2, or p (1 - p) for opponents of one's own strength.

    shares: policy id -> p, the share of points that one takes.

    Source: Vinyals et al., Grandmaster level in StarCraft II using multi-agent reinforcement learning, 2019, Methods.
    """
    return normalized({k: (1.0 - p) ** HARDNESS if hard else p * (1.0 - p) for k, p in shares.items()})


def meta_solved(shares: F64, *, symmetric: bool, entropy: bool) -> F64:
    """[n] Nash mixture of the columns of a zero-sum game, as policy-space response oracles train against it.

    shares: [m, n] points of the row player, in [0, 1]. symmetric: rows and columns are the same policies. entropy: of
    the equilibria the one of largest entropy, else the one that the solver finds. Where rounding defeats the solver,
    everybody alike.

    Source: Lanctot et al., A unified game-theoretic approach to multiagent reinforcement learning, 2017.
    """
    try:
        if not symmetric:
            weights = mixtures(shares, entropy=entropy)[1]
        elif entropy:
            weights = equilibrium(shares - shares.T).weights
        else:
            weights = any_equilibrium(shares - shares.T)
    except np.linalg.LinAlgError:
        weights = np.ones(shares.shape[1])
    weights = np.maximum(weights, 0.0)
    return np.asarray(weights / weights.sum())
