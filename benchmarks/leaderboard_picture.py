"""Remakes docs/images/leaderboard.png: `python benchmarks/leaderboard_picture.py FOLDER [--with PLAYER] [--pairs 50]`.

Plays the round robin of `palus rank FOLDER`, prints it as the command does and photographs the terminal. Needs the
extras of `palus[dev]` and a chromium on PATH.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console

from palus import envs
from palus.arena.models.players import find_players, load_player
from palus.arena.referee.games import GAMES
from palus.arena.study.tournament import rank_players
from palus.cli.rank import leaderboard_table
from screenshots import BROWSER_FLAGS, IMAGES

TERMINAL_WIDTH = 78


def main() -> None:
    """Rank, print, photograph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--with", dest="also", nargs="*", default=[], metavar="PLAYER")
    parser.add_argument("--pairs", type=int, default=50)
    arguments = parser.parse_args()
    spec = envs.make("SoccerTwos", 1).spec
    players = find_players(arguments.folder, spec)[0]
    players += [load_player(name, spec) for name in (*GAMES["SoccerTwos"].house, *arguments.also)]
    board = rank_players(list({p.name: p for p in players}.values()), arguments.pairs, seed=0)
    console = Console(record=True, width=TERMINAL_WIDTH)
    console.print(leaderboard_table(board))
    svg = console.export_svg(title="palus rank")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "board.html"
        page_file.write_text(f"<body style='margin:0;width:900px'>{svg}</body>")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(BROWSER_FLAGS))
        page = browser.new_page(viewport={"width": 900, "height": 600}, device_scale_factor=1.5)
        page.goto(page_file.as_uri())
        page.locator("svg").screenshot(path=IMAGES / "leaderboard.png", omit_background=True)
        browser.close()


if __name__ == "__main__":
    main()
