"""The demo room without a browser: who can be picked, what travels, and what happens to matches that nobody watches."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, insert
from web_server import serving
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from palus.arena.locked.live import LiveStep
from palus.arena.referee.games import layout_of
from palus.envs.recording import RecordedEvent
from palus.store import Store
from palus.store.derived import Standing, ratings
from palus.store.tables import entries
from palus.web.app import WebLimits, make_app
from palus.web.live import RoomLimits, encode_step
from palus.web.room import Rooms, list_players

HOUSE = {"blue": "palus/ball-chaser", "purple": "palus/random"}
PATIENCE_S = 60


def enter(store: Store, repo: str, state: str, **more: Any) -> None:
    row = {"source": "hub", "repo": repo, "owner": repo.partition("/")[0], "revision": "a" * 40, "env": "SoccerTwos"}
    row |= {
        "files": json.dumps({"SoccerTwos": "b" * 64}),
        "sha256": "b" * 64,
        "state": state,
        "details": "{}",
        "pushed_ms": 1,
    }
    with store.write() as connection:
        connection.execute(insert(entries).values(row | more))


class Room:
    """An arena whose room can be looked into."""

    def __init__(self, store: Store, limits: RoomLimits) -> None:
        self.rooms = Rooms(limits)
        self.app = make_app(store, rooms=self.rooms)

    def until_running(self, matches: int) -> None:
        """Wait until so many matches are being played."""
        until(lambda: self.rooms.running == matches)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.01)


@pytest.fixture
def open_room(store: Store) -> Iterator[Callable[..., tuple[Room, str]]]:
    """Serve a room with these limits; gives it and the address of its socket."""
    with_exit = []

    def open_one(**limits: Any) -> tuple[Room, str]:
        room = Room(store, RoomLimits(**limits))
        server = serving(room.app)
        address = server.__enter__()
        with_exit.append(server)
        return room, address.replace("http", "ws") + "/api/arena/room/live"

    yield open_one
    for server in with_exit:
        server.__exit__(None, None, None)


def begin(socket: ClientConnection, **start: Any) -> dict[str, Any]:
    socket.send(json.dumps(HOUSE | start))
    answer: dict[str, Any] = json.loads(socket.recv(timeout=PATIENCE_S))
    return answer


def steps(socket: ClientConnection, count: int) -> list[bytes]:
    return [bytes(socket.recv(timeout=PATIENCE_S, decode=False)) for _ in range(count)]


def test_a_decision_travels_as_the_documented_bytes() -> None:
    frames = np.zeros((2, 14), np.float32)
    frames[1] = [1.5, -2.25, 90, 0, 0, 4000, 0, 0, -180, 0, 0, 359.96, 12.3456, 0]
    probabilities = np.full((4, 9), np.nan, np.float32)
    probabilities[1] = [0, 1, 0, 0.5, 0, 0.5, 0.2, 0.3, 0.5]
    actions = np.array([[1, 2, 0], [0, 0, 0], [2, 2, 2], [0, 1, 1]], np.int8)
    kick = RecordedEvent(302, "kick", 1, 3)
    step = LiveStep(301, frames, actions, probabilities, (kick,), 1, (2, 5), False)
    data = encode_step(step, layout_of("SoccerTwos"))
    assert data[:12] == bytes([1, 2, 1, 0]) + (301).to_bytes(4, "little") + bytes([2, 0, 5, 0])
    assert list(data[12:16]) == [15, 0, 26, 4]
    assert list(data[16:52]) == [0] * 9 + [0, 255, 0, 128, 0, 128, 51, 76, 128] + [0] * 18
    assert list(data[52:57]) == [1, 1, 1, 1, 3]  # one event, in the second step, the second kind, purple, agent 3
    shown = np.frombuffer(data[57:], "<i4").reshape(2, 14)
    assert shown[1].tolist() == [1500, -2250, 900, 0, 0, 40000, 0, 0, -1800, 0, 0, 3600, 12346, 0]


def test_the_list_has_everybody_who_was_accepted_best_first(store: Store) -> None:
    enter(store, "ada/keeper", "accepted")
    enter(store, "ada/waiting", "pending")
    enter(store, "eve/evil", "refused")
    enter(store, "lin/best", "accepted", sha256="c" * 64)
    row = dict.fromkeys(Standing.model_fields, 1) | {"sha256": "c" * 64, "rating": 1300.0}
    with store.write() as connection:
        connection.execute(insert(ratings).values(env="SoccerTwos", upto_seq=1, variance=1.0, **row))
    found = [(player.repo, player.rating, player.house) for player in list_players(store, "SoccerTwos")]
    assert found[0] == ("lin/best", 1300.0, False)
    assert [repo for repo, _, _ in found[1:]] == [
        "ada/keeper",
        "palus/ball-chaser",
        "palus/goalie-striker",
        "palus/random",
    ]
    assert [house for _, _, house in found[1:]] == [False, True, True, True]


def test_the_list_is_made_once_for_everybody_and_anew_when_somebody_comes(store: Store) -> None:
    made: list[str] = []
    event.listen(store.engine, "before_cursor_execute", lambda *what: made.append(what[2]))
    with TestClient(make_app(store, limits=WebLimits(fresh_s=0.0)), base_url="http://localhost") as client:

        def listed() -> list[str]:
            answer = client.get("/api/arena/room/players/SoccerTwos").raise_for_status()
            return [player["repo"] for player in answer.json()["players"]]

        assert [listed() for _ in range(3)] == [["palus/ball-chaser", "palus/goalie-striker", "palus/random"]] * 3
        enter(store, "lin/best", "accepted")
        assert listed()[0] == "lin/best"
        assert client.get("/api/arena/room/players/Chess").status_code == 404
    assert sum("GROUP BY entries.repo" in statement for statement in made) == 2


@pytest.mark.parametrize(
    ("start", "code", "reason"),
    [
        ({"blue": "ada/nobody"}, "unknown", "ada/nobody does not play SoccerTwos here"),
        ({"blue": "ada/gone"}, "unknown", "ada/gone does not play"),
        ({"blue": "ada/waiting"}, "waiting", "has not been validated yet"),
        ({"blue": "eve/evil"}, "invalid", "eve/evil was refused. It answers NaN. Train it again."),
        ({"blue": "ada/keeper@1234567"}, "unknown", "ada/keeper@1234567 does not play"),
        ({"blue": "no slash"}, "unknown", "No match was asked for"),
        ({"env": "doom_duel"}, "unknown", "doom_duel is not played in this room"),
        ({"person": 4}, "unknown", "SoccerTwos has 4 players; choose one of them, or watch."),
        ({"env": "StrikersVsGoalie", "person": 3}, "unknown", "StrikersVsGoalie has 3 players; choose one of them"),
        ({"person": -1}, "unknown", "No match was asked for"),
        ({"env": "Chess"}, "unknown", "There is no such game here; there are SoccerTwos, StrikersVsGoalie, doom_duel."),
        ({"env": "RescueToy"}, "unknown", "There is no such game here"),
        ({"env": "palus.envs.toy:DuelToy"}, "unknown", "There is no such game here"),
        ({"blue": "palus/random", "env": "os:_exit"}, "unknown", "There is no such game here"),
    ],
)
def test_who_cannot_play_is_refused_with_a_reason(
    store: Store, open_room: Any, start: dict[str, Any], code: str, reason: str
) -> None:
    enter(store, "ada/keeper", "accepted")
    enter(store, "ada/gone", "withdrawn")
    enter(store, "ada/waiting", "pending")
    enter(store, "eve/evil", "refused", sentence="It answers NaN.", remedy="Train it again.")
    room, address = open_room()
    with connect(address, open_timeout=PATIENCE_S) as socket:
        answer = begin(socket, **start)
    assert (answer["type"], answer["code"]) == ("refused", code)
    assert reason in answer["reason"]
    room.until_running(0)


def test_every_game_that_can_be_drawn_is_offered_and_played_by_its_arenas_rules(open_room: Any) -> None:
    _, address = open_room(celebration_s=0.0)
    games = httpx.get(address.replace("ws", "http", 1).replace("live", "games"), timeout=PATIENCE_S).json()
    assert games["games"] == [
        {"env": "SoccerTwos", "pitch": "soccer-twos/1"},
        {"env": "StrikersVsGoalie", "pitch": "strikers-vs-goalie/1"},
    ]
    with connect(address, open_timeout=PATIENCE_S) as socket:
        ready = begin(socket, env="StrikersVsGoalie", person=2)
        (first,) = steps(socket, 1)
    assert (ready["person"], len(ready["kick_off"])) == (2, 11)
    head = 12 + 3 * (1 + 9)
    assert len(first) == head + 1 + 4 * first[head] + 5 * 11 * 4


def test_the_same_seed_streams_the_same_bytes(open_room: Any) -> None:
    _, address = open_room(celebration_s=0.0)
    seen = []
    for _ in range(2):
        with connect(address, open_timeout=PATIENCE_S) as socket:
            ready = begin(socket, seed=42)
            seen.append((ready["kick_off"], steps(socket, 15)))
    assert (ready["seed"], ready["duration_s"], ready["isolation"]) == (42, 120.0, "none")
    assert seen[0] == seen[1]


def test_it_keeps_the_pace_of_the_game(open_room: Any) -> None:
    _, address = open_room(celebration_s=0.0)
    with connect(address, open_timeout=PATIENCE_S) as socket:
        begin(socket, seed=1)
        started = time.monotonic()
        steps(socket, 11)
        assert time.monotonic() - started > 0.9  # ten decisions after the first take a second, never less


def test_a_match_that_the_store_cannot_serve_ends_with_a_reason(store: Store, open_room: Any) -> None:
    enter(store, "ada/lost", "accepted")  # whose file is not there
    _, address = open_room()
    with connect(address) as socket:
        answer = begin(socket, blue="ada/lost")
        assert (answer["type"], answer["code"]) == ("refused", "broken") and "cannot read what" in answer["reason"]
        with pytest.raises(ConnectionClosedOK):
            socket.recv(timeout=PATIENCE_S)


def test_a_pause_stops_the_match_and_choices_reach_it(open_room: Any) -> None:
    _, address = open_room(celebration_s=0.0)
    with connect(address, open_timeout=PATIENCE_S) as socket:
        begin(socket, seed=1, person=0)
        socket.send(json.dumps({"type": "act", "choice": [1, 0, 2]}))
        until(lambda: steps(socket, 1)[0][12] == 11)  # 9 forward + rotate
        socket.send(json.dumps({"type": "pause"}))
        with pytest.raises(TimeoutError):  # what was on its way arrives, then nothing more
            for _ in range(40):
                socket.recv(timeout=1.0)
        socket.send(json.dumps({"type": "resume"}))
        assert len(steps(socket, 2)) == 2


def test_a_match_ends_at_its_time_and_closes(open_room: Any) -> None:
    room, address = open_room(duration_ticks=23, celebration_s=0.0)
    with connect(address, open_timeout=PATIENCE_S) as socket:
        begin(socket)
        flags = [data[3] for data in steps(socket, 5)]
        with pytest.raises(Exception, match="1000"):
            socket.recv(timeout=PATIENCE_S)
    assert flags == [0, 0, 0, 0, 1]
    room.until_running(0)


def test_the_room_is_bounded_and_a_client_that_leaves_frees_its_place(open_room: Any) -> None:
    room, address = open_room(matches=1)
    with connect(address, open_timeout=PATIENCE_S) as socket:
        assert begin(socket)["type"] == "ready"
        with connect(address, open_timeout=PATIENCE_S) as second:
            answer = begin(second)
        assert (answer["code"], answer["reason"].split(" ")[0]) == ("full", "1")
        room.until_running(1)
    room.until_running(0)
    with connect(address, open_timeout=PATIENCE_S) as socket:
        assert begin(socket)["type"] == "ready"


def test_a_client_that_vanishes_without_a_word_frees_its_place(open_room: Any) -> None:
    room, address = open_room(silence_s=0.3)
    with connect(address, open_timeout=PATIENCE_S) as socket:
        begin(socket)
        room.until_running(1)
        room.until_running(0)  # the socket is still open here: only its silence tells


def test_a_pause_that_never_ends_frees_its_place(open_room: Any) -> None:
    room, address = open_room(pause_s=0.2)
    with connect(address, open_timeout=PATIENCE_S) as socket:
        begin(socket)
        socket.send(json.dumps({"type": "pause"}))
        room.until_running(0)
        messages = [message for message in socket if isinstance(message, str)]
    assert [json.loads(message)["code"] for message in messages] == ["idle"]


def test_pages_of_other_sites_cannot_play_here(open_room: Any) -> None:
    _, address = open_room()
    with pytest.raises(InvalidStatus), connect(address, origin="https://elsewhere.example"):
        pass


def test_one_client_does_not_hold_all_places(open_room: Any) -> None:
    room, address = open_room(matches=5, client_matches=1, starts_per_minute=3)
    with connect(address) as socket:
        assert begin(socket)["type"] == "ready"
        with connect(address) as second:
            assert begin(second)["reason"].startswith("You are playing 1 matches here already")
    room.until_running(0)
    for _ in range(2):
        with connect(address) as socket:
            assert begin(socket)["type"] == "ready"
        room.until_running(0)
    with connect(address) as socket:
        assert begin(socket)["reason"].startswith("You started many matches within a minute. Try again in ")


def test_a_match_is_over_after_its_time_however_often_it_is_paused(open_room: Any) -> None:
    room, address = open_room(match_s=0.5)
    with connect(address) as socket:
        begin(socket)
        room.until_running(0)


def test_a_client_that_floods_its_match_is_sent_away(open_room: Any) -> None:
    room, address = open_room(words_per_s=2.0)
    with connect(address) as socket:
        begin(socket)
        with contextlib.suppress(ConnectionClosedOK):  # the room may have sent us away before the last word
            for _ in range(20):
                socket.send(json.dumps({"type": "alive"}))
        room.until_running(0)
    with connect(address) as socket:
        socket.send("x" * 5000)
        with pytest.raises(ConnectionClosedError, match="1009"):
            socket.recv(timeout=PATIENCE_S)
