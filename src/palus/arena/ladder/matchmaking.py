"""Who should play whom next, from what the ratings do not know yet. Pure: a picture of the field in, pairings out.

`draw_round` is the draw of the reference competition ("AI vs. AI"): every model plays one match per round, against a
near one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np

from palus.arena.ladder.settings import ArenaSettings
from palus.ratings.interval import Z_95
from palus.ratings.pairing import information_gain
from palus.types import F64, I64, Bool

MIN_NEIGHBOURS, NEIGHBOURS = 4, 5.0
"""Halite III's choice of opponents: k = 5 / (0.01 + u)^0.65 nearest, u uniform; mostly near, sometimes anybody."""

MIN_ANCHORS = 5
"""Settled players that a newcomer needs as anchors; with fewer of them newcomers meet each other too."""


@dataclass(frozen=True)
class Picture:
    """The N entities that are ranked, as the scheduler sees them. All pair matrices are symmetric.

    strength: [N] points. covariance: [N, N] points squared; None while there is none.
    idle: [N] larger for those whose last match is longer ago.
    barred: [N, N] pairings that are never rated: the same owner, and everybody with itself.
    meetings: [N, N] units of this season, those that are queued included. queued: [N] units that wait or are played.
    entry_left: [N] units that a newcomer still has to play against anchors, those that are queued subtracted.
    over: [N] whose owner took more than its share of the workers' time lately: others go first.
    """

    strength: F64
    covariance: F64 | None
    idle: F64
    barred: Bool
    meetings: I64
    queued: I64
    entry_left: I64
    over: Bool

    def __len__(self) -> int:
        return len(self.strength)


def choose(
    picture: Picture, count: int, settings: ArenaSettings, rng: np.random.Generator
) -> list[tuple[int, int, bool]]:
    """Up to `count` pairings, newcomers first. Empty when everybody is known well enough.

    (first, second, is_entry): indices into the picture; of a newcomer against an anchor, more urgent than the ladder.
    """
    entry = entry_pairings(picture, count)
    ladder = ladder_pairings(picture, count - len(entry), settings, rng)
    return [(*pair, True) for pair in entry] + [(*pair, False) for pair in ladder]


def entry_pairings(picture: Picture, count: int) -> list[tuple[int, int]]:
    """Newcomers against anchors that are spread over the ratings, the one with the fewest meetings first.

    Anchors are those who have finished their own entry, or everybody while those are few. The number of anchors of a
    newcomer is what it has left to play, taken at equal steps of the order, so that weak and strong ones are met alike.
    Newcomers of an owner beyond its share wait for the ladder, and none of its models is an anchor.
    """
    newcomers = np.flatnonzero((picture.entry_left > 0) & ~picture.over)
    settled = (picture.entry_left <= 0) & ~picture.over
    meetings = picture.meetings.copy()
    left = picture.entry_left.copy()
    pairs: list[tuple[int, int]] = []
    while len(pairs) < count and (left[newcomers] > 0).any():
        before = len(pairs)
        for i in newcomers[np.argsort(-left[newcomers], kind="stable")].tolist():
            if left[i] <= 0 or len(pairs) >= count:
                continue
            allowed = ~picture.barred[i]
            few = (allowed & settled).sum() < MIN_ANCHORS
            pool = np.flatnonzero(allowed if few else allowed & settled)
            if len(pool) == 0:
                left[i] = 0
                continue
            anchors = _spread_out(pool, picture.strength, int(picture.entry_left[i]))
            j = int(anchors[np.argmin(meetings[i, anchors])])
            meetings[i, j] = meetings[j, i] = meetings[i, j] + 1
            left[i] -= 1
            left[j] -= 1
            pairs.append((i, j))
        if len(pairs) == before:
            break
    return pairs


def ladder_pairings(
    picture: Picture, count: int, settings: ArenaSettings, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """The pairings that teach most, greedily, nobody twice in a batch while others are free.

    A share of them is drawn uniformly. Only pairings with somebody whose interval is still wider than the target are
    open; those at the season's limit of meetings wait until every open pairing had one, and those with a model of an
    owner beyond its share until no other is left.
    """
    open_pairs = _open(picture, settings)
    in_share = open_pairs & ~(picture.over[:, None] | picture.over[None, :])
    if in_share.any():
        open_pairs = in_share
    gain = _gain(picture)
    busy = picture.queued > 0
    pairs: list[tuple[int, int]] = []
    used = np.zeros_like(open_pairs)
    for _ in range(max(count, 0)):
        free = open_pairs & ~busy[:, None] & ~busy[None, :]
        if not free.any():  # fewer players than hands: let them play several units at a time
            busy = np.zeros(len(picture), np.bool_)
            free = open_pairs & ~used
        if not free.any():
            break
        if rng.random() < settings.uniform_share:
            pair = _uniform(free, rng)
        elif gain is None:
            pair = _neighbour(free, picture, rng)
        else:
            pair = _best(free, gain, picture.idle)
        pairs.append(pair)
        busy[list(pair)] = True
        used[pair] = used[pair[::-1]] = True
    return pairs


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


def _open(picture: Picture, settings: ArenaSettings) -> Bool:
    unsure = np.ones(len(picture), np.bool_)
    if picture.covariance is not None:
        unsure = Z_95 * np.sqrt(np.diag(picture.covariance)) >= settings.target_half_width
    wanted = (unsure[:, None] | unsure[None, :]) & ~picture.barred
    if (wanted & (picture.meetings == 0)).any():
        wanted &= picture.meetings < settings.meetings
    return wanted


def _gain(picture: Picture) -> F64 | None:
    """[N, N]. A pairing that is queued already teaches less the second time, so gains are shared among its units."""
    if picture.covariance is None:
        return None
    waiting = np.maximum(picture.queued[:, None], picture.queued[None, :])
    gain: F64 = information_gain(picture.strength, picture.covariance) / (1 + waiting)
    return gain


def _best(free: Bool, gain: F64, idle: F64) -> tuple[int, int]:
    """The largest gain; among equals whoever has been idle longest. First of the pair: the one who waited longer."""
    value = np.where(free, gain, -1.0)
    ties = np.argwhere(value >= value.max() * (1.0 - 1e-9))
    i, j = max(ties.tolist(), key=lambda pair: (max(idle[pair[0]], idle[pair[1]]), idle[pair[0]] + idle[pair[1]]))
    return (i, j) if idle[i] >= idle[j] else (j, i)


def _uniform(free: Bool, rng: np.random.Generator) -> tuple[int, int]:
    pairs = np.argwhere(np.triu(free))
    i, j = pairs[rng.integers(len(pairs))].tolist()
    return (i, j) if rng.random() < 0.5 else (j, i)


def _neighbour(free: Bool, picture: Picture, rng: np.random.Generator) -> tuple[int, int]:
    """Without a covariance: whoever has been idle longest, against one of its k nearest, k heavy-tailed."""
    waiting = np.flatnonzero(free.any(axis=1))
    i = int(waiting[np.argmax(picture.idle[waiting])])
    others = np.flatnonzero(free[i])
    k = max(MIN_NEIGHBOURS, int(NEIGHBOURS / (0.01 + rng.random()) ** 0.65))
    nearest = others[np.argsort(np.abs(picture.strength[others] - picture.strength[i]), kind="stable")[:k]]
    return i, int(nearest[rng.integers(len(nearest))])


def _spread_out(pool: I64, strength: F64, wanted: int) -> I64:
    """At most `wanted` of the pool, at equal steps of the order by strength."""
    order = pool[np.argsort(strength[pool], kind="stable")]
    places = np.linspace(0, len(order) - 1, min(wanted, len(order)))
    return order[np.unique(np.rint(places).astype(np.int64))]
