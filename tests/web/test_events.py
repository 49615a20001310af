"""The stream of events: what an open page hears of, also late, and how many may listen."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import HTTPException
from small_arena import AT_ONCE
from sqlalchemy.exc import OperationalError
from synthetic_arena import SyntheticArena
from web_server import serving

from palus.store import Store
from palus.web.api.answers import Answers
from palus.web.api.view import Views
from palus.web.app import WebLimits, make_app
from palus.web.events import RECONNECT_MS, Events


def test_an_open_page_hears_of_matches_and_of_those_it_missed(store: Store, arena: SyntheticArena) -> None:
    with (
        serving(make_app(store, limits=AT_ONCE)) as address,
        httpx.stream("GET", f"{address}/api/arena/events", headers={"Last-Event-ID": "23"}, timeout=60) as stream,
    ):
        lines = stream.iter_lines()
        assert next_event(lines)["match"]["seq"] == 24  # missed while it was away
        # From another thread, as workers write from other processes.
        threading.Thread(target=arena.play, args=("ada/one", "cy/three", "win1", "draw")).start()
        heard = [next_event(lines), next_event(lines)]
        assert [event["match"]["seq"] for event in heard] == [25, 26]
        assert heard[0]["match"]["blue"]["repo"] == "ada/one"
        arena.add_entry("new/model", state="pending")
        entry = next_event(lines)
        assert (entry["type"], entry["repo"], entry["state"]) == ("entry", "new/model", "pending")


def test_an_open_page_hears_of_matches_after_the_database_was_away(
    store: Store, arena: SyntheticArena, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = threading.Semaphore(0)

    def away(connection: object) -> None:
        asked.release()
        raise OperationalError("SELECT", {}, Exception("the server is restarted"))

    with (
        serving(make_app(store, limits=AT_ONCE)) as address,
        httpx.stream("GET", f"{address}/api/arena/events", headers={"Last-Event-ID": "23"}, timeout=60) as stream,
    ):
        lines = stream.iter_lines()
        assert next_event(lines)["match"]["seq"] == 24
        with monkeypatch.context() as broken:
            broken.setattr("palus.web.api.view.read_version", away)
            assert asked.acquire(timeout=60) and asked.acquire(timeout=60)
        threading.Thread(target=arena.play, args=("ada/one", "cy/three", "win1", "draw")).start()
        assert next_event(lines)["match"]["seq"] == 25
    told = [record.getMessage() for record in caplog.records if "open pages wait for news" in record.getMessage()]
    assert len(told) == 1 and "the server is restarted" in told[0]


def test_more_listeners_than_allowed_are_sent_away(store: Store, arena: SyntheticArena) -> None:
    limits = WebLimits(listeners=1, fresh_s=0.0)
    with (
        serving(make_app(store, limits=limits)) as address,
        httpx.stream("GET", f"{address}/api/arena/events", timeout=60) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "retry: 3000"
        assert httpx.get(f"{address}/api/arena/events", timeout=60).json()["code"] == "too_many_listeners"
        del lines  # it held the stream open


def test_one_address_does_not_take_all_places_of_listeners(store: Store, arena: SyntheticArena) -> None:
    limits = WebLimits(listeners=5, client_listeners=1, fresh_s=0.0)
    with (
        serving(make_app(store, limits=limits)) as address,
        httpx.stream("GET", f"{address}/api/arena/events", timeout=30) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "retry: 3000"
        assert httpx.get(f"{address}/api/arena/events", timeout=30).json()["code"] == "too_many_listeners"
        del lines


def test_listeners_count_before_their_streams_are_read_and_no_longer_than_they_are_held(store: Store) -> None:
    async def come_at_once() -> list[object]:
        answers = Answers(Views(store))
        events = Events(answers, poll_s=0.05, max_listeners=2, client_listeners=1)
        held = [await events.listen(None, "ada")]
        told: list[object] = []
        for client in ("ada", "bob", "cy"):
            try:
                held.append(await events.listen(None, client))
                told.append(await anext(held[-1]))
            except HTTPException as refusal:
                told.append(refusal.status_code)
        held.clear()  # two who left, one of them before a word was sent
        gc.collect()
        await asyncio.sleep(0.05)
        told.append(await anext(await events.listen(None, "ada")))
        answers.close()
        return told

    retry = f"retry: {RECONNECT_MS}\n\n"
    assert asyncio.run(come_at_once()) == [503, retry, 503, retry]


def test_a_server_that_stops_ends_open_streams(store: Store, arena: SyntheticArena) -> None:
    with httpx.Client(timeout=60) as client:
        with serving(make_app(store)) as address:
            request = client.build_request("GET", f"{address}/api/arena/events")
            lines = client.send(request, stream=True).iter_lines()
            assert next(lines) == "retry: 3000"
        assert list(lines) == [""]


def next_event(lines: Iterator[str]) -> dict[str, Any]:
    for line in lines:
        if line.startswith("data: "):
            event: dict[str, Any] = json.loads(line.removeprefix("data: "))
            return event
    raise AssertionError("the stream ended")
