"""Remakes the pictures of the viewer in docs/images: `python benchmarks/screenshots.py [--game GAME] [--players A B]`.

Plays mirrored pairs between two players, puts the matches with the most kicks before their goal into a reel, and
photographs the viewer. Needs the extras of `palus[dev]` and a chromium on PATH.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

from palus.arena.models.players import load_player
from palus.arena.referee.games import source_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.arena.referee.replay import encode_replay
from palus.envs.recording import Recording
from palus.web.page import write_html

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PIXEL_RATIO = 1.5
SEED = 5
PAIRS = 12
REEL_LENGTH = 6
SHORTEST_S, LONGEST_S = 4, 14


@dataclass(frozen=True)
class Picture:
    """One view of the reel. before_end_s: seconds before the last tick of the match; options: rest of the link.

    fine: save PIXEL_RATIO device pixels per CSS pixel, for the picture that pages show large.
    """

    file: str
    match: int
    before_end_s: float
    options: str = ""
    width: int = 1440
    height: int = 880
    fine: bool = False


PICTURES = {
    "SoccerTwos": (
        Picture("viewer.png", 1, 0.5, "&rays=1", fine=True),
        Picture("viewer-goal.png", 1, 0.0),
        Picture("viewer-follow.png", 2, 0.4, "&follow=1"),
        Picture("viewer-colours.png", 3, 0.6, "&colours=contrast&rays=2"),
        Picture("viewer-phone.png", 1, 0.5, "&rays=1", 390, 844, fine=True),
    ),
    "StrikersVsGoalie": (
        Picture("strikers.png", 1, 0.6, "&rays=3", 1280, 860),
        Picture("strikers-3d.png", 1, 0.6, "&orbit=-18_36_29", 1280, 860),
    ),
}


def play(game: str, spec_a: str, spec_b: str) -> list[Recording]:
    """The liveliest of some matches between two players: those with the most kicks, not too short and not too long."""
    players = [load_player(word, source_of(game).spec) for word in (spec_a, spec_b)]
    recorder = Recorder()
    play_pairs(players[0], players[1], PAIRS, SEED, env_id=game, recorder=recorder)
    scored = [r for r in recorder.recordings.values() if any(event.kind == "goal" for event in r.events)]
    goals = [r for r in scored if SHORTEST_S <= (len(r.frames) - 1) / 50 <= LONGEST_S]
    if not goals:
        sys.exit(f"no match of {2 * PAIRS} had a goal after {SHORTEST_S} to {LONGEST_S} s; name stronger --players")
    return sorted(goals, key=lambda r: len(r.events), reverse=True)[:REEL_LENGTH]


def photograph(context: BrowserContext, page_uri: str, reel: list[Recording], picture: Picture) -> None:
    """Open the page at the picture's moment and save what it shows."""
    match = min(picture.match, len(reel))
    seconds = (len(reel[match - 1].frames) - 1) / 50 - picture.before_end_s
    page = context.new_page()
    page.set_viewport_size({"width": picture.width, "height": picture.height})
    page.goto(f"{page_uri}#match={match}&t={seconds:.2f}{picture.options}")
    page.wait_for_selector(".controls")
    page.wait_for_timeout(500)  # the goal banner slides in
    page.screenshot(path=IMAGES / picture.file, scale="device" if picture.fine else "css")
    page.close()
    print(f"wrote {(IMAGES / picture.file).relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--players", nargs=2, metavar=("A", "B"), default=("goalie-striker", "ball-chaser"), help="as for `palus match`"
    )
    parser.add_argument("--game", default="SoccerTwos", choices=list(PICTURES))
    parser.add_argument("--title", help="by default the game")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or sys.exit("no chromium on PATH; install the system's package chromium")
    game, title = arguments.game, arguments.title or arguments.game
    reel = play(game, *arguments.players)
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        html = write_html(Path(folder) / "page.html", encode_replay(reel, title=title), title, three_d=True)
        context = playwright.chromium.launch_persistent_context(
            Path(folder) / "profile", executable_path=chromium, args=BROWSER_FLAGS, device_scale_factor=PIXEL_RATIO
        )
        for picture in PICTURES[game]:
            photograph(context, html.as_uri(), reel, picture)
        context.close()


if __name__ == "__main__":
    main()
