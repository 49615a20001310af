"""Remakes the pictures of the arena's pages in docs/images: `python benchmarks/page_pictures.py http://127.0.0.1:8000`.

Looks at a running arena: the board, its first model, that model's newest match and the rest. Start one with
`palus arena --pool FOLDER` and let it play for a while. Needs the extras of `palus[dev]` and a chromium on PATH.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from typing import Any, Literal

from playwright.sync_api import BrowserContext, sync_playwright

from screenshots import BROWSER_FLAGS, IMAGES, ROOT


@dataclass(frozen=True)
class Picture:
    """One page. path: may name {env}, {model}, {other}, {match}; height: CSS pixels shown, 0 for the whole page."""

    file: str
    path: str
    colours: Literal["light", "dark"] = "light"
    width: int = 1280
    height: int = 0


PICTURES = (
    Picture("page-leaderboard.png", "/"),
    Picture("page-leaderboard-dark.png", "/", "dark"),
    Picture("page-leaderboard-phone.png", "/", width=390, height=844),
    Picture("page-model.png", "/{model}", height=1500),
    Picture("page-match.png", "/match?match={match}&t=1&rays=1", "dark"),
    Picture("page-compare.png", "/compare?a={other}&b={model}", height=900),
    Picture("page-matrix.png", "/matrix"),
    Picture("page-status.png", "/status"),
    Picture("page-analytics.png", "/analytics?team={model}", height=1100),
    Picture("page-competition.png", "/analytics?tab=competition"),
    Picture("page-downloads.png", "/analytics?tab=downloads"),
    Picture("page-room.png", "/room", "dark", height=900),
)


def load(arena: str, path: str) -> Any:
    """The JSON of the arena at a path of its interface."""
    with urllib.request.urlopen(f"{arena}/api/arena/{path}") as answer:
        return json.load(answer)


def subjects(arena: str) -> dict[str, str]:
    """What the pictures show: the first game, its two best models that were pushed, the best one's newest replay."""
    environments = load(arena, "envs")["environments"]
    rows = load(arena, f"leaderboard/{environments[0]['env']}")["rows"] if environments else []
    pushed = [row["repo"] for row in rows if row["kind"] != "house"]
    if len(pushed) < 2:
        sys.exit(f"{arena} ranks {len(pushed)} pushed models; two are needed, with matches played")
    recent = load(arena, f"models/{pushed[0]}")["performance"][0]["recent"]
    watchable = sorted((line for line in recent if line["has_replay"]), key=lambda line: -float(line["duration_s"]))
    if not watchable:
        sys.exit(f"{pushed[0]} has no replay yet; let the arena play on")
    names = {"env": environments[0]["env"], "model": pushed[0], "other": pushed[1]}
    return names | {"match": watchable[len(watchable) // 2]["id"]}


def photograph(context: BrowserContext, address: str, picture: Picture) -> None:
    """Open a page, wait until it has loaded what it shows, and save it."""
    page = context.new_page()
    page.emulate_media(color_scheme=picture.colours, reduced_motion="reduce")
    page.set_viewport_size({"width": picture.width, "height": picture.height or 800})
    page.goto(address)
    page.wait_for_selector("main h1")
    page.wait_for_selector("body:not(:has([aria-busy]))")
    page.wait_for_timeout(800)  # charts and frames settle in their width
    page.screenshot(path=IMAGES / picture.file, full_page=picture.height == 0)
    page.close()
    print(f"wrote {(IMAGES / picture.file).relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arena", help="address of a running arena")
    arena = parser.parse_args().arena.rstrip("/")
    chromium = shutil.which("chromium") or sys.exit("no chromium on PATH; install the system's package chromium")
    names = subjects(arena)
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(profile, executable_path=chromium, args=BROWSER_FLAGS)
        for picture in PICTURES:
            photograph(context, arena + picture.path.format(**names), picture)
        context.close()


if __name__ == "__main__":
    main()
