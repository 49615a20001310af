"""The demo room: anybody picks two players and watches them now, or takes an agent and plays. Never rated or logged.

`GET games` lists what is played, `GET players/{env}` who can be picked. `WebSocket live` plays one match: the client
opens with a `Start`, and is answered with a `Ready` and the stream of `palus.web.live`, or with a `Refused`. Afterwards
the socket is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response, WebSocket, WebSocketDisconnect
from pydantic import Field, ValidationError
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from palus.arena.ladder.discovery import sweep_house
from palus.arena.ladder.entries import entity_of
from palus.arena.locked.live import LiveMatch, open_live_match
from palus.arena.models.entity import Entity
from palus.arena.referee.games import DEFAULT_GAME, GAMES, layout_of
from palus.envs.recording import MatchLayout
from palus.errors import ArenaError, EnvError, PalusError
from palus.hub.limits import Buckets, client_of
from palus.store import Store
from palus.store.derived import ratings
from palus.store.tables import entries
from palus.web.api.answers import Answers
from palus.web.api.router import FAULTS, Env
from palus.web.live import RoomLimits, play_live
from palus.web.security import fault
from palus.web.shapes import Shape

logger = logging.getLogger(__name__)

MAX_SEED = 2**53 - 1
FIRST_WORD_S = 10.0
PlayerWord = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,96}/[A-Za-z0-9._-]{1,96}(@[0-9a-f]{7,40})?$")]
RefusalCode = Literal["full", "unknown", "waiting", "invalid", "broken", "idle"]


class RoomGame(Shape):
    """A game that is played here. pitch: of its `MatchLayout`, by which the viewer knows how to draw it."""

    env: str
    pitch: str


class RoomGames(Shape):
    """The arena's first one first."""

    games: list[RoomGame]


class RoomPlayer(Shape):
    """Somebody who can be picked. rating: None while there is none."""

    repo: str
    house: bool
    rating: float | None


class RoomPlayers(Shape):
    """The best first."""

    players: list[RoomPlayer]


class Start(Shape):
    """Which match. blue, purple: owner/name, or owner/name@revision for a certain one. seed: None draws one.
    person: agent that the client plays, counted from 0 in the game's order; it acts in place of its team's player."""

    blue: PlayerWord
    purple: PlayerWord
    env: str = DEFAULT_GAME
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] | None = None
    person: Annotated[int, Field(ge=0, le=100)] | None = None


class Ready(Shape):
    """The match begins. blue, purple: as in `Start`, always with the revision, so that a link of them keeps its match.
    kick_off: the first frame, a number for each channel of the game's layout."""

    type: Literal["ready"] = "ready"
    blue: str
    purple: str
    seed: int
    person: int | None
    duration_s: float
    isolation: str
    kick_off: list[float]


class Refused(Shape):
    """There is no match, or it ended before its time. reason: a sentence and what to do."""

    type: Literal["refused"] = "refused"
    code: RefusalCode
    reason: str


class _RefusedError(PalusError):
    def __init__(self, code: RefusalCode, reason: str) -> None:
        self.refused = Refused(code=code, reason=reason)
        super().__init__(reason)


class Rooms:
    """Counts the matches that are being played; one object per server."""

    def __init__(self, limits: RoomLimits) -> None:
        self.limits = limits
        self._of: Counter[str] = Counter()
        self._starts = Buckets(limits.starts_per_minute / 60, limits.starts_per_minute)

    @property
    def running(self) -> int:
        """Matches that are being played."""
        return self._of.total()

    @contextlib.contextmanager
    def enter(self, client: str) -> Iterator[None]:
        """A place in the room. Raises when all are taken, or this client has its share."""
        if self.running >= self.limits.matches:
            sentence = f"{self.running} matches are being played here, which is all there is room for."
            raise _RefusedError("full", f"{sentence} Try again in a minute or two.")
        if self._of[client] >= self.limits.client_matches:
            sentence = f"You are playing {self._of[client]} matches here already; the others' places are for others."
            raise _RefusedError("full", f"{sentence} Close one of them first.")
        if (wait_s := self._starts.take(client)) > 0:
            raise _RefusedError("full", f"You started many matches within a minute. Try again in {wait_s:.0f} s.")
        self._of[client] += 1
        try:
            yield
        finally:
            self._of[client] -= 1
            self._of += Counter()  # forgets who has none


def make_room_router(answers: Answers, places: Rooms) -> APIRouter:
    """The routes below `/api/arena/room`."""
    router = APIRouter(prefix="/api/arena/room", tags=["room"])
    store = answers.views.store

    @router.get("/games")
    def games() -> RoomGames:
        """What is played here."""
        found = [RoomGame(env=env, pitch=layout.pitch) for env, layout in _layouts().items()]
        return RoomGames(games=found)

    @router.get("/players/{env}", response_model=RoomPlayers, responses=FAULTS)
    async def players(request: Request, env: Env) -> Response:
        """Who can be picked."""
        if env not in GAMES:
            raise fault(404, "unknown_env", f"There is no game {env} here; /api/arena/room/games lists the games.")
        return await answers.send(request, lambda view: RoomPlayers(players=list_players(view.store, env)))

    @router.websocket("/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the client left: there is nobody to tell
            try:
                await _serve(socket, store, places)
            except _RefusedError as error:
                await socket.send_text(error.refused.model_dump_json())
            except (ArenaError, EnvError) as error:
                await socket.send_text(Refused(code="broken", reason=str(error)).model_dump_json())
            except (PalusError, SQLAlchemyError) as error:  # which is about the arena's own files and database
                logger.warning("a match in the demo room broke off: %s", error)
                reason = "The arena cannot read what this match needs. Try again in a minute, or choose another player."
                await socket.send_text(Refused(code="broken", reason=reason).model_dump_json())
            await socket.close()

    return router


async def _serve(socket: WebSocket, store: Store, rooms: Rooms) -> None:
    try:
        start = Start.model_validate_json(await asyncio.wait_for(socket.receive_text(), FIRST_WORD_S))
    except (ValidationError, TimeoutError, KeyError) as error:
        raise _RefusedError("unknown", "No match was asked for; choose a blue and a purple player.") from error
    with rooms.enter(client_of(socket.scope)), contextlib.ExitStack() as stack:
        try:
            match, ready = await asyncio.to_thread(_open, stack, store, start, rooms.limits)
            await socket.send_text(ready.model_dump_json())
            if not await play_live(socket, match, rooms.limits):
                raise _RefusedError("idle", "The match was left alone for too long. Start it again.")
        finally:
            await asyncio.to_thread(stack.close)  # ending a process waits for it


def _open(stack: contextlib.ExitStack, store: Store, start: Start, limits: RoomLimits) -> tuple[LiveMatch, Ready]:
    game, layout = GAMES.get(start.env), _layouts().get(start.env)
    if game is None:
        raise _RefusedError("unknown", f"There is no such game here; there are {', '.join(GAMES)}.")
    if layout is None:
        raise _RefusedError("unknown", f"{start.env} is not played in this room; its rated matches are kept as videos.")
    if start.person is not None and start.person >= (agents := len(layout.branches)):
        raise _RefusedError("unknown", f"{start.env} has {agents} players; choose one of them, or watch.")
    contenders = find_contender(store, start.blue, start.env), find_contender(store, start.purple, start.env)
    seed = secrets.randbelow(MAX_SEED + 1) if start.seed is None else start.seed
    match = stack.enter_context(
        open_live_match(contenders, seed, person=start.person, env_id=start.env, duration_ticks=limits.duration_ticks)
    )
    blue, purple = (c.repo if c.house else f"{c.repo}@{c.revision[:12]}" for c in contenders)
    duration_s, kick_off = match.duration_ticks * game.tick_s, match.kick_off.astype(float).round(3).tolist()
    return match, Ready.like(match, blue=blue, purple=purple, duration_s=duration_s, kick_off=kick_off)


def _layouts() -> dict[str, MatchLayout]:
    """Of the games that can be drawn while they are played here, by their names."""
    drawn = [game for game in GAMES.values() if game.is_drawn and game.can_be_played_here]
    return {game.env: layout_of(game.env) for game in drawn}


def list_players(store: Store, env: str) -> list[RoomPlayer]:
    """Everybody with an accepted entry, and the built-in players; the best first, the unrated last by name."""
    newest = select(func.max(entries.c.id)).where(entries.c.env == env, entries.c.state == "accepted")
    query = (
        select(entries.c.repo, entries.c.source, ratings.c.rating)
        .outerjoin(ratings, (ratings.c.sha256 == entries.c.sha256) & (ratings.c.env == env))
        .where(entries.c.id.in_(newest.group_by(entries.c.repo)))
    )
    with store.read() as connection:
        found = {
            row.repo: RoomPlayer(repo=row.repo, house=row.source == "house", rating=row.rating)
            for row in connection.execute(query)
        }
    for house in sweep_house(env).found:
        found.setdefault(house.entity.repo, RoomPlayer(repo=house.entity.repo, house=True, rating=None))
    return sorted(found.values(), key=lambda p: (p.rating is None, -(p.rating or 0.0), p.repo))


def find_contender(store: Store, word: str, env: str) -> Entity:
    """The player that `owner/name` or `owner/name@revision` means, with its model's bytes.

    Raises a refusal that says why there is none: unknown, still waiting for its validation, or refused by it.
    """
    repo, _, revision = word.partition("@")
    for house in sweep_house(env).found:
        if house.entity.repo == repo:
            return house.entity
    columns = entries.c
    query = select(entries).where(columns.repo == repo, columns.env == env, columns.revision.startswith(revision))
    with store.read() as connection:
        rows = connection.execute(query.order_by(columns.id.desc())).all()
    row = next((row for row in rows if row.state == "accepted"), rows[0] if rows else None)
    if row is None or row.state == "withdrawn":
        raise _RefusedError("unknown", f"{word} does not play {env} here. Choose a player from the list.")
    if row.state in ("pending", "waiting"):
        raise _RefusedError("waiting", f"{word} has not been validated yet. Try again in a minute.")
    if row.state == "refused":
        raise _RefusedError("invalid", f"{word} was refused. {row.sentence} {row.remedy}")
    return entity_of(row).with_models(store.blobs.read)
