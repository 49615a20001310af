"""Remakes the pictures of the live page in docs/images: `python benchmarks/watch_pictures.py results/A [results/B]`.

Serves the page of these runs as `palus watch` does and photographs the first one, a match of its newest policy, and all
of them compared.
Needs the extras of `palus[dev]` and a chromium on PATH.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

from page_pictures import Picture, photograph
from screenshots import BROWSER_FLAGS, IMAGES, ROOT

BEFORE_END = 0.8
ONE = Picture("watch.png", "", height=2250)
SEVERAL = Picture("watch-compare.png", "?axis=time", "dark", width=820, height=1180)


def photograph_match(context: BrowserContext, address: str, against: str) -> None:
    """Ask for a match of the newest policy, and save the box that shows it, a while before its end."""
    page = context.new_page()
    page.set_viewport_size({"width": 1280, "height": 2400})  # nothing to scroll: the head stays above the box
    page.goto(address)
    page.get_by_label("Against").select_option(against)
    page.get_by_role("button", name="Watch now").click()
    moment = page.get_by_label("Moment of the match")
    moment.wait_for(timeout=120_000)  # the kernels may have to be compiled
    page.get_by_role("button", name="Pause").click()
    moment.fill(f"{BEFORE_END * float(moment.get_attribute('max') or 0):.2f}")
    page.get_by_role("button", name="Sensors").click()
    page.wait_for_timeout(500)
    page.locator("section.box:has(.stage-panel)").screenshot(path=IMAGES / "watch-match.png")
    page.close()
    print(f"wrote {(IMAGES / 'watch-match.png').relative_to(ROOT)}")


@contextmanager
def watching(folders: Sequence[Path]) -> Iterator[str]:
    """The address of their page while the block runs."""
    command = [sys.executable, "-m", "palus", "watch", *map(str, folders), "--no-browser", "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        yield next(line.split()[2] for line in page.stdout if line.startswith("Watch at "))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("--against", default="itself", help="whom the newest policy meets, as the page lists them")
    runs, against = (arguments := parser.parse_args()).runs, arguments.against
    chromium = shutil.which("chromium") or sys.exit("no chromium on PATH; install the system's package chromium")
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(profile, executable_path=chromium, args=BROWSER_FLAGS)
        for folders, picture in ((runs[:1], ONE), (runs, SEVERAL)):
            with watching(folders) as address:
                photograph(context, address + picture.path, picture)
                if picture is ONE:
                    photograph_match(context, address, against)
        context.close()


if __name__ == "__main__":
    main()
