"""How soon the leaderboard and a match are on screen in a browser that has nothing cached.

    python benchmarks/first_frame.py            fills a store (1 min), measures, writes results/first-frame.json, .md

The real server shows 1 000 models. Every measurement starts a new browser with an empty profile. The clock runs from
the start of the navigation until the frame after the first row of the board, or the first picture of the match.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import socket
import sys
import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path
from statistics import median

from playwright.sync_api import Playwright, sync_playwright
from sqlalchemy import select

from arena_fill import fill, match_id
from arena_pages import serve
from machine import RESULTS, Json, Session, caption, save, table
from palus.arena.ladder.log import LogRecord, StoredBytes, append
from palus.arena.referee.replay import encode_replay
from palus.store import Store, open_store
from palus.store.engine import now_ms
from palus.store.tables import matches
from screenshots import BROWSER_FLAGS, play

SHOWN = {"leaderboard": "[aria-label='Ranking'] tbody tr", "match": ".palus canvas"}
WATCH = """
const look = () => {
  if (document.querySelector(SELECTOR)) requestAnimationFrame(() => (window.firstFrameMs = performance.now()));
  else requestAnimationFrame(look);
};
look();
"""
LIMIT_MS = 30_000


def add_watched_match(store: Store) -> str:
    """Log a match that was really played, with its replay. Returns its id."""
    recording = play("SoccerTwos", "goalie-striker", "ball-chaser")[0]
    data = encode_replay([recording], title="goalie-striker against ball-chaser")
    blob = store.blobs.put(data)
    with store.write() as connection:
        newest = connection.execute(select(matches.c.record).order_by(matches.c.seq.desc()).limit(1)).scalar_one()
        record = replace(LogRecord.from_json(newest), id=match_id(0), replay=StoredBytes(blob.sha256, len(data)))
        append(connection, [record], now_ms())
    return record.id


def first_frame_ms(playwright: Playwright, address: str, selector: str) -> float:
    """Milliseconds from navigation to content on screen, in a browser that starts for this."""
    with tempfile.TemporaryDirectory(prefix="palus-profile-") as profile:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=shutil.which("chromium"), args=list(BROWSER_FLAGS)
        )
        page = context.new_page()
        page.add_init_script(WATCH.replace("SELECTOR", repr(selector)))
        page.goto(address)
        page.wait_for_selector(selector, timeout=LIMIT_MS)
        while (taken := page.evaluate("window.firstFrameMs ?? null")) is None:
            page.wait_for_timeout(20)
        context.close()
    return float(taken)


def measure(folder: Path, match: str, times: int) -> Json:
    """Serve the store and open both pages."""
    paths = {"leaderboard": "/", "match": f"/match?match={match}"}
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, sync_playwright() as playwright:
        server = multiprocessing.get_context("spawn").Process(target=serve, args=(folder, listener))
        server.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            for name, path in paths.items():  # the server has read its log
                first_frame_ms(playwright, address + path, SHOWN[name])
            return {
                name: [first_frame_ms(playwright, address + path, SHOWN[name]) for _ in range(times)]
                for name, path in paths.items()
            }
        finally:
            server.terminate()
            server.join(timeout=30)


def asset_bytes() -> int:
    """Size of everything that is built, as it lies in the package."""
    assets = Path(str(resources.files("palus.web") / "assets"))
    return sum(path.stat().st_size for path in assets.rglob("*") if path.is_file())


def markdown(report: Json) -> str:
    """The result as a page."""
    frames = report["first_frame_ms"]
    rows = [[name, f"{median(ms):.0f}", f"{max(ms):.0f}", str(len(ms))] for name, ms in frames.items()]
    return (
        "# First frame on a cold browser\n\n"
        "Made by `python benchmarks/first_frame.py` from the JSON file beside it.\n\n"
        f"{caption(report)}\n\n"
        f"{report['arguments']['models']} models on the board; server and browser share the machine's cores.\n\n"
        f"{table(['page', 'median ms', 'slowest ms', 'browsers'], rows)}\n"
        f"Built assets in all: {report['asset_bytes'] / 1e6:.2f} MB.\n"
    )


def main() -> None:
    """Fill, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--matches", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=7, help="browsers started per page")
    arguments = parser.parse_args()
    if shutil.which("chromium") is None:
        sys.exit("no chromium on PATH; install the system's package chromium")
    session = Session("first-frame", vars(arguments))
    with tempfile.TemporaryDirectory(prefix="palus-first-frame-") as name:
        store = open_store(Path(name))
        fill(store, arguments.models, arguments.matches)
        match = add_watched_match(store)
        store.close()
        frames = measure(Path(name), match, arguments.times)
    save(session.report(first_frame_ms=frames, asset_bytes=asset_bytes()), RESULTS / "first-frame.json", markdown)


if __name__ == "__main__":
    main()
