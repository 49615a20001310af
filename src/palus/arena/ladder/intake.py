"""What the log of an env adds up to, kept as it grows: units by pairing and season, everybody's online ratings.

What is struck out later is taken out by going back to the last point of the history of ratings before it, and on from
there: sums are exact, and a point holds the online ratings of then. Only what was logged since then is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, Select, bindparam, delete, func, insert, select

from palus.arena.ladder.census import Census, load_census, save_census
from palus.arena.ladder.derive import next_point
from palus.arena.referee.result import POINTS
from palus.errors import ArenaError
from palus.ratings.games import Played
from palus.ratings.online import Online, Skill, follow
from palus.ratings.sums import NONE, Sums, outcome, sums_of
from palus.store.derived import intake, left_out, pair_sums, player_sums, rating_points
from palus.store.tables import annulments, matches
from palus.types import I32

_READ = 20_000
"""Matches that are read at once."""
_TAIL = 200_000
"""Matches that a page counts itself, at most."""
_ROOM = 4
"""Rows at first; there is always twice as much room as was needed last."""
_IDS = 500
"""Names in one condition."""
_COLUMNS = [
    matches.c[name]
    for name in ("seq", "id", "unit_id", "env", "season", "blue", "purple", "result", "rated", "finished_ms")
]

Key = tuple[int, str, str]
"""Season, and two entities in alphabetical order."""


@dataclass
class Intake:
    """What is known of one env. Sums and online ratings are those of the matches up to `upto_seq` that nobody struck
    out.

    place: row of each pairing and season. counts: [rows, 4, 4] `Sums.counts` of it; sides: [rows, 2] its entities, as
    numbered in `numbers`. last: newest match of each entity, number and time. matches: of the env up to `seen_seq`, all
    of them. games: that count, the newest of them `rated_seq`. pointed: games of each player at its last point. struck:
    what is left out; struck_saved: of that, what the store holds. looked_seq: the log has none of the env's after
    `upto_seq` up to here. changed, players_changed: what the store does not hold yet; saved: what it held when it was
    last looked at.
    """

    env: str
    upto_seq: int = 0
    rated_seq: int = 0
    rated_ms: int = 0
    seen_seq: int = 0
    matches: int = 0
    games: int = 0
    place: dict[Key, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    counts: I32 = field(default_factory=lambda: np.zeros((_ROOM, 4, 4), np.int32))
    sides: I32 = field(default_factory=lambda: np.zeros((_ROOM, 2), np.int32))
    online: dict[str, Online] = field(default_factory=dict)
    last: dict[str, tuple[int, int]] = field(default_factory=dict)
    pointed: dict[str, int] = field(default_factory=dict)
    looked_seq: int = 0
    struck: set[str] = field(default_factory=set)
    struck_saved: set[str] = field(default_factory=set)
    changed: set[Key] = field(default_factory=set)
    players_changed: set[str] = field(default_factory=set)
    saved: object = None
    census: Census = field(default_factory=Census)

    def sums(self) -> Sums:
        """All seasons together: pairings with a game that counts."""
        counts, sides = self.counts[: len(self.place)], self.sides[: len(self.place)]
        met = np.flatnonzero(counts.reshape(-1, 16)[:, 1:].any(axis=1))
        players, of_player = np.unique(sides[met], return_inverse=True)
        texts = list(self.numbers)
        names, n = [texts[i] for i in players.tolist()], max(len(players), 1)
        low, high = of_player.reshape(-1, 2).astype(np.int64).T
        pairs, of = np.unique(low * n + high, return_inverse=True)
        added = np.zeros((len(pairs), 4, 4), np.int32)
        np.add.at(added, of.reshape(-1), counts[met])
        return sums_of(names, pairs // n, pairs % n, added)

    def adjust(self, key: Key, fewer: Iterable[tuple[int, int]], more: Iterable[tuple[int, int]]) -> None:
        """Count units of some kinds less often, of others more."""
        row = self.row(key)  # may make room
        for kind in fewer:
            self.counts[row][kind] -= 1
        for kind in more:
            self.counts[row][kind] += 1
        self.changed.add(key)

    def row(self, key: Key) -> int:
        """Of a pairing in a season; a new one where there is none."""
        place = self.place.setdefault(key, len(self.place))
        if place == len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros_like(self.counts)])
            self.sides = np.concatenate([self.sides, np.zeros_like(self.sides)])
        if place == len(self.place) - 1:
            self.sides[place] = [self.numbers.setdefault(name, len(self.numbers)) for name in key[1:]]
        return place


def load(connection: Connection, env: str) -> Intake:
    """As it was saved last; empty where it never was."""
    last = connection.execute(select(intake).where(intake.c.env == env)).first()
    if last is None:
        return Intake(env)
    known = Intake(env, last.upto_seq, last.rated_seq, last.rated_ms, last.seen_seq, last.matches, saved=tuple(last))
    known.census = load_census(connection, env)
    known.struck = set(connection.scalars(select(left_out.c.match_id).where(left_out.c.env == env)))
    known.struck_saved = known.struck
    wanted = select(pair_sums.c.season, pair_sums.c.low, pair_sums.c.high, pair_sums.c.counts)
    for season, low, high, counts in connection.execute(wanted.where(pair_sums.c.env == env)):
        row = known.row((season, low, high))
        known.counts[row] = np.frombuffer(counts, "<i4").reshape(4, 4)
    for player in connection.execute(select(player_sums).where(player_sums.c.env == env)):
        known.online[player.sha256] = Online(player.elo, Skill(player.openskill_mu, player.openskill_sigma))
        known.last[player.sha256] = (player.last_seq, player.last_ms)
    known.games, known.looked_seq = known.sums().games, last.upto_seq
    known.pointed = {point.sha256: point.games for point in _latest_points(connection, env, last.upto_seq)}
    return known


def read_counts(connection: Connection, env: str) -> Census:
    """The census of an env with what was logged since it was saved, at most `_TAIL` matches of that."""
    upto = connection.scalar(select(intake.c.upto_seq).where(intake.c.env == env)) or 0
    found, struck = load_census(connection, env), struck_out(connection, env)
    for rows in _read(connection, env, upto, upto + _TAIL):
        for row in rows:
            found.add(row, int(row.rated and row.id not in struck), first=True)
    return found


def read_sums(connection: Connection, env: str, players: Sequence[str]) -> Sums:
    """Of these players' units against each other, as saved last; `Sums.names` are the players as they come."""
    place = {name: i for i, name in enumerate(players)}
    own = (pair_sums.c.env == env) & pair_sums.c.low.in_(place) & pair_sums.c.high.in_(place)
    rows = connection.execute(select(pair_sums.c.low, pair_sums.c.high, pair_sums.c.counts).where(own)).all()
    counts = np.frombuffer(b"".join(row.counts for row in rows), "<i4").astype(np.int32).reshape(-1, 4, 4)
    low, high = (np.array([place[row[side]] for row in rows], np.int64) for side in (0, 1))
    return Sums(tuple(players), low, high, counts)


def save(connection: Connection, known: Intake) -> None:
    """Bring the store up to date, in the caller's transaction.

    Raises ArenaError when somebody else did meanwhile: what is known is to be loaded again.
    """
    found = connection.execute(select(intake).where(intake.c.env == known.env).with_for_update()).first()
    if (tuple(found) if found else None) != known.saved:
        raise ArenaError(f"another process rates {known.env} on this store; one of them is left over and will end")
    env, of_env = known.env, pair_sums.c.env == known.env
    if 2 * len(known.changed) > len(known.place):  # one by one would take longer
        connection.execute(delete(pair_sums).where(of_env))
        keys: Iterable[Key] = known.place
    else:
        keys = known.changed
        one = (pair_sums.c.season == bindparam("a")) & (pair_sums.c.low == bindparam("b"))
        gone = delete(pair_sums).where(of_env, one, pair_sums.c.high == bindparam("c"))
        if keys:
            connection.execute(gone, [dict(zip("abc", key, strict=True)) for key in keys])
    rows = [row for key in sorted(keys) if (row := _pair_row(known, key)) is not None]
    for start in range(0, len(rows), _READ):
        connection.execute(insert(pair_sums), rows[start : start + _READ])
    players = sorted(known.players_changed)
    if players:
        gone = delete(player_sums).where(player_sums.c.env == env, player_sums.c.sha256 == bindparam("a"))
        connection.execute(gone, [{"a": name} for name in players])
        connection.execute(insert(player_sums), [_player_row(known, name) for name in players])
    save_census(connection, env, known.census)
    new = [{"match_id": name, "env": env} for name in sorted(known.struck - known.struck_saved)]
    if new:  # the others stay: there may be as many as an account has ever sent
        connection.execute(insert(left_out), new)
    connection.execute(delete(intake).where(intake.c.env == env))
    numbers = {name: getattr(known, name) for name in ("upto_seq", "rated_seq", "rated_ms", "seen_seq", "matches")}
    connection.execute(insert(intake).values(env=env, **numbers))
    known.saved = tuple(connection.execute(select(intake).where(intake.c.env == env)).one())
    known.struck_saved = known.struck
    known.changed.clear()
    known.players_changed.clear()


def struck_out(connection: Connection, env: str) -> set[str]:
    """Ids of an env's matches that were struck out."""
    both = annulments.join(matches, matches.c.id == annulments.c.match_id)
    return set(connection.scalars(select(annulments.c.match_id).select_from(both).where(matches.c.env == env)))


def go_back(connection: Connection, known: Intake, struck: set[str]) -> None:
    """Leave out what is struck out now: before the first such match that was taken in, at the point before it.

    Void and unrated ones are left out, too: they count as meetings. Points after that are to be made again.
    """
    new = sorted(struck - known.struck)
    firsts = []
    for start in range(0, len(new), _IDS):
        wanted = matches.c.id.in_(new[start : start + _IDS]) & (matches.c.seq <= known.upto_seq)
        firsts.append(connection.scalar(select(func.min(matches.c.seq)).where(wanted)))
    first = min((seq for seq in firsts if seq is not None), default=None)
    if first is not None:
        _rewind(connection, known, first)
    known.struck = struck


def _rewind(connection: Connection, known: Intake, first: int) -> None:
    """To the last point before match `first`."""
    points = {row.sha256: row for row in _latest_points(connection, known.env, first - 1)}
    seq = max((row.seq for row in points.values()), default=0)
    end = known.upto_seq
    for rows in _read(connection, known.env, seq, end):
        for key, before, after in _units(connection, known, rows):
            known.adjust(key, fewer=after, more=before)
        for row in rows:
            known.census.add(row, -int(row.rated and row.id not in known.struck))
    known.players_changed |= known.online.keys()
    known.online = {name: Online(row.elo, Skill(row.openskill_mu, row.openskill_sigma)) for name, row in points.items()}
    known.pointed = {name: row.games for name, row in points.items()}
    known.games = known.sums().games
    known.upto_seq = known.looked_seq = known.rated_seq = seq
    known.rated_ms = max((row.at_ms for row in points.values() if row.seq == seq), default=0)


def read_on(connection: Connection, known: Intake, at_point: Callable[[], None]) -> None:
    """Take in what was logged since. at_point: called where the history of ratings has its next point."""
    head = connection.scalar(select(func.max(matches.c.seq))) or 0
    for rows in _read(connection, known.env, known.looked_seq, head):
        for piece, is_point in _pieces(rows, known):
            _take_in(connection, known, piece)
            if is_point:
                at_point()
    known.looked_seq = head


def _pieces(rows: Sequence[Row[Any]], known: Intake) -> Iterator[tuple[Sequence[Row[Any]], bool]]:
    """The rows, cut where a point is due."""
    games, start = known.games, 0
    due = next_point(games)
    for i, row in enumerate(rows):
        games += _counts(row, known.struck)
        if games == due:
            yield rows[start : i + 1], True
            start, due = i + 1, next_point(games)
    if start < len(rows):
        yield rows[start:], False


def _take_in(connection: Connection, known: Intake, rows: Sequence[Row[Any]]) -> None:
    for key, before, after in _units(connection, known, rows):
        known.adjust(key, fewer=before, more=after)
    counted = [row for row in rows if _counts(row, known.struck)]
    follow(
        known.online,
        (Played(row.seq, row.id, row.unit_id, row.blue, row.purple, POINTS[row.result]) for row in counted),
    )
    known.games += len(counted)
    if counted:
        known.rated_seq, known.rated_ms = counted[-1].seq, counted[-1].finished_ms
    for row in rows:
        known.census.add(row, int(row.rated and row.id not in known.struck), first=row.seq > known.seen_seq)
        if row.seq > known.seen_seq:
            known.last[row.blue] = known.last[row.purple] = (row.seq, row.finished_ms)
            known.matches += 1
        known.players_changed |= {row.blue, row.purple}
    known.upto_seq = rows[-1].seq
    known.seen_seq = max(known.seen_seq, known.upto_seq)


def _units(
    connection: Connection, known: Intake, rows: Sequence[Row[Any]]
) -> Iterator[tuple[Key, list[tuple[int, int]], list[tuple[int, int]]]]:
    """Units that these rows, the next of the log, have matches of: the kinds without them, and with them."""
    grouped = _by_unit(rows, known.struck)
    alone = sorted({unit for (unit, _), found in grouped.items() if len(found) == 1})
    others: list[Row[Any]] = []
    for start in range(0, len(alone), _IDS):  # their other leg may stand before these rows
        wanted = (matches.c.env == known.env) & matches.c.unit_id.in_(alone[start : start + _IDS])
        before = select(*_COLUMNS).where(wanted, matches.c.seq < rows[0].seq).order_by(matches.c.seq)
        others += connection.execute(before)
    earlier = _by_unit(others, known.struck)
    for unit, found in grouped.items():
        known_ones = earlier.get(unit, [])
        yield unit[1], _kinds(known_ones), _kinds([*known_ones, *found])


def _by_unit(rows: Iterable[Row[Any]], struck: set[str]) -> dict[tuple[str, Key], list[Row[Any]]]:
    """Matches of two that nobody struck out, by unit and who met when."""
    grouped: dict[tuple[str, Key], list[Row[Any]]] = {}
    for row in rows:
        if row.id not in struck and row.blue != row.purple:
            low, high = sorted((row.blue, row.purple))
            grouped.setdefault((row.unit_id, (row.season, low, high)), []).append(row)
    return grouped


def _kinds(rows: Iterable[Row[Any]]) -> list[tuple[int, int]]:
    """Matches of one unit as kinds of `Sums`: one, and one more for each game beyond one for each side."""
    kinds: list[list[int]] = []
    for row in rows:
        leg, ended = int(row.blue > row.purple), NONE
        if row.rated:
            _, _, leg, ended = outcome(leg, 1 - leg, POINTS[row.result])
        if not kinds:
            kinds.append([NONE, NONE])
        if ended == NONE:
            continue
        if kinds[0][leg] == NONE:
            kinds[0][leg] = ended
        else:
            kinds.append([NONE, NONE])
            kinds[-1][leg] = ended
    return [(a, b) for a, b in kinds]


def _counts(row: Row[Any], struck: set[str]) -> bool:
    return row.rated and row.blue != row.purple and row.id not in struck


def _read(connection: Connection, env: str, after: int, upto: int) -> Iterator[Sequence[Row[Any]]]:
    own = (matches.c.env == env) & (matches.c.seq <= upto)
    wanted: Select[Any] = select(*_COLUMNS, matches.c.record).where(own).order_by(matches.c.seq).limit(_READ)
    while rows := connection.execute(wanted.where(matches.c.seq > after)).all():
        yield rows
        after = rows[-1].seq


def _latest_points(connection: Connection, env: str, upto_seq: int) -> Sequence[Row[Any]]:
    """The newest point of each player up to a match."""
    own = (rating_points.c.env == env) & (rating_points.c.seq <= upto_seq)
    newest = (
        select(rating_points.c.sha256, func.max(rating_points.c.seq).label("seq"))
        .where(own)
        .group_by(rating_points.c.sha256)
        .subquery()
    )
    same = (rating_points.c.sha256 == newest.c.sha256) & (rating_points.c.seq == newest.c.seq)
    return connection.execute(select(rating_points).join(newest, same).where(own)).all()


def _pair_row(known: Intake, key: Key) -> dict[str, Any] | None:
    counts = known.counts[known.place[key]]
    if not counts.any():
        return None
    season, low, high = key
    return {"env": known.env, "season": season, "low": low, "high": high, "counts": counts.astype("<i4").tobytes()}


def _player_row(known: Intake, name: str) -> dict[str, Any]:
    online, (seq, ms) = known.online.get(name, Online()), known.last[name]
    return {
        "env": known.env,
        "sha256": name,
        "elo": online.elo,
        "openskill_mu": online.skill.mu,
        "openskill_sigma": online.skill.sigma,
        "last_seq": seq,
        "last_ms": ms,
    }
