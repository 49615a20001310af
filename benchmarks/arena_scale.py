"""An arena of 10,000 models and millions of matches on PostgreSQL: what its parts take.

    python benchmarks/arena_scale.py --database postgresql+psycopg://... --matches 1000000

The database must be empty, or filled (`--filled`) and added up (`--added-up`) by this recipe before. PostgreSQL itself
makes its rows up: strengths with a standard deviation of 200 points, nine of ten opponents among the hundred of nearest
strength, mirrored pairs, rows as long as a worker's. Hashes of the chain and actions are made up, too, so that nothing
is measured of play. Measured are the sums of the log and its history, a refit and the hourly intervals, 4,000 pairings,
the passes of a scheduler while another process rates, a web process that has just been started, and at last `palus
recompute`: the bytes must be the same. Times are wall seconds, and the measured process's own CPU seconds where other
programs run beside it. Writes results/arena-scale.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import psutil
from sqlalchemy import delete, insert, select, text

from arena_fill import _entry as entry_of
from arena_fill import _record
from machine import RESULTS, Json, Session, caption, save, table
from palus.arena.ladder import entries as ladder_entries
from palus.arena.ladder.derive import fit_games, intervals_of
from palus.arena.ladder.field_picture import Ledger, read_beliefs, take_picture
from palus.arena.ladder.intake import load
from palus.arena.ladder.matchmaking import choose
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.scheduler import Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.files import write_text
from palus.ratings.games import Played
from palus.store import Store, open_store
from palus.store.derived import DERIVED
from palus.store.engine import SETTINGS_FILE, now_ms
from palus.store.tables import entries, jobs, log_heads, workers

ENV = "SoccerTwos"
MODELS = 10_000
PAIRINGS = 4_000
PASSES = 40
TARGETS = {
    "refit": 15.0,
    "4,000 pairings": 1.0,
    "longest pass of the scheduler": 1.0,
    "web ready": 10.0,
}
"""Seconds."""
WEB_MIB = 1024.0

_FILL = """
CREATE TEMPORARY TABLE models AS
    SELECT i, encode(sha256(convert_to('model-' || lpad(i::text, 4, '0'), 'UTF8')), 'hex') AS sha,
           200.0 * sqrt(-2.0 * ln(1.0 - random())) * cos(6.283185307 * random()) AS strength
    FROM generate_series(0, {models} - 1) i;
CREATE TEMPORARY TABLE ranked AS SELECT row_number() OVER (ORDER BY strength) - 1 AS place, * FROM models;
CREATE UNIQUE INDEX ON ranked (place);
CREATE TEMPORARY TABLE units AS
    SELECT u, a, CASE WHEN b = a THEN (a + 1) % {models} ELSE b END AS b FROM (
        SELECT u, a, CASE WHEN random() < 0.1 THEN floor(random() * {models})::int
                          ELSE greatest(0, least({models} - 1, a + floor(random() * 101)::int - 50)) END AS b
        FROM (SELECT u, floor(random() * {models})::int AS a FROM generate_series(1, {units}) u) drawn) pairs;
INSERT INTO matches (seq, id, unit_id, leg, env, season, blue, purple, result, rated, worker, finished_ms, record,
                     prev_hash, hash, actions)
    SELECT seq, md5('m' || seq), md5('u' || u), leg, '{env}', 1, blue, purple, result, true, 'local-scale',
           {start_ms} + seq * 100,
           replace(replace(replace(replace('{record}', '@id', md5('m' || seq)), '@blue', blue_repo), '@purple',
                   purple_repo), '"@ticks"', (200 + seq % 1500)::text),
           repeat('0', 64), md5('h' || seq) || md5('g' || seq),
           sha512(('a' || seq)::bytea) || sha512(('b' || seq)::bytea)
    FROM (SELECT 2 * u - 2 + leg AS seq, u, leg, CASE WHEN leg = 1 THEN x.sha ELSE y.sha END AS blue,
                 CASE WHEN leg = 1 THEN y.sha ELSE x.sha END AS purple,
                 'owner/model-' || CASE WHEN leg = 1 THEN x.i ELSE y.i END AS blue_repo,
                 'owner/model-' || CASE WHEN leg = 1 THEN y.i ELSE x.i END AS purple_repo,
                 CASE WHEN random() < 0.15 THEN 'draw'
                      WHEN random() < 1.0 / (1.0 + power(10.0, (CASE WHEN leg = 1 THEN 1 ELSE -1 END) *
                                                         (y.strength - x.strength) / 400.0)) THEN 'win1'
                      ELSE 'win2' END AS result
          FROM units JOIN ranked x ON x.place = a JOIN ranked y ON y.place = b, generate_series(1, 2) leg) played;
"""


def template() -> str:
    """A record with marks where matches differ."""
    fields = json.loads(_record(Played(1, "1-0", "1", "model-0001", "model-0002", 1.0), 1).to_json())
    fields |= {"id": "@id", "duration_ticks": "@ticks", "replay": None, "actions": None}
    for side, mark in zip(fields["sides"], ("@blue", "@purple"), strict=True):
        side["repo"] = mark
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def fill(store: Store, count: int) -> None:
    """Models and matches, without what is derived from them."""
    start_ms = now_ms() - 100 * count - 1000
    with store.write() as connection:
        connection.execute(insert(entries), [entry_of(number, start_ms) for number in range(MODELS)])
        indexes = ("blue", "purple", "env")
        for name in indexes:
            connection.execute(text(f"DROP INDEX ix_matches_{name}_seq"))
        connection.execute(text("DROP INDEX ix_matches_unit_id"))
        connection.execute(text("ALTER TABLE matches DROP CONSTRAINT uq_matches_id"))
        for step in _FILL.format(models=MODELS, units=count // 2, env=ENV, start_ms=start_ms, record=template()).split(
            ";"
        ):
            if step.strip():
                connection.exec_driver_sql(step.replace("%", "%%"))
        connection.execute(text("ALTER TABLE matches ADD CONSTRAINT uq_matches_id UNIQUE (id)"))
        connection.execute(text("CREATE INDEX ix_matches_unit_id ON matches (unit_id)"))
        for name in indexes:
            connection.execute(text(f"CREATE INDEX ix_matches_{name}_seq ON matches ({name}, seq)"))
        last = connection.execute(text("SELECT seq, hash FROM matches ORDER BY seq DESC LIMIT 1")).one()
        connection.execute(insert(log_heads).values(name="matches", seq=last.seq, hash=last.hash))
        there = {"name": "owner/scale", "isolation": "none", "platform": "{}", "trusted": True, "jobs": 2000}
        seen = {"first_seen_ms": 0, "last_seen_ms": now_ms() + 86_400_000, "matches": 0}
        connection.execute(insert(workers).values(there | seen))
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def digest(store: Store) -> str:
    """Of every derived row."""
    found = hashlib.sha256()
    with store.read() as connection:
        for derived in DERIVED:
            rows = select(derived).order_by(*derived.primary_key.columns)
            for row in connection.execute(rows, execution_options={"yield_per": 5000}):
                found.update(repr(tuple(row)).encode())
    return found.hexdigest()


def measure_ratings(store: Store, settings: ArenaSettings) -> Json:
    """Sums and history of the whole log, refit, intervals."""
    found: Json = {}
    cpu = 0.0

    def timed(name: str, began: float) -> None:
        nonlocal cpu
        found[name], found[f"{name}, CPU"] = time.perf_counter() - began, time.process_time() - cpu
        print(f"{name}: {found[name]:.1f} s, CPU {found[f'{name}, CPU']:.1f} s", file=sys.stderr, flush=True)
        cpu = time.process_time()

    began, cpu = time.perf_counter(), time.process_time()
    Refresher(store, settings).refresh()
    timed("the log added up, with its history, refit and intervals", began)
    began, cpu = time.perf_counter(), time.process_time()
    with store.read() as connection:
        known = load(connection, ENV)
    timed("sums read at a start", began)
    began = time.perf_counter()
    fitted = fit_games(known.sums(), known.rated_seq)
    timed("refit", began)
    began = time.perf_counter()
    exact = fit_games(known.sums(), known.rated_seq, exact=True)
    intervals_of(exact, frozenset(exact.sums.names))
    timed("the same with intervals and rank ranges", began)
    found["held half-width over joint"] = float(np.median(fitted.fit.half_width / exact.fit.half_width))
    found["pairings that met"] = len(known.sums().low)
    return found


def measure_pairings(store: Store, settings: ArenaSettings) -> Json:
    """4,000 pairings of one picture of the field."""
    ledger, rng = Ledger(ENV, settings.season), np.random.default_rng(0)
    began = time.perf_counter()
    with store.read() as connection:
        ledger.read(connection)
        begun = time.perf_counter()
        lineup = ladder_entries.read_lineup(connection, ENV, repos_per_owner=settings.repos_per_owner)
        beliefs = read_beliefs(connection, ENV, None)
    entrants = [lineup.ranked[sha256] for sha256 in sorted(lineup.ranked)]
    picture = take_picture(entrants, lineup.credited, ledger, [], [], beliefs, settings)
    seen = time.perf_counter()
    cpu = time.process_time()
    pairs = choose(picture, PAIRINGS, settings, rng)
    done, spent = time.perf_counter(), time.process_time() - cpu
    assert len(pairs) == PAIRINGS, "the field is not known that well"
    return {
        "ledger begun": begun - began,
        "picture": seen - begun,
        "4,000 pairings": done - seen,
        "4,000 pairings, CPU": spent,
    }


def measure_scheduler(store: Store, url: str, settings: ArenaSettings) -> Json:
    """Passes that order 100 pairs each, while another process rates."""
    code = (
        "import sys; from pathlib import Path; from palus.arena.ladder.rater import rate; "
        "from palus.store import open_store; from palus.arena.ladder.settings import ArenaSettings; "
        "rate(open_store(Path(sys.argv[1]), sys.argv[2]), ArenaSettings(target_half_width=1.0))"
    )
    scheduler = Scheduler(store, settings, [], min_workers=1, seed=0)
    scheduler.rated_elsewhere = True
    began = time.perf_counter()
    scheduler.tick()
    first = time.perf_counter() - began
    rater = subprocess.Popen([sys.executable, "-c", code, str(store.folder), url])
    spent, worked = [], []
    try:
        for _ in range(PASSES):
            began, cpu = time.perf_counter(), time.process_time()
            scheduler.tick()
            spent.append(time.perf_counter() - began)
            worked.append(time.process_time() - cpu)
            time.sleep(0.25)
    finally:
        rater.kill()
        rater.wait()
    with store.read() as connection:
        ordered = connection.scalar(text("SELECT count(*) FROM jobs"))
    return {
        "first pass of the scheduler": first,
        "longest pass of the scheduler": max(spent),
        "longest pass of the scheduler, CPU": max(worked),
        "middle pass of the scheduler": float(np.median(spent)),
        "middle pass of the scheduler, CPU": float(np.median(worked)),
        "pairs ordered in these passes": int(ordered),
    }


def measure_web(store: Store, url: str) -> Json:
    """A web process from its start: until the leaderboard is there, each page once, and its memory then."""
    command = [sys.executable, "-m", "palus", "arena", "--role", "web", "--database", url]
    began = time.perf_counter()
    with (store.folder / "web.log").open("w") as log:
        web = subprocess.Popen([*command, "--data", str(store.folder), "--port", "18976"], stdout=log, stderr=log)
    found: Json = {}
    try:
        with httpx.Client(base_url="http://127.0.0.1:18976", timeout=120) as client:
            while True:
                try:
                    if client.get(f"/api/arena/leaderboard/{ENV}").status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.05)
            found["web ready"] = time.perf_counter() - began
            rows = client.get(f"/api/arena/leaderboard/{ENV}").json()["rows"]
            a, b = rows[0]["repo"], rows[1]["repo"]
            for name, path in {
                "matrix": f"matrix/{ENV}",
                "analytics": f"analytics/{ENV}",
                "status": "status",
                "recent": f"recent/{ENV}",
                "model": f"models/{a}",
                "compare": f"compare/{ENV}/{a}/{b}",
            }.items():
                asked = time.perf_counter()
                answer = client.get(f"/api/arena/{path}")
                assert answer.status_code == 200, (path, answer.text[:300])
                found[f"page: {name}"] = time.perf_counter() - asked
        found["web MiB"] = psutil.Process(web.pid).memory_info().rss / 2**20
    finally:
        web.terminate()
        web.wait(30)
    return found


def measure_recompute(store: Store, settings: ArenaSettings, before: str) -> Json:
    """All of it again from the log alone. before: the digest after the first time."""
    began, cpu = time.perf_counter(), time.process_time()
    Refresher(store, settings).recompute()
    found: Json = {"recompute": time.perf_counter() - began, "recompute, CPU": time.process_time() - cpu}
    return found | {"recomputed to the same bytes": digest(store) == before}


def markdown(report: Json) -> str:
    """The result as a page."""
    rows = []
    for name, value in report["figures"].items():
        bound = f"{TARGETS[name]:g}" if name in TARGETS else f"{WEB_MIB:g}" if name == "web MiB" else ""
        shown = str(value) if isinstance(value, (bool, int)) else f"{value:.2f}"
        rows.append([name, shown, bound])
    return (
        "# An arena of 10,000 models on PostgreSQL\n\n"
        "Made by `python benchmarks/arena_scale.py` from the JSON file beside it.\n\n"
        f"{caption(report)}\n\n"
        f"{report['arguments']['matches']:,} matches. PostgreSQL {report['postgresql']['server_version']} with "
        f"shared_buffers of {report['postgresql']['shared_buffers']}. Wall seconds unless it says otherwise; where the "
        "load average is above 1 other programs ran beside.\n\n" + table(["what", "found", "wanted at most"], rows)
    )


def main() -> None:
    """Fill, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", required=True)
    parser.add_argument("--matches", type=int, default=1_000_000)
    parser.add_argument("--filled", action="store_true", help="this recipe has filled the database before")
    parser.add_argument("--once", action="store_true", help="without recompute, which takes as long as adding up")
    parser.add_argument("--added-up", action="store_true", help="filled, and added up too: only what reads the sums")
    parser.add_argument("--out", type=Path, default=RESULTS / "arena-scale.json")
    arguments = parser.parse_args()
    session = Session("arena-scale", {"models": MODELS, "matches": arguments.matches})
    with tempfile.TemporaryDirectory(prefix="palus-scale-") as folder:
        store = open_store(Path(folder), arguments.database)
        settings = ArenaSettings(target_half_width=1.0)
        write_text(store.folder / SETTINGS_FILE, settings.to_json())
        if arguments.filled or arguments.added_up:
            with store.write() as connection:
                count = connection.scalar(text("SELECT count(*) FROM matches WHERE worker = 'local-scale'"))
                if count != arguments.matches:
                    sys.exit(f"this recipe filled the database with {count:,} matches; give --matches {count}")
                for derived in () if arguments.added_up else DERIVED:
                    connection.execute(delete(derived))
                connection.execute(delete(jobs))
        else:
            began = time.perf_counter()
            fill(store, arguments.matches)
            print(f"filled in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        with store.read() as connection:
            shown = {name: connection.scalar(text(f"SHOW {name}")) for name in ("server_version", "shared_buffers")}
        figures = {} if arguments.added_up else measure_ratings(store, settings)
        before = "" if arguments.added_up else digest(store)
        figures |= measure_pairings(store, settings)
        figures |= measure_scheduler(store, arguments.database, settings)
        figures |= measure_web(store, arguments.database)
        if not (arguments.once or arguments.added_up):
            print(markdown(session.report(figures=figures, postgresql=shown)), flush=True)  # what comes next takes long
            figures |= measure_recompute(store, settings, before)
        store.close()
    save(session.report(figures=figures, postgresql=shown), arguments.out, markdown)


if __name__ == "__main__":
    main()
