"""Who takes part: revisions become entries, entries are validated, and the board is drawn from those accepted.

The rated entity is a set of model files, one per behavior, named by the SHA-256 of all. Sets that compute the same,
byte for byte equal or not, are one entity, named after the first of them that was checked and credited to whoever
pushed it first; what validation said holds for every copy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, case, delete, exists, func, insert, select, tuple_, update

from palus.arena.ladder import queue
from palus.arena.ladder.discovery import MISSING_FILE, Entry, Sweep
from palus.arena.models.entity import Entity
from palus.arena.models.refusal import Refusal
from palus.arena.models.rules import arena_rules
from palus.arena.referee.games import game_of
from palus.store import Store
from palus.store.tables import accounts, entries, jobs, matches

GIVEN_UP = "validation-failed"
"""Code of a refusal that says nothing of the model: no worker came to the end of its check."""
HOUR_MS = 3_600_000
FORGOTTEN_AT_ONCE = 5000
ALIKE_KEPT = 20
"""Revisions of a repository that bring the same files, and were checked: the newest that are kept, beside the first."""
_AT_ONCE, _FEW = 500, 30
"""Names in one condition; in one of two, each of which is looked for with each of the other."""
_NAMES = ("id", "source", "repo", "owner", "revision", "files", "sha256", "state", "details", "pushed_ms")
_COLUMNS = select(*(entries.c[name] for name in _NAMES))
"""All that the board is made of."""


@dataclass(frozen=True)
class Change:
    """An entry that is new or has another state now, for those who watch the arena."""

    repo: str
    revision: str
    state: str


def news(connection: Connection, sweep: Sweep, params: Mapping[str, Any] | None) -> Sweep | None:
    """What `take_in` would change anything for; None for nothing. Reads only, so that nobody waits for it."""
    sweep = _without_names_here(connection, sweep)
    known = _known(connection, sweep)
    found = [entry for entry in sweep.found if _is_due(known.get((entry.entity.repo, entry.entity.revision)), params)]
    return replace(sweep, found=tuple(found)) if found or _gone(connection, sweep) else None


def take_in(connection: Connection, sweep: Sweep, params: Mapping[str, Any] | None, *, now_ms: int) -> list[Change]:
    """Bring the entries in line with what a source offers, or with the `news` of it.

    params: what the game's matches are set to here; None when this arena does not play the game: entries then wait
    until it does. New revisions are queued for validation, or share the verdict on an equal file. Entries of
    repositories that are gone or no longer ask for matches are withdrawn; they come back with the repository. What
    another hub has under the name of somebody here is as good as gone: two people would be one owner. Where an earlier
    accepted revision is offered again, as when a file of a folder is put back, those that came after it are withdrawn.
    """
    sweep = _without_names_here(connection, sweep)
    known, asked = _known(connection, sweep), _asked_lately(connection, now_ms)
    changes = []
    for found in sweep.found:
        entity = found.entity
        row = known.get((entity.repo, entity.revision))
        if not _is_due(row, params):
            continue
        if row is None:
            verdict = _judge(connection, sweep, found, params, asked, now_ms)
            facts = {
                "source": sweep.source,
                "repo": entity.repo,
                "owner": entity.owner,
                "revision": entity.revision,
                "env": sweep.env,
                "files": _json(dict(entity.files)),
                "sha256": entity.sha256 or None,
                "file_sha256": entity.sha256 or None,
                "details": "{}",
                "pushed_ms": found.pushed_ms or now_ms,
            }
            connection.execute(insert(entries).values(facts | verdict))
            changes.append(Change(entity.repo, entity.revision, verdict["state"]))
        elif row.checked_ms is None:
            changes.append(_set(connection, row, _judge(connection, sweep, found, params, asked, now_ms)))
        else:
            state = "accepted" if row.code is None else "refused"
            if row.state != state:
                changes.append(_set(connection, row, {"state": state}))
            if state == "accepted":
                changes += [_set(connection, later, {"state": "withdrawn"}) for later in _later(connection, row)]
    return changes + [_set(connection, row, {"state": "withdrawn"}) for row in _gone(connection, sweep)]


def _without_names_here(connection: Connection, sweep: Sweep) -> Sweep:
    if sweep.source != "hf":
        return sweep
    ours = owners_here(connection)
    return replace(
        sweep,
        found=tuple(entry for entry in sweep.found if entry.entity.owner.lower() not in ours),
        present=frozenset(repo for repo in sweep.present if repo.partition("/")[0].lower() not in ours),
    )


def _known(connection: Connection, sweep: Sweep) -> dict[tuple[str, str], Row[Any]]:
    """The entries of what a sweep found, by repository and revision: not all that there ever were."""
    columns = [entries.c[name] for name in ("id", "source", "env", "repo", "revision", "state", "code", "checked_ms")]
    wanted = select(*columns, is_current().label("is_current")).where(entries.c.env == sweep.env)
    rows: list[Row[Any]] = []
    for start in range(0, len(sweep.found), _FEW):
        some = [entry.entity for entry in sweep.found[start : start + _FEW]]
        named = entries.c.repo.in_([entity.repo for entity in some])
        rows += connection.execute(wanted.where(named, entries.c.revision.in_([entity.revision for entity in some])))
    return {(row.repo, row.revision): row for row in rows}


def _is_due(row: Row[Any] | None, params: Mapping[str, Any] | None) -> bool:
    """Whether a revision that is offered has no entry, or another state than it should have."""
    if row is None:
        return True
    if row.checked_ms is None:
        return bool(row.state != ("pending" if params is not None else "waiting"))
    return bool(not row.is_current and (row.state != "waiting" or params is not None))


def is_current() -> ColumnElement[bool]:
    """Of an entry whose revision is offered: whether it has the state that it should have, as long as its game is
    played. Withdrawn ones come back, and an accepted one is not behind a later one."""
    later = entries.alias()
    same = (later.c.source == entries.c.source) & (later.c.repo == entries.c.repo) & (later.c.env == entries.c.env)
    behind = exists().where(same, later.c.id > entries.c.id, later.c.state == "accepted")
    return entries.c.state.in_(("pending", "refused")) | ((entries.c.state == "accepted") & ~behind)


def _later(connection: Connection, row: Row[Any]) -> Sequence[Row[Any]]:
    """Accepted revisions of an entry's repository that came after it."""
    same = (entries.c.source == row.source) & (entries.c.repo == row.repo) & (entries.c.env == row.env)
    wanted = select(entries).where(same, entries.c.id > row.id, entries.c.state == "accepted")
    return connection.execute(wanted.order_by(entries.c.id)).all()


def _gone(connection: Connection, sweep: Sweep) -> list[Row[Any]]:
    """Entries that are to be withdrawn."""
    live = entries.c.state.in_(("pending", "waiting", "accepted", "refused")) & (entries.c.env == sweep.env)
    there = connection.execute(select(entries.c.source, entries.c.repo).where(live).distinct()).all()
    ours = owners_here(connection) if any(row.source == "hf" for row in there) else set()
    gone = [
        (row.source, row.repo)
        for row in there
        if (row.source == sweep.source and row.repo not in sweep.present)
        or (row.source == "hf" and row.repo.partition("/")[0].lower() in ours)
    ]
    rows: list[Row[Any]] = []
    for start in range(0, len(gone), _AT_ONCE):
        named = tuple_(entries.c.source, entries.c.repo).in_(gone[start : start + _AT_ONCE])
        rows += connection.execute(select(entries).where(live, named))
    return sorted(rows, key=lambda row: row.id)


def forget(store: Store, *, before_ms: int) -> int:
    """Delete entries that were refused before a time, have no match in the log, and that their repositories show no
    more: those are gone, or have newer revisions. Returns how many those were. What is pushed again is checked again.
    """
    newer = entries.alias()
    replaced = exists().where(newer.c.repo == entries.c.repo, newer.c.env == entries.c.env, newer.c.id > entries.c.id)
    played = exists().where(matches.c.blue == entries.c.sha256) | exists().where(matches.c.purple == entries.c.sha256)
    refused = entries.c.code.is_not(None) & (entries.c.checked_ms < before_ms)
    stale = refused & ((entries.c.state == "withdrawn") | ((entries.c.state == "refused") & replaced)) & ~played
    with store.read() as connection:
        wanted = select(entries.c.id, entries.c.env, entries.c.file_sha256).where(stale).limit(FORGOTTEN_AT_ONCE)
        rows = connection.execute(wanted).all()
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        with store.write() as connection:
            connection.execute(delete(entries).where(entries.c.id.in_([row.id for row in some]), stale))
            files = {(row.env, row.file_sha256) for row in some if row.file_sha256}
            same = entries.c.file_sha256.in_({sha256 for _, sha256 in files})
            kept = connection.execute(select(entries.c.env, entries.c.file_sha256).where(same))
            over = files.difference(map(tuple, kept))
            queue.forget_checks(connection, [f"validate:{env}:{sha256}" for env, sha256 in over])
    return len(rows)


def forget_alike(store: Store) -> int:
    """Delete revisions that bring nothing new, but for `ALIKE_KEPT`: everybody reads what is kept, and each push of a
    changed card would add to that for ever. Returns how many those were. The first of them keeps the model's place.
    """
    same = [entries.c[name] for name in ("source", "repo", "env", "file_sha256")]
    from_first = func.row_number().over(partition_by=same, order_by=entries.c.id).label("from_first")
    from_last = func.row_number().over(partition_by=same, order_by=entries.c.id.desc()).label("from_last")
    counted = select(entries.c.id, from_first, from_last).where(entries.c.checked_ms.is_not(None)).subquery()
    between = select(counted.c.id).where(counted.c.from_first > 1, counted.c.from_last > ALIKE_KEPT)
    with store.read() as connection:
        ids = connection.scalars(between).all()
    for start in range(0, len(ids), _AT_ONCE):
        with store.write() as connection:
            connection.execute(delete(entries).where(entries.c.id.in_(ids[start : start + _AT_ONCE])))
    return len(ids)


def owners_here(connection: Connection) -> set[str]:
    """In lower case, who has an account, or entered from elsewhere than another hub."""
    entered = connection.scalars(select(entries.c.owner).where(entries.c.source != "hf").distinct())
    return {owner.lower() for owner in entered} | set(connection.scalars(select(accounts.c.key)))


def decide(
    connection: Connection, env: str, sha256: str, refusal: Refusal | None, details: dict[str, Any], *, now_ms: int
) -> None:
    """Write what validation found to all entries of the files that wait for it; those withdrawn meanwhile stay so.

    refusal: None when nothing was wrong. A `computation` in the details that is known already makes the entries those
    of its entity then, refused if that was refused since.
    """
    verdict: dict[str, Any] = {"details": _json(details), "checked_ms": now_ms}
    if refusal is None:
        computation = details.get("computation")
        told = [entries.c[name] for name in ("sha256", "files", "code", "sentence", "remedy")]
        alike = select(*told).where(
            entries.c.env == env, entries.c.computation == computation, entries.c.computation.is_not(None)
        )
        first = connection.execute(alike.order_by(entries.c.id).limit(1)).mappings().first()
        verdict |= {"code": None, "computation": computation, **(first or {})}
    else:
        verdict |= vars(refusal)
    unchecked = (entries.c.env == env) & (entries.c.file_sha256 == sha256) & entries.c.checked_ms.is_(None)
    pending = unchecked & (entries.c.state == "pending")
    state = "accepted" if verdict["code"] is None else "refused"
    connection.execute(update(entries).where(pending).values(verdict | {"state": state}))
    connection.execute(update(entries).where(unchecked).values(verdict))


def refuse(connection: Connection, sha256: str, refusal: Refusal, *, now_ms: int) -> None:
    """Refuse an entity that was accepted, for what its matches showed."""
    accepted = (entries.c.sha256 == sha256) & entries.c.checked_ms.is_not(None) & entries.c.code.is_(None)
    state = case((entries.c.state == "accepted", "refused"), else_=entries.c.state)
    verdict = {**vars(refusal), "state": state, "checked_ms": now_ms}
    connection.execute(update(entries).where(accepted).values(verdict))


@dataclass(frozen=True)
class Lineup:
    """ranked: entities that are ranked now, by SHA-256: the newest accepted revision of every repository. credited:
    every entity that was ever accepted, by SHA-256, withdrawn and replaced ones included. rows: that both were made of:
    entries that were ever accepted, oldest first.

    Of an owner only the `repos_per_owner` repositories that were pushed last are ranked (0: all); house players always
    are.
    """

    rows: Sequence[Row[Any]]
    ranked: dict[str, Entity]
    credited: dict[str, Entity]


def read_lineup(connection: Connection, env: str, *, repos_per_owner: int, before: Lineup | None = None) -> Lineup:
    """As it is now; `before` where that is the same."""
    accepted = _COLUMNS.where(entries.c.env == env, entries.c.code.is_(None), entries.c.checked_ms.is_not(None))
    rows = connection.execute(accepted.order_by(entries.c.id)).all()
    if before is not None and rows == before.rows:
        return before
    return Lineup(rows, _ranked(rows, repos_per_owner), _by_entity(rows, rows))


def by_arrival(rows: Iterable[Row[Any]], known: Iterable[Row[Any]]) -> list[Row[Any]]:
    """Revisions in the order in which their repositories had their entities first, whatever else was pushed since.

    known: all revisions of them.
    """
    first: dict[tuple[str, str], tuple[int, int]] = {}
    for row in known:
        key, came = (row.sha256, row.repo), (row.pushed_ms, row.id)
        first[key] = min(came, first.get(key, came))
    return sorted(rows, key=lambda row: (first[row.sha256, row.repo], row.id))


def _ranked(checked: Sequence[Row[Any]], repos_per_owner: int) -> dict[str, Entity]:
    rows = [row for row in checked if row.state == "accepted"]
    newest = {row.repo: row for row in rows}
    by_owner: dict[str, list[Row[Any]]] = {}
    for row in sorted(newest.values(), key=lambda row: -row.id):
        by_owner.setdefault(row.owner, []).append(row)
    active = [
        row
        for owned in by_owner.values()
        for place, row in enumerate(owned)
        if row.source == "house" or repos_per_owner == 0 or place < repos_per_owner
    ]
    return _by_entity(active, checked)


def _judge(
    connection: Connection,
    sweep: Sweep,
    found: Entry,
    params: Mapping[str, Any] | None,
    asked: Counter[str],
    now_ms: int,
) -> dict[str, Any]:
    """State of a revision that nobody has checked, with what goes with it; queues the check where one is due.

    asked: of `_asked_lately`, to which that check is added.
    """
    env, entity = sweep.env, found.entity
    if params is None:
        return {"state": "waiting", **vars(_not_played(env))}
    if sweep.source == "house":
        return {"state": "accepted", "checked_ms": now_ms}
    if found.fault is not None:
        return {"state": "refused", "checked_ms": now_ms, **vars(_missing(env, found))}
    same = (entries.c.env == env) & (entries.c.file_sha256 == entity.sha256)
    checked = same & entries.c.checked_ms.is_not(None) & entries.c.code.is_distinct_from(GIVEN_UP)
    twin = connection.execute(select(entries).where(checked).order_by(entries.c.id).limit(1)).first()
    if twin is not None:
        told = ("sha256", "files", "computation", "code", "sentence", "remedy", "details")
        verdict = {name: getattr(twin, name) for name in told}
        return {"state": "accepted" if twin.code is None else "refused", "checked_ms": now_ms, **verdict}
    priority = max(queue.PRIORITY_VALIDATE - asked[entity.owner], queue.PRIORITY_IDLE)
    asked[entity.owner] += 1
    payload = {"env": env, "contender": entity.to_json(), "params": dict(params)}
    payloads = {f"validate:{env}:{entity.sha256}": (priority, payload)}
    queue.forget_checks(connection, payloads)
    queue.enqueue(connection, "validate", payloads, now_ms=now_ms)
    return {"state": "pending", "code": None, "sentence": None, "remedy": None}


def _asked_lately(connection: Connection, now_ms: int) -> Counter[str]:
    """Validations that each owner's pushes caused within the hour: each makes the next one less urgent."""
    recent = (jobs.c.kind == "validate") & (jobs.c.created_ms > now_ms - HOUR_MS)
    payloads = connection.scalars(select(jobs.c.payload).where(recent))
    return Counter(Entity.from_json(json.loads(payload)["contender"]).owner for payload in payloads)


def _missing(env: str, found: Entry) -> Refusal:
    game, there = game_of(env), dict(found.entity.files)
    if found.fault == MISSING_FILE:
        missing = ", ".join(file for file, behavior in game.files.items() if behavior not in there)
        asks = "holds models" if there else "carries the tags"
        return Refusal(
            MISSING_FILE,
            f"the repository {asks} of {env}, but there is no {missing} in its root",
            f"push {missing}, or remove {found.entity.file or f'the tag {game.tags[-1]}'}",
        )
    large = ", ".join(file for file, behavior in game.files.items() if not there[behavior])
    return Refusal(
        "too-large",
        f"{large} is larger than the {arena_rules(game.pictures).max_bytes >> 20} MiB that a model may have",
        "export a smaller network",
    )


def _not_played(env: str) -> Refusal:
    return Refusal(
        "not-played",
        f"waiting: this arena does not play {env}",
        f"whoever runs it can start it with --game {env}; the model is then checked and plays",
    )


def _set(connection: Connection, row: Row[Any], values: dict[str, Any]) -> Change:
    connection.execute(update(entries).where(entries.c.id == row.id).values(values))
    return Change(row.repo, row.revision, values["state"])


def _by_entity(rows: Iterable[Row[Any]], known: Iterable[Row[Any]]) -> dict[str, Entity]:
    """Entities as those who pushed them first are credited with them. known: see `by_arrival`."""
    first: dict[str, Row[Any]] = {}
    for row in by_arrival(rows, known):
        first.setdefault(row.sha256, row)
    return {sha256: entity_of(row) for sha256, row in first.items()}


def entity_of(row: Row[Any]) -> Entity:
    """What a row of the entries is credited with, or shares."""
    return _entity(row.sha256 or "", row.repo, row.revision, row.files, row.details)


@lru_cache(maxsize=50_000)  # thousands of them are looked at several times a second, and hardly ever change
def _entity(sha256: str, repo: str, revision: str, files: str, details: str) -> Entity:
    p99_ms = json.loads(details).get("p99_ms", 0.0)
    return Entity(sha256, repo, revision, tuple(sorted(json.loads(files).items())), p99_ms)


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
