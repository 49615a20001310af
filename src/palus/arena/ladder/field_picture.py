"""Gathers what matchmaking wants to know about an env: who is ranked, who met whom, who waits, what the fit says, and
whose models took how much of the workers' time."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import Connection, select

from palus.arena.ladder.derive import Fitted
from palus.arena.ladder.matchmaking import Picture
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity
from palus.arena.referee.games import game_of
from palus.store.tables import matches
from palus.types import F64, Bool

RECENT_UNITS = 1000
"""Of which the workers' time is shared out."""
SHARE = 2.0
"""Times its even share that an owner may take before others go first. Information decides within that."""
SLOWEST = 10.0
"""What the slowest model that is let in adds to the cost of a unit; the game itself costs 1."""


@dataclass
class Ledger:
    """Units of an env that the log holds; read on from where it stopped.

    meetings: of this season, by (sha256, sha256) in alphabetical order. units: of each entity in all seasons.
    last_seq: newest match of each entity.   recent: sides of the newest units, trials included.
    """

    env: str
    season: int
    upto_seq: int = 0
    meetings: Counter[tuple[str, str]] = field(default_factory=Counter)
    units: Counter[str] = field(default_factory=Counter)
    last_seq: dict[str, int] = field(default_factory=dict)
    recent: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=RECENT_UNITS))

    def read(self, connection: Connection) -> None:
        """Take in what was logged since."""
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


def take_picture(
    entrants: Sequence[Entity],
    known: Mapping[str, Entity],
    ledger: Ledger,
    waiting: Sequence[Unit],
    given_up: Iterable[Unit],
    fitted: Fitted | None,
    settings: ArenaSettings,
) -> Picture:
    """The field as `matchmaking.choose` wants it, in the order of the entrants.

    known: by SHA-256 every entity that was ever accepted: those replaced since have taken time too.
    waiting: units that are queued or played now.   given_up: units that nobody could play; they count as meetings, or
    they would be ordered for ever.
    """
    index = {entrant.sha256: i for i, entrant in enumerate(entrants)}
    n = len(entrants)
    meetings, queued = np.zeros((n, n), np.int64), np.zeros(n, np.int64)
    met = Counter(ledger.meetings)
    for order in waiting:
        met[pair_of(*_ids(order))] += 1
        for side in order.contenders:
            if side.sha256 in index:
                queued[index[side.sha256]] += 1
    met.update(pair_of(*_ids(order)) for order in given_up)
    for (a, b), count in met.items():
        if a in index and b in index:
            meetings[index[a], index[b]] = meetings[index[b], index[a]] = count
    strength, covariance = _beliefs(entrants, fitted)
    units = np.array([ledger.units[entrant.sha256] for entrant in entrants], np.int64)
    last = np.array([ledger.last_seq.get(entrant.sha256, 0) for entrant in entrants], np.float64)
    return Picture(
        strength=strength,
        covariance=covariance,
        idle=ledger.upto_seq - last,
        barred=_barred(entrants),
        meetings=meetings,
        queued=queued,
        entry_left=np.maximum(settings.entry_pairs - units - queued, 0),
        over=_over(entrants, known, ledger, waiting, settings),
    )


def pair_of(a: str, b: str) -> tuple[str, str]:
    """Two entities in alphabetical order: who met whom, whatever the sides."""
    return (a, b) if a <= b else (b, a)


def _barred(entrants: Sequence[Entity]) -> Bool:
    """[N, N] pairings that are not rated: itself, and models that one owner is credited with. House players may meet.

    Whoever pushes copies of others' models owns none of them, or copies would keep those others apart.
    """
    barred = np.eye(len(entrants), dtype=np.bool_)
    of_owner: dict[str, list[int]] = {}
    for i, entrant in enumerate(entrants):
        if entrant.house is None:
            of_owner.setdefault(entrant.owner, []).append(i)
    for owned in of_owner.values():
        barred[np.ix_(owned, owned)] = True
    return barred


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


def _beliefs(entrants: Sequence[Entity], fitted: Fitted | None) -> tuple[F64, F64 | None]:
    """Strengths and their covariance from the last fit; who is not in it yet has the prior's."""
    n = len(entrants)
    if fitted is None:
        return np.zeros(n), None
    place = {name: i for i, name in enumerate(fitted.field.names)}
    known = np.array([i for i, entrant in enumerate(entrants) if entrant.sha256 in place], np.int64)
    rows = np.array([place[entrants[i].sha256] for i in known.tolist()], np.int64)
    strength, covariance = np.zeros(n), fitted.fit.prior_sd**2 * np.eye(n)
    strength[known] = fitted.fit.strength[rows]
    covariance[np.ix_(known, known)] = fitted.fit.covariance[np.ix_(rows, rows)]
    return strength, covariance


def _ids(order: Unit) -> tuple[str, str]:
    first, second = order.contenders
    return first.sha256, second.sha256
