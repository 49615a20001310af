"""What the commands share: options, numbers as people and programs want to read them, and a progress bar."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Protocol, TypeAlias

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from palus.store import Store

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)

DataOption: TypeAlias = Annotated[Path, typer.Option("--data", help="The arena's folder.")]
DatabaseOption: TypeAlias = Annotated[
    str | None, typer.Option("--database", help="The arena's database, if it is not in its folder (SQLAlchemy URL).")
]
DEFAULT_DATA = Path("arena")
GameOption: TypeAlias = Annotated[
    Literal["SoccerTwos", "doom_duel"], typer.Option("--game", help="What they play; Doom takes palus[doom].")
]
ModeOption: TypeAlias = Annotated[
    Literal["stochastic", "greedy"],
    typer.Option("--mode", help="Draw actions from the policies' probabilities, or take the most probable."),
]
LogOption: TypeAlias = Annotated[
    Path | None, typer.Option("--log", help="Append one JSON line per match to this file.")
]

EXIT_USER_ERROR, EXIT_INTERRUPTED = 2, 130


@contextmanager
def opened(data: Path, database: str | None, *, create: bool = False) -> Iterator[Store]:
    """The store of an arena while the block runs. create: also where there is none yet."""
    from palus.store import open_store

    with closing(open_store(data, database, create=create)) as store:
        yield store


class Tick(Protocol):
    """Call it with the number of matches just finished, and with a title when it changes."""

    def __call__(self, finished: int, title: str | None = None) -> None:
        """Advance the bar."""


@contextmanager
def progress_bar(
    title: str, total: float | None, *columns: str | ProgressColumn, **fields: Any
) -> Iterator[Callable[..., None]]:
    """A bar on stderr, gone when done and absent when stderr is not a terminal. Yields `Progress.update` of its task.

    columns: right of the bar; without any the time so far. fields: of the task, for columns of text.
    """
    console = Console(stderr=True)
    shown = ("{task.description}", BarColumn(), *(columns or (TimeElapsedColumn(),)))
    with Progress(*shown, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield partial(progress.update, progress.add_task(title, total=total, **fields))


@contextmanager
def matches_progress(title: str, total: int, what: str = "matches") -> Iterator[Tick]:
    """A bar over matches."""
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


def print_json(content: Any) -> None:
    """One JSON document on stdout; dataclasses become objects."""
    print(json.dumps(content, default=_plain))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def percent(share: float) -> str:
    """0.634 -> "63.4 %"."""
    return f"{100 * share:.1f} %"


def percent_range(interval: tuple[float, float]) -> str:
    """(0.58, 0.68) -> "58.0 - 68.0 %"."""
    return f"{100 * interval[0]:.1f} - {100 * interval[1]:.1f} %"


def ranks(best_and_worst: tuple[int, int]) -> str:
    """(2, 4) -> "2-4"."""
    return "-".join(map(str, dict.fromkeys(best_and_worst)))


def standings(columns: Sequence[str], rows: Iterable[Sequence[str]], bold: str | None = None) -> Table:
    """A leaderboard as people read it. bold: the row with this cell."""
    table = Table(caption="± : 95 % interval over mirrored pairs; ? : provisional", caption_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column == "player" else "right")
    for row in rows:
        table.add_row(*map(escape, row), style="bold" if bold in row else None)
    return table


def nats(entropy: float | None) -> str:
    """Entropy of a policy; bots have none."""
    return "-" if entropy is None else f"{entropy:.3f}"
