"""The routes of `/api/arena`: what is asked for, and where the answer and its shape are made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal, get_type_hints

from fastapi import APIRouter, Path, Request, Response

from palus.arena.ladder.log import LogRecord, read_match
from palus.arena.ladder.match_files import read_actions, read_replay
from palus.arena.referee.games import game_of
from palus.errors import ArenaError, ReplayError, StorageError
from palus.web.api.analytics import TeamResults, analytics, team_results
from palus.web.api.answers import Answers, Body, respond
from palus.web.api.compare import Comparison, compare
from palus.web.api.leaderboard import Environments, environments, leaderboard, matrix, recent_matches
from palus.web.api.matches import MatchPage, match_page
from palus.web.api.models import ModelPage, model_page
from palus.web.api.status import Head, Status, log_head, status, unranked_models
from palus.web.api.view import View
from palus.web.page import page_html
from palus.web.security import ErrorAnswer, fault
from palus.web.shapes import Shape

Env = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["SoccerTwos"])]
Owner = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,96}$", examples=["palus"])]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,96}$", examples=["ball-chaser"])]
MatchId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,32}$")]

IMMUTABLE = "public, max-age=31536000, immutable"
FAULTS: dict[int | str, dict[str, object]] = {
    404: {"model": ErrorAnswer, "description": "There is no such thing."},
    422: {"model": ErrorAnswer, "description": "A part of the address breaks a rule."},
    429: {"model": ErrorAnswer, "description": "Too many requests; see Retry-After."},
}

BOARDS: dict[str, Callable[[View, str], Shape]] = {
    "leaderboard": leaderboard,
    "unranked": unranked_models,
    "recent": recent_matches,
    "matrix": matrix,
    "analytics": analytics,
}
"""The answers about a whole game, by their name in the address."""


def make_api_router(answers: Answers) -> APIRouter:
    """Every JSON endpoint of the arena but downloads and events."""
    router = APIRouter(prefix="/api/arena", tags=["arena"], responses=FAULTS)
    for name, build in BOARDS.items():
        _add_board(router, answers, name, build)
    _add_pages(router, answers)
    _add_files(router, answers)
    return router


def _add_board(router: APIRouter, answers: Answers, name: str, build: Callable[[View, str], Shape]) -> None:
    @router.get(f"/{name}/{{env}}", response_model=get_type_hints(build)["return"], name=f"get_{name}")
    async def get_board(request: Request, env: Env) -> Response:
        if not (await answers.view()).knows(env):
            raise fault(404, "unknown_env", f"There is no game {env} here; /api/arena/envs lists the games.")
        return await answers.send(request, lambda view: build(view, env))


def _add_pages(router: APIRouter, answers: Answers) -> None:
    @router.get("/envs", response_model=Environments)
    async def get_envs(request: Request) -> Response:
        return await answers.send(request, environments)

    @router.get("/head", response_model=Head)
    async def get_head(request: Request) -> Response:
        return await answers.send(request, log_head)

    @router.get("/status", response_model=Status)
    async def get_status(request: Request) -> Response:
        return await answers.send(request, status, keeps=False)

    @router.get("/analytics/{env}/{owner}/{name}", response_model=TeamResults)
    async def get_team(request: Request, env: Env, owner: Owner, name: Name) -> Response:
        team = f"{owner}/{name}"
        missing = f"{team} has not played a rated match of {env} yet."
        return await answers.send(request, lambda view: team_results(view, env, team), missing, team)

    @router.get("/models/{owner}/{name}", response_model=ModelPage)
    async def get_model(request: Request, owner: Owner, name: Name) -> Response:
        return respond(request, await find_model(answers, f"{owner}/{name}"))

    @router.get("/compare/{env}/{owner_a}/{name_a}/{owner_b}/{name_b}", response_model=Comparison)
    async def get_comparison(
        request: Request, env: Env, owner_a: Owner, name_a: Name, owner_b: Owner, name_b: Name
    ) -> Response:
        a, b = f"{owner_a}/{name_a}", f"{owner_b}/{name_b}"
        missing = f"{a} and {b} have no accepted revisions in {env}; see their pages for why."
        if a == b:
            missing = f"{a} has no two accepted revisions in {env} to compare."
        return await answers.send(request, lambda view: compare(view, env, a, b), missing, a, b)

    @router.get("/matches/{match_id}", response_model=MatchPage)
    async def get_match(request: Request, match_id: MatchId) -> Response:
        return await answers.send(request, lambda view: match_page(view, match_id), _no_match(match_id))


def _add_files(router: APIRouter, answers: Answers) -> None:
    store = answers.views.store

    def read_record(match_id: str) -> LogRecord:
        with store.read() as connection:
            record = read_match(connection, match_id)
        if record is None:
            raise fault(404, "no_file", _no_match(match_id))
        return record

    def read_file(record: LogRecord, kind: Literal["replay", "actions"]) -> bytes:
        try:
            data = (read_replay if kind == "replay" else read_actions)(store, record)
        except (StorageError, ReplayError, ArenaError) as error:
            raise fault(404, "not_kept", f"The {kind} of match {record.id} is no longer kept: {error}.") from error
        if not data:
            raise fault(404, "no_file", f"The match log has no {kind} of a match {record.id}.")
        return data

    def replay(match_id: str) -> Response:
        record = read_record(match_id)
        suffix, kind = ("mp4", "video/mp4") if game_of(record.env).filmed else ("match", "application/octet-stream")
        return _download(read_file(record, "replay"), f"{match_id}.{suffix}", kind)

    def page(match_id: str) -> Response:
        record = read_record(match_id)
        if not game_of(record.env).is_drawn:
            raise fault(404, "no_file", f"Matches of {record.env} are not drawn; get the replay of {match_id} instead.")
        text = page_html(read_file(record, "replay"), f"Match {match_id}")
        return _download(text.encode(), f"{match_id}.html", "text/html; charset=utf-8")

    @router.get("/matches/{match_id}/replay", response_class=Response)
    async def get_replay(request: Request, match_id: MatchId) -> Response:
        """A *.match file, or a video where the game is filmed."""
        return await answers.file(request, partial(replay, match_id))

    @router.get("/matches/{match_id}/actions", response_class=Response)
    def get_actions(match_id: MatchId) -> Response:
        return _download(read_file(read_record(match_id), "actions"), f"{match_id}.actions", "application/octet-stream")

    @router.get("/matches/{match_id}/page.html", response_class=Response)
    async def get_page(request: Request, match_id: MatchId) -> Response:
        """One self-contained HTML file with the viewer and the replay, to be kept and opened from disk."""
        return await answers.file(request, partial(page, match_id))


async def find_model(answers: Answers, repo: str) -> Body:
    """What the page of a model shows. Raises a fault where there is none, or a private one."""
    missing = f"There is no public model {repo} here; check the spelling, or push it with palus push."
    return await answers.get(f"models/{repo}", lambda view: model_page(view, repo), missing, repo)


def _no_match(match_id: str) -> str:
    return f"The match log has no match {match_id}."


def _download(data: bytes, name: str, media_type: str) -> Response:
    headers = {"Cache-Control": IMMUTABLE, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, headers=headers, media_type=media_type)
