"""What the arena is doing now: queue, workers, why a model is not ranked."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from pydantic import Field, JsonValue
from sqlalchemy import Connection, Row, func, select

from palus.arena.ladder import queue
from palus.arena.ladder.log import GENESIS, NOTHING_ANNULLED, noted_head
from palus.arena.ladder.workers import at_work, untended
from palus.store.engine import now_ms
from palus.store.tables import jobs, matches, workers
from palus.web.api.view import View
from palus.web.shapes import Shape

HOUR_MS = 3_600_000
MOST_UNRANKED = 2000
"""Models that one answer lists, the newest; it says of how many. The status shows fewer."""
UNRANKED = 200
WORKERS = 100


class Head(Shape):
    """Where the match log ends: who notes it can tell later whether anything before it was changed or cut off."""

    seq: int
    hash: str
    annulled: int = Field(description="matches that were struck out")
    annulled_hash: str = Field(description="of the list of those")


class JobCounts(Shape):
    """Jobs of one kind by state. Pairs that were logged are forgotten within hours."""

    kind: str
    ready: int = 0
    leased: int = 0
    done: int = 0
    failed: int = 0


class RunningJob(Shape):
    """A job that a worker holds. what: a phrase for people."""

    id: int
    kind: str
    what: str
    worker: str
    attempts: int
    lease_until_ms: int | None


class WorkerLine(Shape):
    """A process that plays. isolation: how strangers' models are kept in; alive: seen within the last minute, or
    at a job, and not suspended; trusted: also gets what nobody could check later."""

    name: str
    isolation: str
    platform: dict[str, JsonValue]
    first_seen_ms: int
    last_seen_ms: int
    alive: bool
    trusted: bool
    matches: int
    suspended: str | None


class HourCount(Shape):
    """Matches that ended in the hour that began at start_ms."""

    start_ms: int
    matches: int


class Unranked(Shape):
    """The newest revision of a repository that does not stand on the board under its name, and why."""

    repo: str
    env: str
    revision: str
    state: str
    code: str | None
    sentence: str
    remedy: str | None
    same_as: str | None = Field(description="repository whose player it is: equal models are rated once")
    since_ms: int


class UnrankedModels(Shape):
    """/api/arena/unranked/{env}: the newest first. of: how many there are, which may be more than are listed."""

    env: str
    of: int
    models: list[Unranked]


class Status(Shape):
    """What the arena is doing now. head_*: end of the hash chain."""

    now_ms: int
    mode: str
    matches: int
    matches_last_hour: int
    hours: list[HourCount] = Field(description="the last 24, oldest first")
    ratings_behind: int = Field(description="matches of the log that no fit includes yet")
    jobs: list[JobCounts]
    running: list[RunningJob] = Field(description="the oldest")
    untended: str | None = Field(description="that jobs wait for a trusted worker, and none is there; a sentence")
    workers: list[WorkerLine] = Field(description="those that were heard of last")
    workers_alive: int = Field(description="of all workers")
    unranked: list[Unranked] = Field(description="of all envs, the newest")
    unranked_of: int = Field(description="how many there are")
    head_seq: int
    head_hash: str


def log_head(view: View) -> Head:
    """Where the match log ends now."""
    with view.store.read() as connection:
        seq, digest = noted_head(connection, "matches") or (0, GENESIS)
        annulled, annulled_hash = noted_head(connection, "annulments") or (0, NOTHING_ANNULLED)
    return Head(seq=seq, hash=digest, annulled=annulled, annulled_hash=annulled_hash)


def status(view: View) -> Status:
    """The state of the arena."""
    now = now_ms()
    with view.store.read() as connection:
        running = connection.execute(
            select(jobs).where(jobs.c.state == "leased").order_by(jobs.c.id).limit(WORKERS)
        ).all()
        there = at_work(now).label("alive")
        seen = connection.execute(select(workers, there).order_by(workers.c.last_seen_ms.desc()).limit(WORKERS)).all()
        alive = connection.scalar(select(func.count()).select_from(workers).where(at_work(now))) or 0
        waiting, counts = untended(connection, now), _job_counts(connection)
        hours = _hours(connection, now)
        last_hour = count_since(connection, now - HOUR_MS)
    behind = sum(view.behind(env) for env in view.envs)
    left_out = unranked(view, view.envs)
    head = log_head(view)
    return Status(
        now_ms=now,
        mode=view.arena.mode,
        matches=view.version.seq,
        matches_last_hour=last_hour,
        hours=hours,
        ratings_behind=behind,
        jobs=counts,
        running=[
            RunningJob.like(
                row,
                kind=queue.told_kind(row.kind),
                what=_phrase(json.loads(row.payload)) or row.key,
                worker=row.worker or "",
            )
            for row in running
        ],
        untended=waiting,
        workers=[WorkerLine.like(row, platform=json.loads(row.platform)) for row in seen],
        workers_alive=alive,
        unranked=left_out[:UNRANKED],
        unranked_of=len(left_out),
        head_seq=head.seq,
        head_hash=head.hash,
    )


def _hours(connection: Connection, now: int) -> list[HourCount]:
    first = (now // HOUR_MS - 23) * HOUR_MS
    since = [count_since(connection, first + hour * HOUR_MS - 1) for hour in range(24)]
    since.append(count_since(connection, now))
    return [HourCount(start_ms=first + i * HOUR_MS, matches=since[i] - since[i + 1]) for i in range(24)]


def count_since(connection: Connection, at_ms: int) -> int:
    """Matches that were logged after a time. The log's numbers have no gaps and follow the clock, so it is searched
    like a list."""
    head: int = connection.scalar(select(func.max(matches.c.seq))) or 0
    low, high = 0, head  # of the newest match up to that time
    while low < high:
        middle = (low + high + 1) // 2
        ended = connection.scalar(select(matches.c.finished_ms).where(matches.c.seq == middle))
        low, high = (middle, high) if ended is not None and ended <= at_ms else (low, middle - 1)
    return head - low


def _job_counts(connection: Connection) -> list[JobCounts]:
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    wanted = select(jobs.c.kind, jobs.c.state, func.count()).group_by(jobs.c.kind, jobs.c.state)
    for kind, state, count in connection.execute(wanted):
        # for people, what waits to be logged, or to be looked at, is still under way
        counted[queue.told_kind(kind)]["leased" if state in ("reported", "disputed") else state] += count
    return [JobCounts(kind=kind, **counted[kind]) for kind in sorted(counted)]


def _phrase(payload: dict[str, Any]) -> str:
    """Who plays whom, or whose model is checked."""
    if "contenders" in payload:
        return " against ".join(contender["repo"] for contender in payload["contenders"])
    return str(payload["contender"]["repo"]) if "contender" in payload else ""


def unranked_models(view: View, env: str) -> UnrankedModels:
    """Those of one env, the newest first."""
    lines = unranked(view, (env,))
    return UnrankedModels(env=env, of=len(lines), models=lines[:MOST_UNRANKED])


def unranked(view: View, envs: Sequence[str]) -> list[Unranked]:
    """Repositories whose newest revision does not stand on the board under their name, the newest first."""
    found = []
    for rows in view.roster.entries_of.values():
        for env in envs:
            entry = next((entry for entry in rows if entry.env == env), None)
            if entry is not None and (line := _line(view, entry)) is not None:
                found.append(line)
    return sorted(found, key=lambda line: (-line.since_ms, line.repo))


def _line(view: View, entry: Row[Any]) -> Unranked | None:
    twin = view.roster.same_player_as(entry)
    rated = view.roster.rated(entry.env, entry.sha256)
    if twin is None and entry.state == "accepted" and rated is not None and rated.rank:
        return None
    explained = entry.state in ("refused", "waiting")
    return Unranked.like(
        entry,
        code=entry.code if explained else None,
        sentence=(entry.sentence if explained else None) or view.roster.why_unranked(entry),
        remedy=entry.remedy if explained else None,
        same_as=twin,
        since_ms=entry.checked_ms or entry.pushed_ms,
    )
