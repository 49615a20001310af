"""Gathers what matchmaking wants to know about an env: who is ranked, who met whom, who waits, what the fit says, and
whose models took how much of the workers' time."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sqlalchemy import Connection, select

from palus.arena.ladder.derive import unpacked
from palus.arena.ladder.matchmaking import Meetings, Picture
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity
from palus.arena.referee.games import game_of
from palus.ratings.bradley_terry import DISPLAY_BASE, PRIOR_SD
from palus.store.derived import fields, intake, pair_sums, player_sums, ratings
from palus.store.tables import matches
from palus.types import F64, I64, Bool

RECENT_UNITS = 1000
"""Of which the workers' time is shared out."""
SHARE = 2.0
"""Times its even share that an owner may take before others go first. Information decides within that."""
ROWS_AT_ONCE = 5000
"""Read of the sums: psycopg lets no other thread work while it makes rows, of a million for two seconds."""
_NOBODY = np.empty(0, np.int64)
SLOWEST = 10.0
"""What the slowest model that is let in adds to the cost of a unit; the game itself costs 1."""


@dataclass(frozen=True)
class Beliefs:
    """What the ratings as published say. names: [N] sorted. strength: [N] points. variance: [N] points squared;
    covariance: [N, N] of small fields. prior_sd: points, of those who are not rated yet. state: changes with them."""

    names: tuple[str, ...]
    strength: F64
    variance: F64
    covariance: F64 | None
    prior_sd: float
    state: object


def read_beliefs(connection: Connection, env: str, known: Beliefs | None) -> Beliefs | None:
    """As they stand now; `known` where that is the same. None before the first."""
    columns = [fields.c[name] for name in ("upto_seq", "prior_sd", "intervals_seq")]
    state = connection.execute(select(*columns).where(fields.c.env == env)).first()
    if state is None or (known is not None and known.state == tuple(state)):
        return known if state is not None else None
    rated = select(ratings.c.sha256, ratings.c.rating, ratings.c.variance).where(ratings.c.env == env)
    rows = connection.execute(rated.order_by(ratings.c.sha256)).all()
    triangle = connection.scalar(select(fields.c.covariance).where(fields.c.env == env))
    covariance = unpacked(triangle) if triangle is not None else None
    if covariance is not None and len(covariance) != len(rows):  # published in between
        return known
    return Beliefs(
        tuple(row.sha256 for row in rows),
        np.array([row.rating - DISPLAY_BASE for row in rows]),
        np.array([row.variance for row in rows]),
        covariance,
        state.prior_sd,
        tuple(state),
    )


@dataclass
class Ledger:
    """Units of an env that the log holds; begun with what it was added up to, and read on from where that stopped.

    early: meetings of this season by then, as numbers of `numbers` and counts. meetings: those since, by (sha256,
    sha256) in alphabetical order. units: of each entity in all seasons. last_seq: newest match of each entity.
    recent: sides of the newest units, trials included. placed: `early` among these entrants, in their order.
    """

    env: str
    season: int
    upto_seq: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    early: tuple[I64, I64, I64] = field(default_factory=lambda: (_NOBODY, _NOBODY, _NOBODY))
    meetings: Counter[tuple[str, str]] = field(default_factory=Counter)
    units: Counter[str] = field(default_factory=Counter)
    last_seq: dict[str, int] = field(default_factory=dict)
    recent: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=RECENT_UNITS))
    placed: tuple[tuple[str, ...], Meetings] | None = None

    def read(self, connection: Connection) -> None:
        """Take in what was logged since."""
        if not self.upto_seq:
            self._begin(connection)
        columns = [matches.c[name] for name in ("seq", "blue", "purple", "season", "leg")]
        new = (matches.c.env == self.env) & (matches.c.seq > self.upto_seq)
        for row in connection.execute(select(*columns).where(new).order_by(matches.c.seq)):
            self.upto_seq = row.seq
            self.last_seq[row.blue] = self.last_seq[row.purple] = row.seq
            if row.leg == 1:
                self.recent.append((row.blue, row.purple))
            if row.leg == 1 and row.season > 0:  # trials of new files belong to no season
                self.units.update((row.blue, row.purple))
                if row.season == self.season:
                    self.meetings[pair_of(row.blue, row.purple)] += 1

    def _begin(self, connection: Connection) -> None:
        """With the sums, so that no start reads the whole log."""
        self.upto_seq = connection.scalar(select(intake.c.upto_seq).where(intake.c.env == self.env)) or 0
        columns = [pair_sums.c[name] for name in ("season", "low", "high", "counts")]
        sums = select(*columns).where(pair_sums.c.env == self.env).execution_options(yield_per=ROWS_AT_ONCE)
        numbers, met, counts = self.numbers, list[tuple[int, int, int]](), [_NOBODY]
        for rows in connection.execute(sums).partitions():
            for row in rows:
                low, high = (numbers.setdefault(sha256, len(numbers)) for sha256 in (row.low, row.high))
                met.append((row.season, low, high))
            counts.append(np.frombuffer(b"".join(row.counts for row in rows), "<i4").reshape(-1, 16).sum(axis=1))
        season, first, second = np.array(met, np.int64).reshape(-1, 3).T
        units = np.concatenate(counts)
        played = np.where(season > 0, units, 0)
        both = np.bincount(first, played, len(self.numbers)) + np.bincount(second, played, len(self.numbers))
        self.units.update(dict(zip(self.numbers, both.astype(np.int64).tolist(), strict=True)))
        now = season == self.season
        self.early = first[now], second[now], units[now].astype(np.int64)
        last = select(player_sums.c.sha256, player_sums.c.last_seq).where(player_sums.c.env == self.env)
        self.last_seq = {row.sha256: row.last_seq for row in connection.execute(last)}
        newest = (matches.c.env == self.env) & (matches.c.leg == 1) & (matches.c.seq <= self.upto_seq)
        sides = select(matches.c.blue, matches.c.purple).where(newest).order_by(matches.c.seq.desc())
        found = connection.execute(sides.limit(RECENT_UNITS)).all()
        self.recent.extend((row.blue, row.purple) for row in reversed(found))


def take_picture(
    entrants: Sequence[Entity],
    known: Mapping[str, Entity],
    ledger: Ledger,
    waiting: Sequence[Unit],
    given_up: Iterable[Unit],
    beliefs: Beliefs | None,
    settings: ArenaSettings,
) -> Picture:
    """The field as `matchmaking.choose` wants it, in the order of the entrants.

    known: by SHA-256 every entity that was ever accepted: those replaced since have taken time too.
    waiting: units that are queued or played now.   given_up: units that nobody could play; they count as meetings, or
    they would be ordered for ever.
    """
    index = {entrant.sha256: i for i, entrant in enumerate(entrants)}
    queued = np.zeros(len(entrants), np.int64)
    late = Counter(ledger.meetings)
    for order in waiting:
        late[pair_of(*_ids(order))] += 1
        for side in order.contenders:
            if side.sha256 in index:
                queued[index[side.sha256]] += 1
    late.update(pair_of(*_ids(order)) for order in given_up)
    strength, variance, covariance = _beliefs(entrants, beliefs)
    units = np.array([ledger.units[entrant.sha256] for entrant in entrants], np.int64)
    last = np.array([ledger.last_seq.get(entrant.sha256, 0) for entrant in entrants], np.float64)
    return Picture(
        strength=strength,
        variance=variance,
        covariance=covariance,
        idle=ledger.upto_seq - last,
        owner=_owners(entrants),
        meetings=_meetings(index, ledger, late),
        queued=queued,
        entry_left=np.maximum(settings.entry_pairs - units - queued, 0),
        over=_over(entrants, known, ledger, waiting, settings),
    )


def _meetings(index: Mapping[str, int], ledger: Ledger, late: Mapping[tuple[str, str], int]) -> Meetings:
    """index: place of each entrant. late: meetings that are not among the ledger's early ones."""
    names = tuple(index)
    if ledger.placed is None or ledger.placed[0] != names:
        place = np.array([index.get(name, -1) for name in ledger.numbers] or [-1], np.int64)
        first, second, count = ledger.early
        ledger.placed = names, _met(len(index), place[first], place[second], count)
    more = [(index[a], index[b], met) for (a, b), met in late.items() if a in index and b in index]
    table = np.array(more, np.int64).reshape(-1, 3).T
    return replace(_met(len(index), *table), before=ledger.placed[1])


def _met(n: int, first: I64, second: I64, count: I64) -> Meetings:
    """first, second: places of two that met so often, -1 of who is not among the n."""
    among = (first >= 0) & (second >= 0)
    keys = (np.minimum(first, second) * n + np.maximum(first, second))[among]
    met, of = np.unique(keys, return_inverse=True)
    return Meetings(n, met, np.bincount(of.reshape(-1), count[among], len(met)).astype(np.int64))


def pair_of(a: str, b: str) -> tuple[str, str]:
    """Two entities in alphabetical order: who met whom, whatever the sides."""
    return (a, b) if a <= b else (b, a)


def _owners(entrants: Sequence[Entity]) -> I64:
    """[N] a number for each owner that entrants are credited with, whose models are not rated against each other; -1
    for house players, which may meet.

    Whoever pushes copies of others' models owns none of them, or copies would keep those others apart.
    """
    numbers: dict[str, int] = {}
    owners = (e.owner if e.house is None else None for e in entrants)
    return np.array([-1 if name is None else numbers.setdefault(name, len(numbers)) for name in owners], np.int64)


def _over(
    entrants: Sequence[Entity],
    known: Mapping[str, Entity],
    ledger: Ledger,
    waiting: Sequence[Unit],
    settings: ArenaSettings,
) -> Bool:
    """[N] models whose owner took more than SHARE times an even share of the workers' time, and more than one newcomer
    needs. A unit is charged to both sides, each by the time that its own model takes to answer."""
    slowest_ms = game_of(ledger.env).max_p99_ms
    taken: dict[str, float] = defaultdict(float)
    sides = [*ledger.recent, *(_ids(order) for order in waiting)]
    for sha256 in itertools.chain.from_iterable(sides):
        entrant = known.get(sha256)
        if entrant is not None and entrant.house is None:
            taken[entrant.owner] += 1.0 + SLOWEST * min(entrant.p99_ms / slowest_ms, 1.0)
    owners = {entrant.owner for entrant in entrants if entrant.house is None}
    even = sum(taken[owner] for owner in owners) / max(len(owners), 1)
    allowed = max(SHARE * even, 2.0 * settings.entry_pairs)
    return np.array([entrant.house is None and taken[entrant.owner] > allowed for entrant in entrants], np.bool_)


def _beliefs(entrants: Sequence[Entity], beliefs: Beliefs | None) -> tuple[F64, F64, F64 | None]:
    """Strengths, variances and covariance; who is not rated yet has the prior's."""
    n = len(entrants)
    if beliefs is None:
        return np.zeros(n), np.full(n, PRIOR_SD**2), None
    place = {name: i for i, name in enumerate(beliefs.names)}
    known = np.array([i for i, entrant in enumerate(entrants) if entrant.sha256 in place], np.int64)
    rows = np.array([place[entrants[i].sha256] for i in known.tolist()], np.int64)
    strength, variance = np.zeros(n), np.full(n, beliefs.prior_sd**2)
    strength[known], variance[known] = beliefs.strength[rows], beliefs.variance[rows]
    if beliefs.covariance is None:
        return strength, variance, None
    covariance = np.diag(variance)
    covariance[np.ix_(known, known)] = beliefs.covariance[np.ix_(rows, rows)]
    return strength, variance, covariance


def _ids(order: Unit) -> tuple[str, str]:
    first, second = order.contenders
    return first.sha256, second.sha256
