"""The routes of `/api/arena`: what is asked for, and where the answer and its shape are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request, Response

from palus.arena.ladder.log import LogRecord
from palus.arena.referee.games import game_of
from palus.errors import StorageError
from palus.store import Store
from palus.web.api.analytics import Analytics, TeamResults, analytics, team_results
from palus.web.api.answers import Answers, Body, Stamp, never, respond, whole_version
from palus.web.api.compare import Comparison, compare
from palus.web.api.leaderboard import (
    Environments,
    Leaderboard,
    RecentMatches,
    environments,
    leaderboard,
    recent_matches,
)
from palus.web.api.matches import MatchPage, match_page, stored_record
from palus.web.api.matrix import Matrix, matrix
from palus.web.api.models import ModelPage, model_page
from palus.web.api.players import players_to_compare
from palus.web.api.status import Head, Status, log_head, status
from palus.web.api.unranked import UnrankedModels, unranked_models
from palus.web.api.view import View
from palus.web.page import page_html
from palus.web.security import ErrorAnswer, fault
from palus.web.shapes import Shape

Env = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["SoccerTwos"])]
Owner = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,96}$", examples=["palus"])]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,96}$", examples=["ball-chaser"])]
MatchId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,32}$")]
StoredKind = Literal["replay", "actions"]

IMMUTABLE = "public, max-age=31536000, immutable"
FAULTS: dict[int | str, dict[str, object]] = {
    404: {"model": ErrorAnswer, "description": "There is no such thing."},
    422: {"model": ErrorAnswer, "description": "A part of the address breaks a rule."},
    429: {"model": ErrorAnswer, "description": "Too many requests; see Retry-After."},
}


@dataclass(frozen=True)
class Arena:
    """What the pages say about the arena beyond its store. envs: shown even before the first entry."""

    envs: tuple[str, ...] = ("SoccerTwos",)
    mode: str = "continuous"
    season: int = 1
    season_end_ms: int | None = None


def make_api_router(store: Store, answers: Answers, arena: Arena) -> APIRouter:
    """Every JSON endpoint of the arena but downloads and events."""
    router = APIRouter(prefix="/api/arena", tags=["arena"], responses=FAULTS)
    _add_boards(router, store, answers, arena)
    _add_players(router, store, answers)
    _add_matches(router, store, answers)
    return router


def _add_boards(router: APIRouter, store: Store, answers: Answers, arena: Arena) -> None:
    async def of_env(request: Request, env: str, key: str, build: Callable[[View], Shape | None]) -> Response:
        view = await answers.view()
        if env not in arena.envs and env not in view.envs():
            raise fault(404, "unknown_env", f"There is no game {env} here; /api/arena/envs lists the games.")
        return await _send(request, answers, f"{key}/{env}", build, "")

    @router.get("/envs", response_model=Environments)
    async def get_envs(request: Request) -> Response:
        return await _send(request, answers, "envs", lambda view: environments(view, arena.envs), "")

    @router.get("/leaderboard/{env}", response_model=Leaderboard)
    async def get_leaderboard(request: Request, env: Env) -> Response:
        return await of_env(request, env, "leaderboard", lambda view: leaderboard(view, env))

    @router.get("/unranked/{env}", response_model=UnrankedModels)
    async def get_unranked(request: Request, env: Env) -> Response:
        return await of_env(request, env, "unranked", lambda view: unranked_models(view, env))

    @router.get("/recent/{env}", response_model=RecentMatches)
    async def get_recent(request: Request, env: Env) -> Response:
        return await of_env(request, env, "recent", lambda view: recent_matches(view, env))

    @router.get("/matrix/{env}", response_model=Matrix)
    async def get_matrix(request: Request, env: Env) -> Response:
        return await of_env(request, env, "matrix", lambda view: matrix(view, env))

    @router.get("/analytics/{env}", response_model=Analytics)
    async def get_analytics(request: Request, env: Env) -> Response:
        return await of_env(
            request, env, "analytics", lambda view: analytics(view, env, arena.season, arena.season_end_ms)
        )

    @router.get("/analytics/{env}/{owner}/{name}", response_model=TeamResults)
    async def get_team(request: Request, env: Env, owner: Owner, name: Name) -> Response:
        team = f"{owner}/{name}"
        missing = f"{team} has not played a rated match of {env} yet."
        return await _send(
            request,
            answers,
            f"analytics/{env}/{team}",
            lambda view: team_results(view, env, team),
            missing,
            lambda view: view.stamp(team),
        )

    @router.get("/head", response_model=Head)
    async def get_head(request: Request) -> Response:
        def build(_view: View) -> Head:
            with store.read() as connection:
                return log_head(connection)

        return await _send(request, answers, "head", build, "")

    @router.get("/status", response_model=Status)
    async def get_status(request: Request) -> Response:
        def build(view: View) -> Status:
            with store.read() as connection:
                return status(view, connection, arena.mode)

        return await _send(request, answers, "status", build, "", never)


def _add_players(router: APIRouter, store: Store, answers: Answers) -> None:
    @router.get("/models/{owner}/{name}", response_model=ModelPage)
    async def get_model(request: Request, owner: Owner, name: Name) -> Response:
        return respond(request, await find_model(store, answers, f"{owner}/{name}"))

    @router.get("/compare/{owner_a}/{name_a}/{owner_b}/{name_b}", response_model=Comparison)
    async def get_comparison(request: Request, owner_a: Owner, name_a: Name, owner_b: Owner, name_b: Name) -> Response:
        a, b = f"{owner_a}/{name_a}", f"{owner_b}/{name_b}"

        def build(view: View) -> Comparison | None:
            found = players_to_compare(view, a, b)
            return None if found is None else compare(view, *found)

        missing = f"{a} and {b} have no accepted revisions in one game; see their pages for why."
        if a == b:
            missing = f"{a} has no two accepted revisions to compare."
        return await _send(request, answers, f"compare/{a}/{b}", build, missing, lambda view: view.stamp(a, b))


def _add_matches(router: APIRouter, store: Store, answers: Answers) -> None:
    def read_record(match_id: str) -> LogRecord:
        with store.read() as connection:
            record = stored_record(connection, match_id)
        if record is None:
            raise fault(404, "no_file", f"The match log has no match {match_id}.")
        return record

    def read_file(record: LogRecord, kind: StoredKind) -> bytes:
        match_id, stored = record.id, record.replay if kind == "replay" else record.actions
        if stored is None:
            raise fault(404, "no_file", f"The match log has no {kind} of a match {match_id}.")
        try:
            return store.blobs.read(stored.sha256)
        except StorageError as error:
            raise fault(404, "not_kept", f"The {kind} of match {match_id} is no longer kept.") from error

    @router.get("/matches/{match_id}", response_model=MatchPage)
    async def get_match(request: Request, match_id: MatchId) -> Response:
        def build(view: View) -> MatchPage | None:
            with store.read() as connection:
                return match_page(view, store, connection, match_id)

        return await _send(request, answers, f"matches/{match_id}", build, f"The match log has no match {match_id}.")

    @router.get("/matches/{match_id}/replay", response_class=Response)
    def get_replay(match_id: MatchId) -> Response:
        """A *.match file, or a video where the game is filmed."""
        record = read_record(match_id)
        suffix, kind = ("mp4", "video/mp4") if game_of(record.env).filmed else ("match", "application/octet-stream")
        return _download(read_file(record, "replay"), f"{match_id}.{suffix}", kind)

    @router.get("/matches/{match_id}/actions", response_class=Response)
    def get_actions(match_id: MatchId) -> Response:
        return _download(read_file(read_record(match_id), "actions"), f"{match_id}.actions", "application/octet-stream")

    @router.get("/matches/{match_id}/page.html", response_class=Response)
    def get_page(match_id: MatchId) -> Response:
        """One self-contained HTML file with the viewer and the replay, to be kept and opened from disk."""
        record = read_record(match_id)
        if game_of(record.env).filmed:
            raise fault(404, "no_file", f"Match {match_id} is kept as a video; get that instead.")
        page = page_html(read_file(record, "replay"), f"Match {match_id}")
        return _download(page.encode(), f"{match_id}.html", "text/html; charset=utf-8")


async def find_model(store: Store, answers: Answers, repo: str) -> Body:
    """What the page of a model shows. Raises a fault where there is none, or a private one."""

    def build(view: View) -> ModelPage | None:
        with store.read() as connection:
            return model_page(view, store, connection, repo)

    missing = f"There is no public model {repo} here; check the spelling, or push it with palus push."
    return await _find(answers, f"models/{repo}", build, missing, lambda view: view.stamp(repo))


def _download(data: bytes, name: str, media_type: str) -> Response:
    headers = {"Cache-Control": IMMUTABLE, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, headers=headers, media_type=media_type)


async def _send(
    request: Request,
    answers: Answers,
    key: str,
    build: Callable[[View], Shape | None],
    missing: str,
    stamp: Stamp = whole_version,
) -> Response:
    return respond(request, await _find(answers, key, build, missing, stamp))


async def _find(answers: Answers, key: str, build: Callable[[View], Shape | None], missing: str, stamp: Stamp) -> Body:
    body = await answers.get(key, build, stamp)
    if body is None:
        raise fault(404, "not_found", missing)
    return body
