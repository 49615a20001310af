"""Games whose replays are videos, on the pages: what is asked for, shown, and left out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Tab, eventually, needs_browser, tabs
from fastapi.testclient import TestClient
from synthetic_arena import SyntheticArena
from web_server import serving, serving_files

from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.verification import verify
from palus.store import Store, open_store
from palus.video import VideoEncoder
from palus.web.app import make_app
from palus.web.static_site import export_site

ENVS = ArenaSettings(envs=("SoccerTwos", "doom_duel"))


@pytest.fixture
def store(tmp_path: Path, video: bytes) -> Iterator[Store]:
    store = open_store(tmp_path / "data")
    arena = SyntheticArena(store, "doom_duel")
    arena.add_entry("ada/shooter")
    arena.add_entry("bob/runner")
    arena.play("ada/shooter", "bob/runner", "win1", "draw", "win1", "draw", replay=video, ticks=4200)
    arena.rate()
    waiting = {"code": "not-played", "sentence": "waiting: this arena does not play it", "remedy": "ask for it"}
    arena.add_entry("cy/late", state="waiting", **waiting)
    yield store
    store.close()


@pytest.fixture(scope="module")
def video() -> bytes:
    """Two seconds of rising grey."""
    pytest.importorskip("av", reason="the extra `video` is not installed")
    file = io.BytesIO()
    with closing(VideoEncoder(file, 17.5)) as encoder:
        for k in range(35):
            encoder.write(np.full((120, 320, 3), 60 + 4 * k, np.uint8))
    return file.getvalue()


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(make_app(store, arena=ENVS)) as client:
        yield client


def newest(client: TestClient) -> dict[str, Any]:
    match_id = client.get("/api/arena/recent/doom_duel").json()["matches"][0]["id"]
    page: dict[str, Any] = client.get(f"/api/arena/matches/{match_id}").json()
    return page


def test_a_match_of_doom_has_its_own_clock_and_its_replay_is_an_mp4(client: TestClient, video: bytes) -> None:
    page = newest(client)
    assert page["filmed"] and page["duration_s"] == 120.0
    replay = client.get(page["replay"]["url"])
    assert replay.headers["Content-Type"] == "video/mp4" and replay.content == video
    assert f"{page['id']}.mp4" in replay.headers["Content-Disposition"]
    assert client.get(f"/api/arena/matches/{page['id']}/page.html").status_code == 404
    assert client.get("/api/arena/matches/ffff/replay").json()["code"] == "no_file"
    rows = client.get("/api/arena/downloads/doom_duel/matches.json").json()
    assert {row["duration_s"] for row in rows} == {120.0}
    assert client.get("/api/arena/analytics/doom_duel").json()["mean_duration_s"] == 120.0


def test_frags_have_no_times_and_play_no_statistics(client: TestClient) -> None:
    (shown,) = client.get("/api/arena/models/ada/shooter").json()["performance"]
    assert (shown["drawn"], shown["measured"], shown["play"]) == (False, False, None)
    assert shown["standing"]["games"] == 4
    scores = shown["scores"]
    assert (scores["word"], scores["timed"], scores["note"]) == ("Frags", False, "opponents shot, less own accidents")
    assert (scores["scored"], scores["mean_scored_s"], scores["scored_bins"]) == (2, None, [])


def test_a_model_that_waits_for_its_game_says_so(client: TestClient) -> None:
    (revision,) = client.get("/api/arena/models/cy/late").json()["revisions"]
    assert revision["state"] == "waiting" and revision["refusal"]["code"] == "not-played"
    (line,) = client.get("/api/arena/status").json()["unranked"]
    assert (line["repo"], line["state"], line["remedy"]) == ("cy/late", "waiting", "ask for it")


def test_the_demo_room_does_not_play_it(client: TestClient) -> None:
    with client.websocket_connect("ws://localhost/api/arena/room/live") as socket:
        socket.send_json({"blue": "ada/shooter", "purple": "bob/runner", "env": "doom_duel"})
        assert "kept as videos" in socket.receive_json()["reason"]


def test_a_match_that_does_not_repeat_is_checked_by_its_record_and_video(store: Store, client: TestClient) -> None:
    page = newest(client)
    found = verify(store, page["id"])
    assert found.ok and "does not repeat" in found.sentence
    blob = store.blobs.path(page["replay"]["sha256"])
    blob.chmod(0o600)
    blob.write_bytes(b"another video")
    found = verify(store, page["id"])
    assert found.ok is False and "not the one recorded" in found.sentence


@needs_browser
def test_pages_show_the_video_here_and_in_an_export(browser: Any, store: Store, tmp_path: Path) -> None:
    with serving(make_app(store, arena=ENVS)) as url, tabs(browser) as open_tab:
        tab = open_tab(f"{url}/?env=doom_duel")
        assert tab.texts("select option") == ["doom_duel (2 models)", "SoccerTwos (0 models)"]
        tab.page.locator("a[href^='/match']").first.click()
        check_film(tab)
        assert any("does not repeat" in text for text in tab.texts(".note"))
        tab.open(f"{url}/ada/shooter")
        assert "Frags" in tab.texts("h2") and "Goals" not in tab.texts("h2") and "Play" not in tab.texts("h2")
        tab.open(f"{url}/cy/late")
        assert "waits" in tab.texts(".verdict strong")[0]
        assert tab.complaints == []
    export_site(store, tmp_path / "site", arena=ENVS)
    with serving_files(tmp_path / "site") as url, tabs(browser) as open_tab:
        tab = open_tab(f"{url}/index.html?env=doom_duel")
        tab.page.locator("a[href^='match.html']").first.click()
        check_film(tab)
        assert tab.complaints == []


def check_film(tab: Tab) -> None:
    """The video is there, and the browser can play it from any moment."""
    wait_for(tab, "document.querySelector('video')?.readyState >= 2")
    assert tab.page.evaluate("document.querySelector('video').duration") == pytest.approx(2.0, abs=0.1)
    tab.page.evaluate("document.querySelector('video').currentTime = 1.5")
    wait_for(tab, "!document.querySelector('video').seeking")
    assert "Left is what blue sees" in tab.texts("figcaption")[0]


def wait_for(tab: Tab, fact: str) -> None:
    """The browser's own waiting is code in the page, which the page's policy forbids."""
    eventually(tab.page, lambda: tab.page.evaluate(fact), fact)
