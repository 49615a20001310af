"""Who takes part: revisions become entries, entries are validated, and the board is drawn from those accepted.

The rated entity is the SHA-256 of the model file. Equal files are one entity, credited to whoever pushed them first;
what validation said about a file holds for every copy of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from palus.arena import queue
from palus.arena.contenders import Entrant
from palus.arena.discovery import MAX_MODEL_BYTES, MISSING_FILE, Found, Sweep
from palus.arena.vetting.refusal import Refusal
from palus.store.tables import entries


@dataclass(frozen=True)
class Change:
    """An entry that is new or has another state now, for those who watch the arena."""

    repo: str
    revision: str
    env: str
    state: str


def take_in(connection: Connection, sweep: Sweep, *, now_ms: int) -> list[Change]:
    """Bring the entries in line with what a source offers.

    New revisions are queued for validation, or share the verdict on an equal file. Entries of repositories that are
    gone or no longer ask for matches are withdrawn; they come back with the repository.
    """
    known = {
        (row.repo, row.revision): row for row in connection.execute(select(entries).where(entries.c.env == sweep.env))
    }
    changes = []
    for found in sweep.found:
        row = known.get((found.repo, found.revision))
        if row is None:
            changes.append(_enter(connection, found, now_ms))
        elif row.state == "withdrawn":
            state = "pending" if row.checked_ms is None else "accepted" if row.code is None else "refused"
            changes.append(_set_state(connection, row, state))
    for row in known.values():
        if row.source == sweep.source and row.state in ("pending", "accepted") and row.repo not in sweep.present:
            changes.append(_set_state(connection, row, "withdrawn"))
    return changes


def accept(connection: Connection, env: str, sha256: str, details: dict[str, Any], *, now_ms: int) -> list[Change]:
    """The file passed: so do all pending entries that have it."""
    return _decide(connection, env, sha256, {"state": "accepted", "details": _json(details)}, now_ms)


def refuse(
    connection: Connection, env: str, sha256: str, refusal: Refusal, details: dict[str, Any], *, now_ms: int
) -> list[Change]:
    """The file broke a rule: all pending entries that have it are refused for that reason."""
    verdict = {
        "state": "refused",
        "code": refusal.code,
        "sentence": refusal.sentence,
        "remedy": refusal.remedy,
        "details": _json(details),
    }
    return _decide(connection, env, sha256, verdict, now_ms)


def credited(connection: Connection, env: str) -> dict[str, Entrant]:
    """Every entity that was ever accepted, by SHA-256, withdrawn and replaced ones included."""
    checked = select(entries).where(entries.c.env == env, entries.c.code.is_(None), entries.c.checked_ms.is_not(None))
    return _by_entity(connection.execute(checked.order_by(entries.c.id)).all())


def board(connection: Connection, env: str, *, repos_per_owner: int) -> dict[str, Entrant]:
    """Entities that are ranked now, by SHA-256: the newest accepted revision of every repository.

    Of an owner only the `repos_per_owner` repositories that were pushed last count (0: all); house players always do.
    """
    accepted = select(entries).where(entries.c.env == env, entries.c.state == "accepted")
    rows = connection.execute(accepted.order_by(entries.c.id)).all()
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
    owners = {sha256: entrant.owners for sha256, entrant in _by_entity(rows).items()}
    return {
        sha256: Entrant(sha256, e.repo, e.owner, e.revision, e.file, owners[sha256])
        for sha256, e in _by_entity(sorted(active, key=lambda row: row.id)).items()
    }


def _enter(connection: Connection, found: Found, now_ms: int) -> Change:
    twin = None
    if found.sha256 is not None and found.source != "house":
        same_file = (entries.c.env == found.env) & (entries.c.sha256 == found.sha256)
        checked = same_file & entries.c.checked_ms.is_not(None)
        twin = connection.execute(select(entries).where(checked).order_by(entries.c.id).limit(1)).first()
    row: dict[str, Any] = {
        "source": found.source,
        "repo": found.repo,
        "owner": found.owner,
        "revision": found.revision,
        "env": found.env,
        "file": found.file,
        "sha256": found.sha256,
        "state": "pending",
        "details": "{}",
        "pushed_ms": found.pushed_ms or now_ms,
    }
    if found.source == "house":
        row |= {"state": "accepted", "checked_ms": now_ms}
    elif found.sha256 is None:
        refusal = _missing(found)
        row |= {"state": "refused", "checked_ms": now_ms}
        row |= {"code": refusal.code, "sentence": refusal.sentence, "remedy": refusal.remedy}
    elif twin is not None:
        row |= {name: getattr(twin, name) for name in ("code", "sentence", "remedy", "details")}
        row |= {"state": "accepted" if twin.code is None else "refused", "checked_ms": now_ms}
    else:
        _queue_validation(connection, found, now_ms)
    connection.execute(insert(entries).values(row))
    return Change(found.repo, found.revision, found.env, row["state"])


def _queue_validation(connection: Connection, found: Found, now_ms: int) -> None:
    entrant = Entrant(str(found.sha256), found.repo, found.owner, found.revision, found.file, frozenset({found.owner}))
    queue.enqueue(
        connection,
        "validate",
        f"validate:{found.env}:{found.sha256}",
        {"env": found.env, "contender": entrant.to_payload()},
        priority=queue.PRIORITY_VALIDATE,
        now_ms=now_ms,
    )


def _missing(found: Found) -> Refusal:
    if found.fault == MISSING_FILE:
        return Refusal(
            MISSING_FILE,
            f"the repository carries the tags of {found.env}, but there is no {found.file} in its root",
            f"push {found.file}, or remove the tag ML-Agents-{found.env}",
        )
    return Refusal(
        "too-large",
        f"{found.file} is larger than the {MAX_MODEL_BYTES >> 20} MiB that a model may have",
        "export a smaller network",
    )


def _decide(connection: Connection, env: str, sha256: str, verdict: dict[str, Any], now_ms: int) -> list[Change]:
    """Write a verdict to all entries of the file that wait for one. Those withdrawn meanwhile stay withdrawn."""
    unchecked = (entries.c.env == env) & (entries.c.sha256 == sha256) & entries.c.checked_ms.is_(None)
    rows = connection.execute(select(entries).where(unchecked).order_by(entries.c.id)).all()
    changes = []
    for row in rows:
        state = verdict["state"] if row.state == "pending" else row.state
        values = verdict | {"state": state, "checked_ms": now_ms}
        connection.execute(update(entries).where(entries.c.id == row.id).values(values))
        changes.append(Change(row.repo, row.revision, row.env, state))
    return changes


def _set_state(connection: Connection, row: Row[Any], state: str) -> Change:
    connection.execute(update(entries).where(entries.c.id == row.id).values(state=state))
    return Change(row.repo, row.revision, row.env, state)


def _by_entity(rows: Iterable[Row[Any]]) -> dict[str, Entrant]:
    """rows: oldest first, so that the first pusher is credited."""
    first: dict[str, Row[Any]] = {}
    owners: dict[str, set[str]] = {}
    for row in rows:
        first.setdefault(row.sha256, row)
        owners.setdefault(row.sha256, set()).add(row.owner)
    return {
        sha256: Entrant(sha256, row.repo, row.owner, row.revision, row.file, frozenset(owners[sha256]))
        for sha256, row in first.items()
    }


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
