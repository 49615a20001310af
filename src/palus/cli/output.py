"""What the commands share: numbers as people and programs want to read them, and a progress bar."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from palus.errors import StorageError
from palus.processes import ending_signals
from palus.terminal import Terminal

if TYPE_CHECKING:
    from palus.store import Store

stdout = Terminal(highlight=False, soft_wrap=True)
stderr = Terminal(stderr=True, highlight=False, soft_wrap=True)

EXIT_USER_ERROR, EXIT_INTERRUPTED = 2, 130
FULL = errno.ENOSPC, errno.EDQUOT
"""How a system says that a disk is full, or a user's share of it."""
LINE_S = 30.0
"""Between two lines of progress, where there is no terminal for a bar."""
BROUGHT_BY = {
    **dict.fromkeys(("torch", "tensorboardX", "tensorboard", "scipy", "psutil"), "train"),
    "huggingface_hub": "hub",
    **dict.fromkeys(("fastapi", "starlette", "uvicorn", "websockets", "sqlalchemy", "alembic", "duckdb"), "arena"),
    **dict.fromkeys(("h11", "openskill", "nh3", "markdown_it"), "arena"),
    **dict.fromkeys(("vizdoom", "gymnasium", "pettingzoo"), "doom"),
    **dict.fromkeys(("grpc", "PIL"), "unity"),
    "av": "video",
    "psycopg": "postgres",
    **dict.fromkeys(("optuna", "matplotlib"), "sweep"),
    **dict.fromkeys(("ray", "fsspec", "s3fs"), "cluster"),
}
"""Module -> extra of `pyproject.toml` that installs it."""


@contextmanager
def opened(data: Path, database: str | None, *, create: bool = False, blobs: str | None = None) -> Iterator[Store]:
    """The store of an arena, while a block runs. create: also where there is none yet. blobs: as of `open_store`.

    Raises StorageError, also where a block may not write what it has to.
    """
    from palus.store import open_store

    with closing(open_store(data, database, create=create, blobs=blobs)) as store:
        try:
            yield store
        except Exception as error:
            fault = getattr(error, "orig", error)  # what SQLAlchemy was told, which is not loaded for every command
            if not (isinstance(fault, PermissionError) or "READONLY" in getattr(fault, "sqlite_errorname", "")):
                raise
            raise StorageError(
                f"{data}: cannot be written ({fault}); run this as the user who runs the arena"
            ) from error


def stop_signal() -> threading.Event:
    """Set by what asks a process to end."""
    stop = threading.Event()
    for number in ending_signals():
        signal.signal(number, lambda *_: stop.set())
    return stop


@contextmanager
def progress_bar(
    title: str, total: float | None, *columns: str | ProgressColumn, **fields: Any
) -> Iterator[Callable[..., None]]:
    """A bar on stderr, gone when done; where that is no terminal, lines. Yields `Progress.update` of its task.

    columns: right of the bar; without any the time so far. fields: of the task, for columns of text.
    """
    console = Terminal(stderr=True)
    shown = ("{task.description}", BarColumn(), *(columns or (TimeElapsedColumn(),)))
    with Progress(*shown, console=console, transient=True, disable=not console.is_terminal) as progress:
        update = partial(progress.update, progress.add_task(title, total=total, **fields))
        yield update if console.is_terminal else _telling(update, progress.tasks[0], columns)


def _telling(update: Callable[..., None], task: Task, columns: Sequence[str | ProgressColumn]) -> Callable[..., None]:
    """An update of the task that also tells how far it is, in a line on stderr, LINE_S after the start or the last."""
    told = time.monotonic()

    def update_and_tell(**changes: Any) -> None:
        nonlocal told
        update(**changes)
        if time.monotonic() - told < LINE_S:
            return
        told = time.monotonic()
        share = [] if task.total is None else [f"{task.percentage:.0f} %"]
        counted = [f"{task.completed:.0f}/{task.total:.0f}" for c in columns if isinstance(c, MofNCompleteColumn)]
        words = [column.format(task=task) for column in columns if isinstance(column, str)]
        stderr.print(f"{task.description}: {' '.join([*share, *counted, *words])}, {task.elapsed:.0f} s")

    return update_and_tell


@contextmanager
def matches_progress(title: str, total: int, what: str = "matches") -> Iterator[Callable[..., None]]:
    """A bar over matches. Yields what is called with the number just finished, and with a title when it changes."""
    with progress_bar(title, total, MofNCompleteColumn(), what, TimeRemainingColumn()) as update:

        def tick(finished: int, title: str | None = None) -> None:
            update(advance=finished, description=title)

        yield tick


def end_early(over: int, planned: int, what: str, caution: str = "") -> NoReturn:
    """After Ctrl-C, when what was played is told: say how much that was, and leave with 130."""
    stderr.print(f"Interrupted: {over} of {planned} {what} were over and count; those still running are left out.")
    if over and caution:
        stderr.print(caution)
    raise typer.Exit(EXIT_INTERRUPTED)


def typed(path: Path | str) -> str:
    """A file or folder as a shell takes it, for the console's markup: part of a command that is there to be copied."""
    return escape(shlex.quote(str(path)))


def told_memory(error: MemoryError) -> str:
    """What to say of an array that the memory does not hold."""
    return (
        f"out of memory: {error or 'more than there is was asked for'}. Ask for less at once: of a run lower "
        "hyperparameters.buffer_size or palus.num_matches, of other commands --pairs or --games"
    )


def told_lack(error: OSError) -> str | None:
    """What to say of what the system has no more of, whatever a command does; None of what commands tell themselves."""
    if error.errno in FULL:
        return f"{error.filename or 'the output'}: {error.strerror}; free space there"
    if error.errno == errno.EMFILE:
        return f"{error.strerror}; let a process open more of them (ulimit -n)"
    if "temporary directory" in (error.strerror or ""):  # of `tempfile`
        return f"{error.strerror}; name a folder that can be written, TMPDIR=FOLDER"
    return None


def told_missing(error: ModuleNotFoundError) -> str | None:
    """What to say of a module that an extra brings; None of any other, for which nobody knows a remedy."""
    module = (error.name or "").partition(".")[0]
    if module not in BROUGHT_BY:
        return None
    return f"this needs {module}, which is not installed; pip install 'palus[{BROUGHT_BY[module]}]'"


def was_interrupted(error: BaseException) -> bool:
    """Whether that is Ctrl-C, also where a compiled module that was being loaded made an ImportError of it."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt)


def check_place(path: Path | None, option: str, *, made: bool = False) -> None:
    """That a file can be written there, for before the work of which it is to tell. option: that names it.

    made: its folder is made where it is missing, and the file is replaced as a whole. Raises StorageError.
    """
    if path is None:
        return
    folder = path.parent
    while made and not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    there = path if os.path.exists(path) and not made else folder
    if os.path.isdir(path):
        fault = errno.EISDIR
    elif not os.path.isdir(folder):
        fault = errno.ENOTDIR if os.path.lexists(folder) else errno.ENOENT
    elif not os.access(there, os.W_OK):
        fault = errno.EACCES
    else:
        return
    raise StorageError(f"{path}: cannot be written ({os.strerror(fault)}); choose another place for {option}")


def can_keep(folder: Path, otherwise: str) -> bool:
    """Whether files can be written into a folder, for before the work. otherwise: what is told on stderr if not."""
    if os.access(folder, os.W_OK):
        return True
    stderr.print(f"{escape(str(folder))} cannot be written: {otherwise}.")
    return False


def print_json(content: Any) -> None:
    """One JSON document on stdout; dataclasses become objects."""
    print(json.dumps(content, default=asdict))


def percent(share: float) -> str:
    """0.634 -> "63.4 %"."""
    return f"{100 * share:.1f} %"


def percent_range(interval: tuple[float, float]) -> str:
    """(0.58, 0.68) -> "58.0 - 68.0 %"."""
    return f"{100 * interval[0]:.1f} - {100 * interval[1]:.1f} %"


def ranks(best_and_worst: tuple[int, int]) -> str:
    """(2, 4) -> "2-4"."""
    return "-".join(map(str, dict.fromkeys(best_and_worst)))


def numbers_table(*columns: str, left: int = 0, **options: Any) -> Table:
    """A table of numbers, but for one column. options: of `Table`."""
    table = Table(**options)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == left else "right")
    return table


def standings(columns: Sequence[str], rows: Iterable[Sequence[str]], bold: str | None = None) -> Table:
    """A leaderboard as people read it. bold: the row with this cell."""
    caption = "± : 95 % interval over mirrored pairs; ? : provisional"
    table = numbers_table(*columns, left=columns.index("player"), caption=caption, caption_justify="left")
    for row in rows:
        table.add_row(*map(escape, row), style="bold" if bold in row else None)
    return table


def nats(entropy: float | None) -> str:
    """Entropy of a policy; bots have none."""
    return "-" if entropy is None else f"{entropy:.3f}"
