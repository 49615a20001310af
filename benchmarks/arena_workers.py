"""What workers cost an arena that leases to them over HTTP: many idle ones, and busy ones with canned reports.

    python benchmarks/arena_workers.py --database postgresql+psycopg://...   measures, writes results/arena-workers.json

One web process and one scheduler of `palus arena` on loopback; this process is all workers, on few connections. An
idle one plays a game that nobody orders and asks again when it is told to. A busy one takes what lasts 32 s at 4.6 s
a pair, waits that long, renews, and hands in reports whose seeds and players are those of its jobs, whose actions are
those of one match that was played before (two players of the house do play). Without --database the store is SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from sqlalchemy import func, insert, select

from arena_fill import _entry as entry_of
from machine import RESULTS, Json, Session, caption, save, table
from palus.arena.jobs.reports import to_json
from palus.arena.ladder.log import check_chain
from palus.arena.locked.play import play_unit
from palus.arena.locked.unit import Unit, UnitReport
from palus.arena.models.entity import house_player
from palus.arena.referee.games import env_build, platform_name, runtimes
from palus.arena.referee.result import match_ids
from palus.arena.referee.sampling import pair_seeds
from palus.hub.accounts import create_account, issue_token
from palus.store import Store, open_store
from palus.store.tables import entries, matches

ENV = "SoccerTwos"
PAIR_S, PAIRS = 4.6, 7
"""A busy worker's pace, and what it takes at once: 32 s of it. A hundred of them hand in somewhat more than 20 pairs a
second, which an arena is to bear."""
REPORT_PAIRS = 2
"""Handed in together."""
MODELS = 200
CLIENTS, CONNECTIONS = 50, 100


@dataclass
class Clock:
    """What this process saw. requests: path and seconds of each. void: reports that were not taken."""

    requests: list[tuple[str, float]] = field(default_factory=list)
    refused: int = 0
    void: int = 0


class Workers:
    """All simulated workers of one arena. clients: they share these, each a few; one client's pool of connections looks
    at all requests that wait for each that ends, which took more than the arena itself."""

    def __init__(self, clients: Sequence[httpx.AsyncClient], token: str, played: UnitReport) -> None:
        self._clients, self._played = clients, played
        self._headers = {"Authorization": f"Bearer {token}"}
        self.clock = Clock()

    async def post(self, number: int, path: str, body: Any) -> Any:
        """The arena's answer; told again, as a worker does, when it has too much to do."""
        while True:
            began = time.perf_counter()
            client = self._clients[number % len(self._clients)]
            answer = await client.post(f"/api/worker/{path}", json=body, headers=self._headers)
            self.clock.requests.append((path, time.perf_counter() - began))
            if answer.status_code == 200:
                return answer.json()
            self.clock.refused += 1
            await asyncio.sleep(5.0)

    async def idle(self, number: int, start_s: float) -> None:
        """Ask for work that there is none of, as often as the arena wants."""
        await asyncio.sleep(start_s)
        about = {"games": ["doom_duel"]}
        told = await self.post(number, "hello", {"worker": f"idle-{number}", "about": about})
        while True:
            answer = await self.post(number, "take", {"worker": told["worker"], "about": about, "jobs": PAIRS})
            await asyncio.sleep(answer["pause_s"])

    async def busy(self, number: int, start_s: float) -> None:
        """Take, wait, hand in."""
        await asyncio.sleep(start_s)
        about = {"games": [ENV], "platform": platform_name(), "runtimes": runtimes()}
        told = await self.post(number, "hello", {"worker": f"busy-{number}", "about": about})
        while True:
            answer = await self.post(number, "take", {"worker": told["worker"], "about": about, "jobs": PAIRS})
            await asyncio.sleep(answer["pause_s"])
            left = answer["jobs"]
            while left:
                await asyncio.sleep(PAIR_S * len(left[:REPORT_PAIRS]))
                done, left = left[:REPORT_PAIRS], left[REPORT_PAIRS:]
                reports = [
                    {"job": job["job_id"], "secret": job["secret"], "report": await self._report(job["payload"])}
                    for job in done
                ]
                self.clock.void += len((await self.post(number, "finish", {"reports": reports}))["void"])
                if left:
                    await self.post(
                        number, "renew", {"jobs": [job["job_id"] for job in left], "secret": left[0]["secret"]}
                    )

    async def _report(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Canned, but between two players of the house, which the arena itself plays again and would know for false."""
        order = Unit.from_payload(payload)
        if all(contender.house for contender in order.contenders):
            return to_json(await asyncio.to_thread(play_unit, order))
        seed = int(pair_seeds(order.seed, 1)[0])
        told = []
        for leg, match in zip(order.legs, self._played.matches, strict=True):
            sides = order.sides(leg)
            id_, unit_id = match_ids(order.env, seed, leg, sides)
            result = replace(match.result, id=id_, unit_id=unit_id, seed=seed, sides=sides)
            told.append(replace(match, result=result))
        return to_json(replace(self._played, matches=tuple(told)))


def prepare(store: Store) -> str:
    """Models that may be ordered, and a token for the workers."""
    rows = [entry_of(number, 1) | {"source": "hf"} for number in range(MODELS)]
    with store.write() as connection:
        connection.execute(insert(entries), rows)
        create_account(connection, "lab")
        return issue_token(connection, "lab", "lab", ("runner",))


def start(data: Path, database: str | None, *words: str) -> tuple[psutil.Popen, str]:
    """A process of the arena and, where it has one, its address."""
    place = ["--data", str(data), *(["--database", database] if database else []), "--workers", "0"]
    command = [sys.executable, "-m", "palus", "arena", *place, *words]
    process = psutil.Popen(command, stdout=subprocess.PIPE, text=True)
    said: list[str] = []
    while not said or "Stop with" not in said[-1]:
        said.append(process.stdout.readline())
        if not said[-1]:
            sys.exit(f"{' '.join(command)} did not start")
    return process, next((word for word in "".join(said).split() if word.startswith("http")), "")


async def measure(
    url: str, token: str, servers: dict[str, psutil.Popen], store: Store, args: argparse.Namespace
) -> Json:
    """Let everybody begin, then watch for a while."""
    sides = [house_player(name, ENV) for name in ("ball-chaser", "goalie-striker")]
    played = play_unit(Unit(ENV, 1, (sides[0], sides[1])))
    assert played.env.build_hash == env_build(ENV).build_hash
    gc.freeze()  # to look through all that was made until here takes time in which answers wait to be read
    limits = httpx.Limits(max_connections=CONNECTIONS // CLIENTS, max_keepalive_connections=CONNECTIONS // CLIENTS)
    async with contextlib.AsyncExitStack() as stack:
        clients = [httpx.AsyncClient(base_url=url, limits=limits, timeout=60.0) for _ in range(CLIENTS)]
        for client in clients:
            await stack.enter_async_context(client)
        workers = Workers(clients, token, played)
        tasks = [workers.idle(number, args.warm_s * number / args.idle) for number in range(args.idle)]
        tasks += [workers.busy(number, args.warm_s * number / args.busy) for number in range(args.busy)]
        running = [asyncio.create_task(task) for task in tasks]
        await asyncio.sleep(args.warm_s + PAIR_S * PAIRS)
        workers.clock = Clock()
        cpu, logged, began = {name: _cpu_s(p) for name, p in servers.items()}, _logged(store), time.perf_counter()
        await asyncio.sleep(args.seconds)
        wall_s = time.perf_counter() - began
        took: dict[str, list[float]] = {}
        for path, request_s in workers.clock.requests:
            took.setdefault(path, []).append(request_s)
        seconds = [request_s for ones in took.values() for request_s in ones]
        figures = {
            "pairs_per_s": (_logged(store) - logged) / 2 / wall_s,
            "cores": {name: (_cpu_s(p) - cpu[name]) / wall_s for name, p in servers.items()},
            "requests_per_s": {path: len(took[path]) / wall_s for path in sorted(took)},
            "p99_ms_of": {path: 1e3 * float(np.quantile(took[path], 0.99)) for path in sorted(took)},
            "p50_ms": 1e3 * float(np.quantile(seconds, 0.5)),
            "p99_ms": 1e3 * float(np.quantile(seconds, 0.99)),
            "refused": workers.clock.refused,
            "void": workers.clock.void,
        }
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return figures


def _cpu_s(process: psutil.Popen) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _logged(store: Store) -> int:
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(matches)).scalar_one()


def markdown(report: Json) -> str:
    """The result as a page."""
    rows = [
        ["pairs logged a second", f"{report['pairs_per_s']:.1f}"],
        *([f"cores, {name}", f"{cores:.2f}"] for name, cores in report["cores"].items()),
        *([f"requests a second, {name}", f"{rate:.1f}"] for name, rate in report["requests_per_s"].items()),
        *([f"99 % of {name} below, ms", f"{ms:.0f}"] for name, ms in report["p99_ms_of"].items()),
        ["median of a request, ms", f"{report['p50_ms']:.0f}"],
        ["99 % below, ms", f"{report['p99_ms']:.0f}"],
        ["requests that were refused", str(report["refused"])],
        ["reports that were void", str(report["void"])],
    ]
    arguments = report["arguments"]
    return (
        "# Workers of an arena\n\nMade by `python benchmarks/arena_workers.py` from the JSON file beside it.\n\n"
        f"{caption(report)}\n\n{arguments['idle']} idle and {arguments['busy']} busy workers, "
        f"{'PostgreSQL' if arguments['database'] else 'SQLite'}.\n\n" + table(["what", "measured"], rows)
    )


def main() -> None:
    """Measure, check the chain, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", help="SQLAlchemy URL of an empty PostgreSQL database")
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--busy", type=int, default=100)
    parser.add_argument("--warm-s", type=float, default=150.0, help="in which the workers begin, one after another")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--print", action="store_true", help="store nothing")
    args = parser.parse_args()
    session = Session("arena-workers", {**vars(args), "database": bool(args.database)})
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "arena"
        store = open_store(data, args.database)
        token = prepare(store)
        web, url = start(data, args.database, "--role", "web", "--port", "0")
        scheduler, _ = start(data, args.database, "--role", "scheduler")
        servers = {"web": web, "scheduler": scheduler}
        try:
            figures = asyncio.run(measure(url, token, servers, store, args))
        finally:
            for process in servers.values():
                process.terminate()
                process.wait(60)
        with store.read() as connection:
            figures["matches"] = check_chain(connection)
        store.close()
    report = session.report(**figures)
    print(json.dumps(figures, indent=1))
    if not args.print:
        save(report, RESULTS / "arena-workers.json", markdown)


if __name__ == "__main__":
    main()
