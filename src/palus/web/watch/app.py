"""The application of `palus watch RUN`: one page, what it shows as JSON, and fresh matches; on this machine only.

Runs are those of the command line, asked for by their number. Names and pages are checked as an arena's are.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi import Path as InAddress

from palus import __version__
from palus.config import load_run
from palus.errors import PalusError
from palus.web.api.answers import make_body, respond
from palus.web.names import KnownNames, Names
from palus.web.pages import make_static_router, site_folder
from palus.web.security import SecurityHeaders, fault, install_faults
from palus.web.shapes import Shape
from palus.web.watch.figures import Curves, Figures, State, slowest
from palus.web.watch.league import LeagueView, read_league
from palus.web.watch.matches import Opponent, Stage

CONFIGURATION = "configuration.yaml"


class WatchedRun(Shape):
    """One run as its page shows it. heard_ms: when it last wrote a summary. left_s: seconds to its end at its present
    speed. opponents: whom its newest policy can be watched against; no_match: why there are none."""

    number: int
    name: str
    game: str | None
    state: State
    heard_ms: int | None
    left_s: float | None
    learners: list[Curves]
    league: LeagueView | None
    opponents: list[Opponent]
    no_match: str | None


class WatchedRuns(Shape):
    """All runs of this page, in the order of the command line."""

    runs: list[WatchedRun]


class Runs:
    """The runs of the command line; `look` reads what is new in their folders. One thread at a time looks or plays."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._figures = [Figures(folder) for folder in self._folders]
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._folders)

    def look(self) -> WatchedRuns:
        """All runs as they are now."""
        with self._lock:
            return WatchedRuns(runs=[self._run(number) for number in range(len(self))])

    def stage(self, number: int) -> Stage:
        """Where the matches of a run are played."""
        with self._lock:
            self._figures[number].update()
            game, options, _ = self._facts(number)
        return Stage(self._folders[number], game, options)

    def _run(self, number: int) -> WatchedRun:
        folder, figures = self._folders[number], self._figures[number]
        figures.update()
        game, options, max_steps = self._facts(number)
        stage = Stage(folder, game, options)
        curves = figures.curves(max_steps, time.time())
        league = read_league(folder, curves)
        return WatchedRun.like(
            figures,
            number=number,
            name=folder.name if sum(other.name == folder.name for other in self._folders) == 1 else str(folder),
            game=game,
            left_s=slowest(curves) if figures.state == "running" else None,
            learners=[_as_saved(one, league) for one in curves],
            league=league,
            opponents=stage.opponents(),
            no_match=stage.refusal,
        )

    def _facts(self, number: int) -> tuple[str | None, dict[str, Any], dict[str, int]]:
        """Game, its options and max_steps by behavior: from the progress file, or from the run file of older runs."""
        said = self._figures[number].opening
        if said is not None:
            return said.game, said.env_options, said.max_steps
        try:
            run = load_run(self._folders[number] / CONFIGURATION)
        except PalusError:
            return None, {}, {}
        return run.env_id, run.palus.env_options, {name: own.max_steps for name, own in run.behaviors.items()}


def _as_saved(curves: Curves, league: LeagueView | None) -> Curves:
    """A learner whose last checkpoint came after its last summary, or before its first, has made the steps of that."""
    saved = [policy.step or 0 for policy in (league.policies if league else ()) if policy.id == curves.policy]
    return curves.model_copy(update={"step": max(curves.step, *saved, 0)})


def make_watch_router(runs: Runs) -> APIRouter:
    """The routes below `/api/watch`."""
    router = APIRouter(prefix="/api/watch", tags=["watch"])
    stage_taken = asyncio.Lock()

    @router.get("/runs", response_model=WatchedRuns)
    async def get_runs(request: Request) -> Response:
        """All runs; a reader who has this already is told so."""
        found = await asyncio.to_thread(runs.look)
        return respond(request, make_body(found.model_dump_json().encode(), "application/json"))

    @router.post("/runs/{number}/match", response_class=Response)
    async def play_match(
        number: Annotated[int, InAddress(ge=0, le=999)], against: Annotated[str, Query(max_length=96)] = "itself"
    ) -> Response:
        """Plays a mirrored pair of the newest policy now; its replay."""
        if number >= len(runs):
            raise fault(404, "unknown_run", f"There is no run {number} here; /api/watch/runs lists them.")
        if stage_taken.locked():
            raise fault(409, "busy", "A match is being played for another tab; try again in a moment.")
        async with stage_taken:
            try:
                replay = await asyncio.to_thread(lambda: runs.stage(number).play(against))
            except PalusError as error:
                raise fault(404, "no_match", str(error)) from error
        return Response(replay, media_type="application/octet-stream", headers={"Cache-Control": "no-store"})

    return router


def make_watch_app(folders: Sequence[Path]) -> FastAPI:
    """The application over the folders of runs."""
    site = site_folder()
    app = FastAPI(title="palus watch", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(KnownNames, names=Names())
    app.add_middleware(SecurityHeaders)
    install_faults(app, site)
    app.include_router(make_watch_router(Runs(folders)))
    app.include_router(make_static_router(site, {"/": "watch"}))
    return app
