"""Who should play whom next, from what the ratings do not know yet. Pure: a picture of the field in, pairings out.

`draw_round` is the draw of the reference competition ("AI vs. AI"): every model plays one match per round, against a
near one, here of another owner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np

from palus.arena.ladder.settings import ArenaSettings
from palus.ratings.interval import Z_95
from palus.ratings.pairing import gain_of
from palus.types import F64, I64, Bool

NEIGHBOURS = 25
"""On each side of a player in the order of strength: among these the pairing that teaches most is looked for."""
HEAD, HEAD_TIMES = 5000, 20
"""Of the candidates, and for each pairing that is wanted, so many are put in order at first."""
TRIES = 200
"""Draws of two players that may not meet, before those who may are listed."""

MIN_ANCHORS = 5
"""Settled players that a newcomer needs as anchors; with fewer of them newcomers meet each other too."""


@dataclass(frozen=True)
class Meetings:
    """How often two of N players met. keys: [M] i N + j of each two that did, i < j, ascending. counts: [M].

    before: meetings that are not among these.
    """

    n: int
    keys: I64
    counts: I64
    before: Meetings | None = None

    def of(self, first: I64, second: I64) -> I64:
        """Of each pairing."""
        keys = np.minimum(first, second) * self.n + np.maximum(first, second)
        met = np.zeros(np.shape(keys), np.int64) if self.before is None else self.before.of(first, second)
        if len(self.keys):
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            met = met + np.where(self.keys[place] == keys, self.counts[place], 0)
        return met


@dataclass(frozen=True)
class Picture:
    """The N entities that are ranked, as the scheduler sees them.

    strength: [N] points. variance: [N] points squared. covariance: [N, N] of the strengths, where the field is small
    enough for one; else differences are as sure as if strengths were independent.
    idle: [N] larger for those whose last match is longer ago.
    owner: [N] number of the owner: two of one owner are never rated; -1 for those that may meet anybody.
    meetings: units of this season, those that are queued included. queued: [N] units that wait or are played.
    entry_left: [N] units that a newcomer still has to play against anchors, those that are queued subtracted.
    over: [N] whose owner took more than its share of the workers' time lately: others go first.
    """

    strength: F64
    variance: F64
    covariance: F64 | None
    idle: F64
    owner: I64
    meetings: Meetings
    queued: I64
    entry_left: I64
    over: Bool

    def __len__(self) -> int:
        return len(self.strength)

    def may_meet(self, first: I64, second: I64) -> Bool:
        """Whether each pairing would be rated."""
        related = (self.owner[first] == self.owner[second]) & (self.owner[first] >= 0)
        return np.asarray((first != second) & ~related)

    def gap(self, first: I64, second: I64) -> F64:
        """Variance of each difference of strengths, points squared."""
        variance = self.variance[first] + self.variance[second]
        if self.covariance is not None:
            variance = np.maximum(variance - 2.0 * self.covariance[first, second], 0.0)
        return np.asarray(variance)


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
    newcomers = newcomers[np.argsort(-picture.entry_left[newcomers], kind="stable")][: max(count, 0)]
    by_strength = np.argsort(picture.strength, kind="stable")
    settled = by_strength[(picture.entry_left[by_strength] <= 0) & ~picture.over[by_strength]]
    anchors = {i: _anchors(picture, i, by_strength, settled) for i in newcomers.tolist()}
    met = {
        i: dict(zip(of.tolist(), picture.meetings.of(np.array(i), of).tolist(), strict=True))
        for i, of in anchors.items()
    }
    left = picture.entry_left.copy()
    pairs: list[tuple[int, int]] = []
    while len(pairs) < count and (left[newcomers] > 0).any():
        for i in newcomers[np.argsort(-left[newcomers], kind="stable")].tolist():
            if left[i] <= 0 or len(pairs) >= count:
                continue
            if not met[i]:
                left[i] = 0
                continue
            j = min(met[i], key=lambda anchor: met[i][anchor])
            for a, b in ((i, j), (j, i)):
                if b in met.get(a, ()):
                    met[a][b] += 1
                left[a] -= 1
            pairs.append((i, j))
    return pairs


def ladder_pairings(
    picture: Picture, count: int, settings: ArenaSettings, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """The pairings that teach most, greedily, nobody twice in a batch while others are free.

    They are looked for among each player's nearest; a share of them is drawn uniformly from all. Only pairings with
    somebody whose interval is still wider than the target are open; those at the season's limit of meetings wait until
    every open pairing had one, and those with a model of an owner beyond its share until no other is left.
    """
    if not len(picture):
        return []
    unsure = np.asarray(Z_95 * np.sqrt(picture.variance) >= settings.target_half_width)
    first, second = _candidates(picture, settings, unsure)
    in_share = ~(picture.over[first] | picture.over[second])
    barred = np.zeros(len(picture), np.bool_)  # who waits until the others had theirs
    if in_share.any():
        first, second, barred = first[in_share], second[in_share], picture.over
    gain, most = _gains(picture, first, second), HEAD + HEAD_TIMES * count
    top = gain >= (np.partition(gain, -most)[-most] if most < len(gain) else -np.inf)
    busy, pairs, used = (picture.queued > 0).tolist(), list[tuple[int, int]](), set[tuple[int, int]]()
    candidates, place = _best_first(picture, first[top], second[top], gain[top]), 0
    rest = not top.all()

    def drawn() -> tuple[int, int] | None:
        """An open pairing of two free players, uniformly of all; of the candidates that are left where hardly any is
        open; None where there is none."""
        for i, j in rng.integers(len(picture), size=(TRIES, 2)).tolist():
            if busy[i] or busy[j] or barred[i] or barred[j] or (min(i, j), max(i, j)) in used:
                continue
            pair = np.array(i), np.array(j)
            if (unsure[i] or unsure[j]) and picture.may_meet(*pair) and picture.meetings.of(*pair) < settings.meetings:
                return i, j
        free = [pair for pair in candidates[place:] if not (busy[pair[0]] or busy[pair[1]])]
        return free[int(rng.integers(len(free)))] if free else None

    while len(pairs) < count:
        if rng.random() < settings.uniform_share:
            pair = drawn()
        else:
            while place < len(candidates) and (busy[candidates[place][0]] or busy[candidates[place][1]]):
                place += 1
            pair = candidates[place] if place < len(candidates) else None
        if pair is None and rest:  # the others are put in order only now
            candidates, rest = candidates + _best_first(picture, first[~top], second[~top], gain[~top]), False
            continue
        if pair is None:  # fewer players than hands: let them play several units at a time
            candidates, place = [pair for pair in candidates if (min(pair), max(pair)) not in used], 0
            if not candidates:
                break
            busy = [False] * len(picture)
            continue
        pairs.append(pair)
        used.add((min(pair), max(pair)))
        busy[pair[0]] = busy[pair[1]] = True
    return pairs


def draw_round(
    queue: Sequence[tuple[str, float, str | None]], neighbours: int, rng: np.random.Generator
) -> list[tuple[str, str]]:
    """Pairings of one round, first name blue. Who finds nobody to meet sits the round out.

    queue: (name, rating, owner) in the order in which the models are served; two of one owner do not meet, and None is
    nobody's. neighbours: the reference's unpublished n.

    The first model of the queue meets one of the n that are nearest to it in rating, drawn uniformly; both leave the
    queue. Among equally near ones those earlier in the queue are kept, as an insertion scan keeps them.
    """
    left = list(queue)
    pairs = []
    while left:
        name, rating, owner = left.pop(0)
        may_meet = [i for i, (_, _, whose) in enumerate(left) if owner is None or whose != owner]
        if may_meet:
            distance = [abs(other - rating) for _, other, _ in left]
            nearest = nsmallest(neighbours, may_meet, key=lambda i: (distance[i], i))
            opponent, *_ = left.pop(nearest[int(rng.integers(len(nearest)))])
            pairs.append((name, opponent))
    return pairs


def _candidates(picture: Picture, settings: ArenaSettings, unsure: Bool) -> tuple[I64, I64]:
    """Open pairings of players that are near in the order of strength, each once."""
    order, n = np.argsort(picture.strength, kind="stable"), len(picture)
    reach = n - 1 if n <= 2 * NEIGHBOURS + 1 else NEIGHBOURS  # few: everybody
    first = np.concatenate([order[: n - d] for d in range(1, reach + 1)] or [order[:0]])
    second = np.concatenate([order[d:] for d in range(1, reach + 1)] or [order[:0]])
    wanted = (unsure[first] | unsure[second]) & picture.may_meet(first, second)
    first, second = first[wanted], second[wanted]
    met = picture.meetings.of(first, second)
    if (met == 0).any():
        first, second = first[met < settings.meetings], second[met < settings.meetings]
    return first, second


def _gains(picture: Picture, first: I64, second: I64) -> F64:
    """Logarithm of what each pairing teaches, rounded, so that equals are equal.

    One that is queued already teaches less the second time, so gains are shared among its units.
    """
    gain = gain_of(picture.strength[first] - picture.strength[second], picture.gap(first, second))
    gain = gain / (1 + np.maximum(picture.queued[first], picture.queued[second]))
    return np.asarray(np.round(np.log(np.maximum(gain, 1e-300)), 9))


def _best_first(picture: Picture, first: I64, second: I64, gain: F64) -> list[tuple[int, int]]:
    """By gain; among equals whoever has been idle longest. First of a pair: the one who waited longer."""
    idle = picture.idle[first], picture.idle[second]
    order = np.lexsort((-(idle[0] + idle[1]), -np.maximum(*idle), -gain))
    swap = idle[1] > idle[0]
    ahead, behind = np.where(swap, second, first)[order], np.where(swap, first, second)[order]
    return list(zip(ahead.tolist(), behind.tolist(), strict=True))


def _anchors(picture: Picture, i: int, by_strength: I64, settled: I64) -> I64:
    """At most as many as a newcomer has left to play, at equal steps of the order by strength."""
    pool = settled[picture.may_meet(np.array(i), settled)]
    if len(pool) < MIN_ANCHORS:
        pool = by_strength[picture.may_meet(np.array(i), by_strength)]
    places = np.linspace(0, len(pool) - 1, min(int(picture.entry_left[i]), len(pool)))
    return np.asarray(pool[np.unique(np.rint(places).astype(np.int64))])
