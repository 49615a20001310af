"""The draw of the reference competition ("AI vs. AI"): every model plays one match per round, against a near one."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import numpy as np


def draw_round(queue: Sequence[tuple[str, float]], neighbours: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    """Pairings of one round, first name blue. An odd model sits the round out.

    queue: (name, rating) in the order in which the models are served. neighbours: the reference's unpublished n.

    The first model of the queue meets one of the n that are nearest to it in rating, drawn uniformly; both leave the
    queue. Among equally near ones those earlier in the queue are kept, as an insertion scan keeps them.
    """
    left = list(queue)
    pairs = []
    while len(left) > 1:
        name, rating = left.pop(0)
        distance = [abs(other - rating) for _, other in left]
        nearest = nsmallest(neighbours, range(len(left)), key=lambda i: (distance[i], i))
        opponent, _ = left.pop(nearest[int(rng.integers(len(nearest)))])
        pairs.append((name, opponent))
    return pairs
