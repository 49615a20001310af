"""The live page of runs: served by `palus watch RUN`, and by a process of its own beside `palus train --watch`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import typer

from palus.cli.arena_start import listen
from palus.cli.output import stderr, stop_signal, typed
from palus.errors import CheckpointError, StorageError
from palus.league.records import BOOK
from palus.progress import PROGRESS

ADDRESS, ANNOUNCEMENT = "127.0.0.1", "Watch at "
REFRESH_S = 3.0
"""Between two looks into the book of a league."""
PATIENCE_S = 10.0
"""How long the page may take to end with its run."""
SIGNS = (str(PROGRESS), "configuration.yaml", ".palus-files", "*/checkpoint.pt", "*/events.out.tfevents.*")
"""What the folder of a run holds one of."""


def serve_runs(places: Sequence[str], port: int, *, browser: bool, until_eof: bool) -> None:
    """The page until Ctrl-C. places: folders of runs, folders and URLs of leagues. until_eof: until whoever started us
    closes our input, too; their run may be too young to show.

    Raises CheckpointError for a folder that holds no run, ArenaError for a port in use, StorageError.
    """
    try:
        from palus.arena.jobs.worker import wait_for_end
        from palus.web.serving import make_uvicorn
        from palus.web.watch.app import make_watch_app
    except ModuleNotFoundError as error:
        raise StorageError(
            f"the page of a run needs {error.name}, which is not installed; pip install 'palus[arena]'"
        ) from error
    stop = stop_signal()
    with listen(ADDRESS, port) as listener, ExitStack() as beside:
        folders = [beside.enter_context(_league_folder(place, stop)) if is_league(place) else Path(place)
                   for place in places]  # fmt: skip
        for place, folder in zip(places, folders, strict=True):
            if not (until_eof or is_league(place)):
                check_run(folder)
        server = make_uvicorn(make_watch_app(folders))
        pages = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="live page")
        pages.start()
        try:
            address = f"http://{ADDRESS}:{listener.getsockname()[1]}/"
            typer.echo(f"{', '.join(folder.name for folder in folders)}\n{ANNOUNCEMENT}{address} (Ctrl-C ends)")
            if browser:
                webbrowser.open(address)
            if until_eof:
                threading.Thread(target=wait_for_end, args=(stop,), daemon=True).start()
            while not stop.wait(0.5) and pages.is_alive():
                pass
        finally:
            server.should_exit = True
            pages.join()
    typer.echo("Ended.")


def is_league(place: str) -> bool:
    """Whether it is the storage of a league: a URL, or a folder with a book."""
    return "://" in place or (Path(place) / BOOK).is_dir()


@contextmanager
def _league_folder(place: str, stop: threading.Event) -> Iterator[Path]:
    """A folder that the page of a run can show, written anew from the league's book as that grows."""
    from palus.web.watch.of_book import LeagueFolder

    with tempfile.TemporaryDirectory(prefix="palus-watch-") as home:
        name = place.rstrip("/").rpartition("/")[2] if "://" in place else Path(place).resolve().name
        folder = Path(home) / (name if name.strip(".") else "league")  # ".." would be the folder of all such folders
        league = LeagueFolder(place, folder)
        league.refresh()
        if not league.record.runs:
            raise CheckpointError(f"{place}: no league has told anything here; give its folder, or what --storage says")
        reading = threading.Thread(target=_follow, args=(league.refresh, stop), name="book", daemon=True)
        reading.start()
        try:
            yield folder
        finally:
            stop.set()
            reading.join(PATIENCE_S)


def _follow(refresh: Callable[[], None], stop: threading.Event) -> None:
    while not stop.wait(REFRESH_S):
        with suppress(StorageError):  # the page shows what it has until the book can be read again
            refresh()


def check_run(folder: Path) -> None:
    """Raises CheckpointError for what is no run's folder."""
    if any(any(folder.glob(sign)) for sign in SIGNS):
        return
    if folder.is_file():
        raise CheckpointError(f"{folder}: a file; a replay is watched by itself, so leave out one or the others")
    runs = sorted(path.name for path in folder.glob("*/") if any(any(path.glob(sign)) for sign in SIGNS))
    beside = f"; it holds the runs {', '.join(runs[:5])}: name one of them" if runs else ""
    raise CheckpointError(f"{folder}: neither a replay nor the folder of a run{beside or '; give results/RUN_ID'}")


@contextmanager
def live_page(folder: Path, *, browser: bool) -> Iterator[None]:
    """The page of a run in a process of its own while the block runs: training keeps its processor and its bits.

    The address is told as soon as it answers. The process ends when its input closes, so also with a killed parent.
    """
    command = [sys.executable, "-m", "palus", "watch", str(folder), "--no-browser", "--until-eof"]
    pipe, over = subprocess.PIPE, threading.Event()
    # In a session of its own: Ctrl-C is for the training, which ends in order while the page is still there.
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as page:
        reader = threading.Thread(target=_announce, args=(page, folder, browser, over), daemon=True)
        reader.start()
        try:
            yield
        finally:
            over.set()
            assert page.stdin is not None
            page.stdin.close()
            try:
                page.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                page.kill()
            reader.join(PATIENCE_S)
    again = f"; again: palus watch {typed(folder)}" if folder.is_dir() else "."  # what only plays does so in a copy
    stderr.print(f"The live page ended with the run{again}")


def _announce(page: subprocess.Popen[str], folder: Path, browser: bool, over: threading.Event) -> None:
    """Tell the address, or that there will be none, unless the run is over already."""
    assert page.stdout is not None
    said = next((line for line in page.stdout if line.startswith(ANNOUNCEMENT)), None)
    if said is None:
        if not over.is_set():
            stderr.print(f"The live page did not start; palus watch {typed(folder)} says why.")
        return
    address = said.removeprefix(ANNOUNCEMENT).split()[0]
    stderr.print(f"Watch it learn: {address}")
    if browser:
        webbrowser.open(address)
