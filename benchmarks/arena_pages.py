"""How fast and how large the arena's server is with 1 000 models and 240 000 matches, while the queue runs.

    python benchmarks/arena_pages.py            fills a store (2 min), measures, writes results/arena-pages.json, .md

The real server runs in a process of its own. Meanwhile a second process logs a mirrored pair every half second and
publishes a new fit every ten, as a busy arena does. Readers are 50 keep-alive connections that accept gzip, as browsers
do; each asks for one kind of page, of a model or match drawn anew every time. They ask without pause, which measures
what the server can take, or once a second each, which is a class that reads.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

from arena_fill import ENV, fill, match_id, play_on, publish_fit, repo_of
from machine import RESULTS, Json, Session, caption, save, table
from palus.store import Store, open_store

READERS = 50
APPEND_S, FIT_S = 0.5, 10.0

Pick = Callable[[random.Random], str]


def pages(models: int, count: int) -> dict[str, Pick]:
    """What readers ask for, by the name in the table."""

    def repo(rng: random.Random) -> str:
        return repo_of(rng.randrange(models))

    return {
        "leaderboard": lambda _: f"/api/arena/leaderboard/{ENV}",
        "model": lambda rng: f"/api/arena/models/{repo(rng)}",
        "match": lambda rng: f"/api/arena/matches/{match_id(rng.randrange(1, count + 1))}",
        "compare": lambda rng: "/api/arena/compare/" + "/".join(map(repo_of, rng.sample(range(models), 2))),
        "matrix": lambda _: f"/api/arena/matrix/{ENV}",
        "analytics": lambda _: f"/api/arena/analytics/{ENV}",
        "team": lambda rng: f"/api/arena/analytics/{ENV}/{repo(rng)}",
        "status": lambda _: "/api/arena/status",
        "HTML of a page": lambda _: "/matrix",
    }


def serve(folder: Path, listener: socket.socket) -> None:
    """Process of the server."""
    from palus.hub.limits import HubLimits
    from palus.web.app import WebLimits, make_app
    from palus.web.serving import make_uvicorn

    many = 10**9  # all readers come from one address here
    limits = WebLimits(requests_per_s=many, request_burst=many, matches_per_s=many, matches_burst=many)
    make_uvicorn(make_app(open_store(folder), limits=limits, hub_limits=HubLimits())).run(sockets=[listener])


def run_queue(folder: Path, models: int, seq: int, stop: Event) -> None:
    """Process that writes what workers and scheduler would."""
    store = open_store(folder)
    fitted_s = time.monotonic()
    while not stop.wait(APPEND_S):
        play_on(store, seq, models)
        seq += 2
        if time.monotonic() - fitted_s > FIT_S:
            publish_fit(store, seq)
            fitted_s = time.monotonic()


async def read(port: int, pick: Pick, pause_s: float, until_s: float, seed: int) -> list[float]:
    """One reader. Returns the seconds of each answer. Raises RuntimeError for anything but 200."""
    rng = random.Random(seed)
    await asyncio.sleep(rng.random() * pause_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seconds = []
    while time.perf_counter() < until_s:
        path = pick(rng)
        started = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        if " 200 " not in lines[0]:
            raise RuntimeError(f"{path}: {lines[0]}")
        length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length"))
        await reader.readexactly(length)
        seconds.append(time.perf_counter() - started)
        await asyncio.sleep(max(0.0, pause_s - seconds[-1]))
    writer.close()
    return seconds


async def measure(port: int, pick: Pick, pause_s: float, seconds: float) -> Json:
    """Percentiles over all readers."""
    until_s = time.perf_counter() + seconds
    answers = await asyncio.gather(*(read(port, pick, pause_s, until_s, seed) for seed in range(READERS)))
    took = np.concatenate(answers) * 1e3
    p50, p99 = np.percentile(took, [50, 99])
    return {"answers": len(took), "per_s": len(took) / seconds, "p50_ms": float(p50), "p99_ms": float(p99)}


def memory_mb(pid: int) -> float:
    """Resident memory of a process (Linux)."""
    fields = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1]
    return int(fields.split()[0]) / 1024


def first_answer_s(port: int) -> float:
    """Seconds until a server that has just started answers with the board, which needs the whole log."""
    started = time.perf_counter()
    asyncio.run(read(port, pages(1, 1)["leaderboard"], 0.0, started + 0.001, 0))
    return time.perf_counter() - started


def run(store: Store, folder: Path, models: int, count: int, seconds: float) -> Json:
    """Start the processes, measure every page, stop them."""
    size_mb = (folder / "palus.db").stat().st_size / 2**20
    store.close()
    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        port = listener.getsockname()[1]
        server = context.Process(target=serve, args=(folder, listener))
        server.start()
        stop = context.Event()
        queue = context.Process(target=run_queue, args=(folder, models, count, stop))
        try:
            start_s = first_answer_s(port)
            assert server.pid is not None
            before_mb = memory_mb(server.pid)
            queue.start()
            figures: Json = {}
            for name, pick in pages(models, count).items():
                full = asyncio.run(measure(port, pick, 0.0, seconds))
                figures[name] = {"full": full, "calm": asyncio.run(measure(port, pick, 1.0, seconds))}
                print(name, figures[name], flush=True)
            return {
                "pages": figures,
                "start_s": start_s,
                "memory_mb": {"before": before_mb, "after": memory_mb(server.pid)},
                "database_mb": size_mb,
            }
        finally:
            stop.set()
            queue.join(timeout=30)
            server.terminate()
            server.join(timeout=30)


def markdown(report: Json) -> str:
    """The result as a page."""
    arguments, memory = report["arguments"], report["memory_mb"]
    rows = [
        [
            name,
            f"{line['calm']['p50_ms']:.0f}",
            f"{line['calm']['p99_ms']:.0f}",
            f"{line['full']['per_s']:.0f}",
            f"{line['full']['p50_ms']:.0f}",
            f"{line['full']['p99_ms']:.0f}",
        ]
        for name, line in report["pages"].items()
    ]
    header = ["page", "calm: p50 ms", "p99 ms", "full: answers/s", "p50 ms", "p99 ms"]
    return (
        "# Pages of a large arena under load\n\n"
        "Made by `python benchmarks/arena_pages.py` from the JSON file beside it.\n\n"
        f"{caption(report)}\n\n"
        f"{arguments['models']} models, {arguments['matches']:,} matches; the queue logs a pair every {APPEND_S} s and "
        f"publishes a fit every {FIT_S:.0f} s. {READERS} readers on keep-alive connections: once a second each (calm), "
        "or without pause (full). Readers, server and queue share the machine's cores.\n\n"
        f"{table(header, rows)}\n"
        f"Server: {memory['before']:.0f} MB resident after the first page, {memory['after']:.0f} MB after all of this; "
        f"{report['start_s']:.1f} s from start to the first leaderboard. Database: {report['database_mb']:.0f} MB.\n"
    )


def main() -> None:
    """Fill, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--matches", type=int, default=240_000)
    parser.add_argument("--seconds", type=float, default=8.0, help="per page and way of reading")
    arguments = parser.parse_args()
    session = Session("arena-pages", vars(arguments))
    folder = Path(tempfile.mkdtemp(prefix="palus-arena-pages-"))
    try:
        store = open_store(folder)
        fill(store, arguments.models, arguments.matches)
        figures: dict[str, Any] = run(store, folder, arguments.models, arguments.matches, arguments.seconds)
    finally:
        shutil.rmtree(folder)
    save(session.report(**figures), RESULTS / "arena-pages.json", markdown)


if __name__ == "__main__":
    main()
