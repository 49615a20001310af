"""Decides what is done next: looks for models, links reports, takes back what was lost, fills the queue, rates.

`tick` makes one pass and may be called at any time, after any crash: what it decides follows from the store alone.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from sqlalchemy import Connection, func, select

from palus.arena.ladder import entries, queue
from palus.arena.ladder.discovery import Sweep
from palus.arena.ladder.field_picture import Beliefs, Ledger, read_beliefs, take_picture
from palus.arena.ladder.inbox import REPORTS_PER_TRANSACTION, link
from palus.arena.ladder.log import check_head
from palus.arena.ladder.matchmaking import Picture, choose, draw_round
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import ALIVE_MS, games_of
from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity
from palus.arena.models.refusal import Refusal
from palus.arena.referee.games import GAMES
from palus.errors import ArenaError, StorageError
from palus.ratings.elo import START
from palus.store import Store
from palus.store.derived import intake, ratings
from palus.store.engine import now_ms
from palus.store.tables import jobs, matches, workers

logger = logging.getLogger(__name__)

REFILL_BELOW, REFILL_TO = 1, 3
"""Pairs that wait, for each that workers take at once: none idles, and each is chosen shortly before it is played. What
is held does not count, or who takes everything and plays nothing would leave nothing to the others."""
NEWCOMERS = 10
"""Workers of an account that is not trusted for each of which a job more is expected than it holds."""
NAMES_AT_ONCE = 500
"""In one condition."""
REFILL_AT_ONCE = 100
"""Pairs that are ordered in one pass; there are four a second."""
MANY_MATCHES = 50_000
"""Of a longer log a pass does not wait until it is known who met whom: that of ten million takes four seconds."""

SWEEP_SHARE = 0.1
"""Of a core, at most, that looking at one source may take: every look reads of all its models. What a look waits for a
busy machine does not count: there a newcomer would wait ten times as long."""

TAKEN_AT_ONCE = 100
"""Revisions that become entries in one transaction: others wait with what they write meanwhile."""

SEED_BITS = 53
"""Seeds survive readers of JSON that know only doubles."""


@dataclass
class PeriodicSweep:
    """A source of models. sweep: looks at it for an env. every_s: how often, or as rarely as `SWEEP_SHARE` allows.
    due_s: when next, on the scheduler's clock. complaint: of the last look that failed, which is logged once.

    for_all: also asked for models of games that this arena does not play, so that their authors learn why they wait.
    """

    sweep: Callable[[str], Sweep]
    every_s: float
    due_s: float = 0.0
    for_all: bool = False
    complaint: str = ""


def run_sweep(store: Store, periodic: PeriodicSweep, settings: ArenaSettings) -> None:
    """Ask a source and take in what it offers. One that cannot be reached offers what it did before.

    Others are kept from writing only while something changes, and not while it is found out what that is.
    """
    others = [env for env in GAMES if env not in settings.envs] if periodic.for_all else []
    for env in (*settings.envs, *others):
        try:
            sweep = periodic.sweep(env)
        except (ArenaError, StorageError) as error:
            if str(error) != periodic.complaint:
                logger.warning("%s", error)
            periodic.complaint = str(error)
            continue
        periodic.complaint = ""
        params = settings.params_of(env)
        with store.read() as connection:
            news = entries.news(connection, sweep, params)
        if news is None:
            continue
        for start in range(0, max(1, len(news.found)), TAKEN_AT_ONCE):
            some = replace(news, found=news.found[start : start + TAKEN_AT_ONCE])
            with store.write() as connection:
                changes = entries.take_in(connection, some, params, now_ms=now_ms())
            for change in changes:
                logger.info("%s %s: %s", change.repo, change.revision[:8], change.state)


class Scheduler:
    """One per store. min_workers: that are expected even before they are seen. seed: of the random choices.

    rated_elsewhere: another process refits the ratings.
    """

    def __init__(
        self,
        store: Store,
        settings: ArenaSettings,
        sweeps: list[PeriodicSweep],
        *,
        min_workers: int = 1,
        seed: int | None = None,
    ) -> None:
        self.refresher = Refresher(store, settings)
        self.rated_elsewhere = False
        self._store, self._settings, self._sweeps = store, settings, sweeps
        self._min_workers = min_workers
        self._rng = np.random.default_rng(seed)
        self._ledgers: dict[str, Future[Ledger]] = {}
        self._beliefs: dict[str, Beliefs | None] = dict.fromkeys(settings.envs)
        self._lineups: dict[str, entries.Lineup | None] = dict.fromkeys(settings.envs)
        self._refitting, self._refresh_due_s = threading.Lock(), -np.inf
        self._patient_until_s = -np.inf

    def tick(self) -> None:
        """One pass. Raises ArenaError, and orders nothing, when the log does not end where it was left."""
        with self._store.read() as connection:
            check_head(connection)
        self.link()
        for periodic in self._sweeps:
            started = time.monotonic()
            if started >= periodic.due_s:
                before = time.thread_time()
                run_sweep(self._store, periodic, self._settings)
                worked = time.thread_time() - before
                periodic.due_s = started + max(periodic.every_s, worked / SWEEP_SHARE)
        self.take_back()
        for env in self._settings.envs:
            if self._settings.mode == "rounds":
                self._draw_round(env)
            else:
                self._fill_queue(env)

    def link(self) -> None:
        """Move all that workers have handed in to the log."""
        share = self._settings.audit_share
        while link(self._store, now_ms=now_ms(), audit_share=share) == REPORTS_PER_TRANSACTION:
            pass

    def wait_for_workers(self) -> None:
        """Free no job because its lease ran out until its worker has had time to renew it: the arena was away."""
        self._patient_until_s = time.monotonic() + self._settings.lease_s

    def take_back(self, dead_workers: tuple[str, ...] = ()) -> None:
        """Free the jobs of workers that vanished. A model whose validation no worker survives is refused."""
        attempts, now, patient = self._settings.max_attempts, now_ms(), time.monotonic() < self._patient_until_s
        with self._store.write() as connection:
            gone = queue.reap(connection, max_attempts=attempts, now_ms=now, dead_workers=dead_workers, patient=patient)
            for row in gone:
                logger.warning("job %d (%s) was given up after %d attempts", row.id, row.key, row.attempts)
            for payload, fault in queue.failed_jobs(connection, "validate"):
                sha256 = payload["contender"]["sha256"]
                entries.decide(connection, payload["env"], sha256, _not_validated(fault), {}, now_ms=now)

    def refresh(self, *, force: bool = False) -> None:
        """Refit the ratings when that is due: the longer it takes, the rarer it is done.

        May be called by another thread than `tick`, which goes on with the fit before.
        """
        with self._refitting:
            if self.rated_elsewhere or (not force and time.monotonic() < self._refresh_due_s):
                return
            started = time.monotonic()
            self.refresher.refresh()
            spent = time.monotonic() - started
            self._refresh_due_s = started + max(1.0, spent / self._settings.refresh_share)

    def _fill_queue(self, env: str) -> None:
        """Order as many pairs as the workers will want next."""
        ledger = self._ledger(env)
        if ledger is None:
            return
        with self._store.read() as connection:
            hands = self._count_hands(connection, env)
            ready = queue.count_ready(connection, "pair", env)
            if ready >= REFILL_BELOW * hands:
                return
            waiting = [_order_of(payload) for payload in queue.open_payloads(connection, "pair", env)]
            given_up = [Unit.from_payload(payload) for payload, _ in queue.failed_jobs(connection, "pair")]
            lost = [order for order in given_up if order.env == env]
            entrants, picture = self._look(connection, ledger, waiting, lost)
        pairings = choose(picture, min(REFILL_TO * hands - ready, REFILL_AT_ONCE), self._settings, self._rng)
        if not pairings:
            return
        payloads = {}
        for first, second, is_entry in pairings:
            order = self._order(env, entrants[first], entrants[second])
            priority = queue.PRIORITY_ENTRY if is_entry else queue.PRIORITY_LADDER
            payloads[f"{queue.PAIR_KEY}{order.unit_id}"] = priority, order.to_payload()
        with self._store.write() as connection:
            queue.enqueue(connection, "pair", payloads, now_ms=now_ms())

    def _ledger(self, env: str) -> Ledger | None:
        """Who met whom so far; None while a long log is still read, in a thread of its own: passes go on meanwhile."""
        if env not in self._ledgers:
            pool = ThreadPoolExecutor(1, "ledger")
            self._ledgers[env] = pool.submit(self._begun, env)
            pool.shutdown(wait=False)
        beginning = self._ledgers[env]
        if not beginning.done():
            with self._store.read() as connection:
                beyond = select(matches.c.seq).where(matches.c.env == env).offset(MANY_MATCHES).limit(1)
                if connection.scalar(beyond) is not None:
                    return None
        try:
            return beginning.result()
        except Exception:
            del self._ledgers[env]  # begun again with the next pass
            raise

    def _begun(self, env: str) -> Ledger:
        ledger = Ledger(env, self._settings.season)
        with self._store.read() as connection:
            self._look(connection, ledger, [], [])  # the first look takes longest
        return ledger

    def _look(
        self, connection: Connection, ledger: Ledger, waiting: Sequence[Unit], lost: Sequence[Unit]
    ) -> tuple[list[Entity], Picture]:
        """The entrants of the ledger's env and the field as it is now. lost: units that nobody could play."""
        env, per_owner = ledger.env, self._settings.repos_per_owner
        ledger.read(connection)
        lineup = entries.read_lineup(connection, env, repos_per_owner=per_owner, before=self._lineups[env])
        beliefs = read_beliefs(connection, env, self._beliefs[env])
        self._lineups[env], self._beliefs[env] = lineup, beliefs
        entrants = [lineup.ranked[sha256] for sha256 in sorted(lineup.ranked)]
        return entrants, take_picture(entrants, lineup.credited, ledger, waiting, lost, beliefs, self._settings)

    def _draw_round(self, env: str) -> None:
        """The next round, when its time has come and the one before is played to the end."""
        prefix = f"round:{env}:"
        with self._store.read() as connection:
            if queue.open_payloads(connection, "pair", env):
                return
            newest = select(jobs.c.key, jobs.c.created_ms).where(jobs.c.key.startswith(prefix))
            last = connection.execute(newest.order_by(jobs.c.id.desc()).limit(1)).first()
        if last and now_ms() < last.created_ms + 1000 * self._settings.round_interval_s:
            return
        number = int(last.key.split(":")[2]) + 1 if last else 1
        self.refresh(force=True)
        with self._store.read() as connection:
            played = connection.scalar(select(func.max(matches.c.seq)).where(matches.c.env == env)) or 0
            if (connection.scalar(select(intake.c.upto_seq).where(intake.c.env == env)) or 0) < played:
                return  # another process still rates the last round
            ranked = entries.read_lineup(connection, env, repos_per_owner=self._settings.repos_per_owner).ranked
            columns = select(ratings.c.sha256, ratings.c.elo).where(ratings.c.env == env)
            elo: dict[str, float] = {row.sha256: row.elo for row in connection.execute(columns)}
        # As the reference lists them: rated models by rating, then the new ones in the order of their arrival.
        lineup = sorted(ranked, key=lambda sha256: (sha256 not in elo, -elo.get(sha256, 0.0)))
        owners = {sha256: entrant.owner for sha256, entrant in ranked.items() if entrant.house is None}
        served = [(sha256, elo.get(sha256, START), owners.get(sha256)) for sha256 in lineup]
        payloads = {}
        for i, (a, b) in enumerate(draw_round(served, self._settings.round_neighbours, self._rng)):
            order = self._order(env, ranked[a], ranked[b], number)
            payloads[f"{prefix}{number}:{i}"] = queue.PRIORITY_LADDER, order.to_payload()
        with self._store.write() as connection:
            queue.enqueue(connection, "pair", payloads, now_ms=now_ms())

    def _order(self, env: str, a: Entity, b: Entity, round_number: int | None = None) -> Unit:
        return Unit(
            env=env,
            seed=secrets.randbits(SEED_BITS),
            season=self._settings.season,
            sampling=self._settings.sampling,
            rated=True,
            contenders=(a, b),
            legs=(1, 2) if round_number is None else (1,),  # the reference swaps no sides
            round=round_number,
            params=self._settings.params_of(env) or {},
        )

    def _count_hands(self, connection: Connection, env: str) -> int:
        """Jobs of a game that workers hold when all are busy: of those that can play it and may, shared with the other
        games. Accounts that are not trusted are believed one more than they hold, for each of `NEWCOMERS` workers: they
        say what they like."""
        alive = (workers.c.last_seen_ms > now_ms() - ALIVE_MS) & workers.c.suspended.is_(None)
        if queue.needs_trust("pair", env):
            alive &= workers.c.trusted
        columns = select(workers.c.name, workers.c.trusted, workers.c.jobs).where(alive)
        by_account: dict[tuple[str, bool], list[tuple[str, int]]] = {}
        for name, trusted, count in connection.execute(columns.order_by(workers.c.last_seen_ms.desc())):
            by_account.setdefault((queue.account_of(name), trusted), []).append((name, count))
        asked = [name for (_, trusted), own in by_account.items() for name, _ in (own if trusted else own[:NEWCOMERS])]
        able = set[str]()
        for start in range(0, len(asked), NAMES_AT_ONCE):
            said = select(workers.c.name, workers.c.platform)
            some = connection.execute(said.where(workers.c.name.in_(asked[start : start + NAMES_AT_ONCE])))
            able |= {name for name, platform in some if env in _games_of(platform)}
        held = queue.held_by_account(connection, env)
        hands = 0
        for (account, trusted), own in by_account.items():
            if trusted:
                hands += sum(count for name, count in own if name in able)
            else:
                believed = held[account] + sum(name in able for name, _ in own)
                hands += min(sum(count for _, count in own), believed, queue.ACCOUNT_JOBS)
        return max(1, max(hands, self._min_workers) // len(self._settings.envs))


@lru_cache(5000)  # what workers say of themselves hardly changes, and is looked at four times a second
def _games_of(platform: str) -> list[str]:
    return games_of(json.loads(platform))


@lru_cache(20_000)  # thousands wait for minutes, and are looked at several times a second
def _order_of(payload: str) -> Unit:
    return Unit.from_payload(json.loads(payload))


def _not_validated(fault: str) -> Refusal:
    return Refusal(
        entries.GIVEN_UP,
        f"the file could not be validated ({fault})",
        "push another revision, with which it is checked again; if that ends so, too, ask the arena's administrator to "
        "look at its log",
    )
