"""Remakes the pictures of the live page in docs/images: `python benchmarks/watch_pictures.py results/A [results/B]`.

Serves the page of these runs as `palus watch` does and photographs the first one, and all of them compared.
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

from playwright.sync_api import sync_playwright

from page_pictures import Picture, photograph
from screenshots import BROWSER_FLAGS

ONE = Picture("watch.png", "", height=2250)
SEVERAL = Picture("watch-compare.png", "?axis=time", "dark", width=820, height=1180)


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
    runs = parser.parse_args().runs
    chromium = shutil.which("chromium") or sys.exit("no chromium on PATH; install the system's package chromium")
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(profile, executable_path=chromium, args=BROWSER_FLAGS)
        for folders, picture in ((runs[:1], ONE), (runs, SEVERAL)):
            with watching(folders) as address:
                photograph(context, address + picture.path, picture)
        context.close()


if __name__ == "__main__":
    main()
