"""The second half of `palus demo`: an arena on this machine, the team pushed to it, matches until it has a place."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from palus.cli.arena_start import listen, serving, sign_in_here
from palus.cli.output import progress_bar, ranks, standings
from palus.errors import ArenaError

if TYPE_CHECKING:
    from palus.store import Store
    from palus.web.api.leaderboard import LeaderboardRow
    from palus.web.api.performance import Performance

ADDRESS, USUAL_PORT = "127.0.0.1", 8000
ENV, FILE = "SoccerTwos", "SoccerTwos.onnx"
EARLIER_SELVES = 2
LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class DemoArena:
    """A running arena. owner: the account that this machine is signed in as. pool: folder of models besides the hub."""

    store: Store
    url: str
    owner: str
    pool: Path

    @property
    def command(self) -> str:
        """What to type to have this arena again, at the same address."""
        port = urlsplit(self.url).port
        return f"palus arena --data {shlex.quote(str(self.store.folder))}" + (
            "" if port == USUAL_PORT else f" --port {port}"
        )


@contextmanager
def running_arena(folder: Path) -> Iterator[DemoArena]:
    """A fresh arena with a worker per core in `folder`, or in a folder beside it where that is taken, until the block
    ends. Raises ArenaError, StorageError."""
    from palus.arena.ladder.service import Sources
    from palus.arena.ladder.settings import ArenaSettings

    folder = _fresh(folder)
    pool = folder / "pool"
    pool.mkdir(parents=True)
    with _listen() as listener:
        url = f"http://{ADDRESS}:{listener.getsockname()[1]}"
        with serving(folder, None, listener, ArenaSettings(), Sources(pool), os.cpu_count() or 1) as (store, _, _):
            owner = sign_in_here(store, url)
            if owner is None:
                raise ArenaError(f"{url}: this machine could not sign in to its own hub; see the message above")
            yield DemoArena(store, url, owner, pool)


def _fresh(folder: Path) -> Path:
    """`folder`, or the first of folder-2, folder-3, ... that is not there yet: an arena is nothing to delete."""
    beside = (folder.with_name(f"{folder.name}-{k}") for k in count(2))
    return next(place for place in chain([folder], beside) if not place.exists())


def _listen() -> socket.socket:
    """The arena's usual port, so that its address is easy to remember; another one where that is taken."""
    try:
        return listen(ADDRESS, USUAL_PORT)
    except ArenaError:
        return listen(ADDRESS, 0)


def invite(arena: DemoArena, run: Path, model_folders: Sequence[Path], console: Console) -> str:
    """Push the run; put its earlier selves and strangers' models into the pool. Returns the team's repository."""
    from palus.hub.layout import read_run
    from palus.hub.publish import publish
    from palus.hub.target import parse_target

    repo = f"{arena.owner}/{run.name}"
    published = publish(read_run(run), repo, parse_target(arena.url), message="From random weights to here")
    console.print(f"Pushed {repo}: {published.files} files, {published.bytes / 1e6:.1f} MB.")
    checkpoints = sorted((run / ENV).glob(f"{ENV}-*.onnx"), key=_steps)[:-1]
    for checkpoint in checkpoints[:: max(1, len(checkpoints) // EARLIER_SELVES)][:EARLIER_SELVES]:
        _enter(arena.pool, "earlier", f"{run.name}-{_steps(checkpoint) / 1e6:.1f}M", checkpoint)
    for folder in filter(Path.is_dir, model_folders):
        models = sorted(folder.glob("*.onnx"))
        for model in models:
            owner, _, name = model.stem.partition("-")
            _enter(arena.pool, owner, name or "team", model)
        console.print(f"{len(models)} strangers' models found in {folder}.")
    return repo


def _steps(checkpoint: Path) -> int:
    return int(checkpoint.stem.rpartition("-")[2])


def _enter(pool: Path, owner: str, name: str, model: Path) -> None:
    target = pool / owner / name / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(model, target)


def await_place(arena: DemoArena, repo: str, seconds: float) -> Performance | None:
    """Show what happens to the team until its place is no longer provisional, or for `seconds`.

    Returns None when it has none by then. Raises ArenaError when validation refused it.
    """
    with progress_bar("Waiting for validation", seconds) as update:
        started = time.monotonic()
        while (passed := time.monotonic() - started) < seconds:
            performance = _performance(arena.store, repo)
            standing = performance.standing if performance is not None else None
            if standing is not None:
                update(description=f"{standing.rating:.0f} ± {standing.half_width:.0f} after {standing.games} games")
                if not standing.provisional:
                    return performance
            update(completed=passed)
            time.sleep(LOOK_EVERY_S)
    return _performance(arena.store, repo)


def _performance(store: Store, repo: str) -> Performance | None:
    """What the team's page shows. Raises ArenaError when its newest revision was refused."""
    from palus.web.api.models import model_page
    from palus.web.api.view import Views

    page = model_page(Views(store).current(), repo)
    if page is None:
        return None
    refusal = page.revisions[0].refusal if page.revisions else None
    if refusal is not None:
        raise ArenaError(f"{repo} was refused: {refusal.sentence} {refusal.remedy}")
    return page.performance[0] if page.performance else None


def board(arena: DemoArena) -> list[LeaderboardRow]:
    """The leaderboard as it stands."""
    from palus.web.api.leaderboard import leaderboard
    from palus.web.api.view import Views

    return leaderboard(Views(arena.store).current(), ENV).rows


def board_table(rows: Sequence[LeaderboardRow], team: str) -> Table:
    """A leaderboard as people read it, the team in bold."""
    cells = (
        (
            ranks((row.rank_best, row.rank_worst)),
            row.repo,
            f"{row.rating:.0f}",
            f"{row.half_width:.0f}{' ?' if row.provisional else ''}",
            str(row.games),
        )
        for row in rows
    )
    return standings(("rank", "player", "rating", "±", "games"), cells, team)
