"""What one match says of two policies."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product

from palus.rollout.rollout import FinishedMatch
from palus.types import GameSpec


def share(points: float, others: float) -> float:
    """1 for the side with more points, 0.5 for each of two that are level."""
    return 0.5 if points == others else float(points > others)


def policies_of(match: FinishedMatch, spec: GameSpec) -> Mapping[int, set[int]]:
    """Team -> ids of the policies that played it, in the order of `GameSpec.sides`."""
    found: dict[int, set[int]] = {side: set() for side in spec.sides}
    for agent, seat in zip(spec.agents, match.seats, strict=True):
        found[agent.team].add(seat.policy)
    return found


def results_of(match: FinishedMatch, policies: Mapping[int, set[int]]) -> dict[tuple[int, int], float]:
    """(policy, opponent) -> share of the points between them, one result for each two policies that met. policies: as
    `policies_of` gives them.

    The lower id stands first. Policies that met on several pairs of sides share their mean; those of one side, and a
    policy and itself, did not meet. {} for a match without a verdict.
    """
    if not match.points:
        return {}
    points = dict(zip(policies, match.points, strict=True))
    met: dict[tuple[int, int], list[float]] = {}
    for a, b in combinations(policies, 2):
        for p, q in product(sorted(policies[a]), sorted(policies[b])):
            if p < q:
                met.setdefault((p, q), []).append(share(points[a], points[b]))
            elif q < p:
                met.setdefault((q, p), []).append(share(points[b], points[a]))
    return {pair: sum(shares) / len(shares) for pair, shares in met.items()}
