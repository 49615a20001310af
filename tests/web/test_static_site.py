"""The static export: it holds what the server serves, and works without one."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from browsing import Tab, needs_browser
from fastapi.testclient import TestClient
from synthetic_arena import ENV, SyntheticArena
from typer.testing import CliRunner
from web_server import serving_files

from palus.arena.referee.replay import encode_replay
from palus.cli import app as command_line
from palus.envs.recording import Recording
from palus.errors import ArenaError
from palus.store import Store, open_store
from palus.web import static_site
from palus.web.api import performance
from palus.web.api.leaderboard import RecentMatches
from palus.web.app import make_app
from palus.web.static_site import export_site

NAME = "<img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(tmp_path_factory.mktemp("data") / "arena")
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two", "cy/three"):
        arena.add_entry(repo)
    arena.add_entry("eve/refused", state="refused", code="too_big", sentence="It is too big.", remedy="Shrink it.")
    frames = np.tile(np.array([0, 0, 90, 8, -3, -90, -5, 5, 90, -8, -6, -90, 0, 0], np.float32), (61, 1))
    actions = np.zeros((12, 4, 3), np.int8)
    replay = encode_replay([Recording(ENV, 1, ("ada/one", "bob/two"), frames, actions, None, (), (0, 0), "draw")])
    arena.play("ada/one", "bob/two", "win1", "draw", replay=replay)
    arena.play("bob/two", "cy/three", "win1", "draw")
    arena.rate()
    arena.push_card("ada/one", f"# {NAME}\n\n[file](evil.html) ![curve](missing.png)\n")
    yield store
    store.close()


@pytest.fixture(scope="module")
def folder(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "public"
    export_site(store, folder)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """A static server as anyone has it."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_every_file_of_data_is_what_the_server_answers(store: Store, folder: Path) -> None:
    data = folder / "data"
    names = sorted(path.relative_to(data).with_suffix("").as_posix() for path in data.rglob("*.json"))
    for expected in (
        "envs",
        f"leaderboard/{ENV}",
        f"recent/{ENV}",
        f"matrix/{ENV}",
        f"analytics/{ENV}/ada/one",
        "models/eve/refused",
        f"compare/{ENV}/ada/one/bob/two",
        "status",
    ):
        assert expected in names
    assert len([name for name in names if name.startswith("matches/")]) == 4
    with TestClient(make_app(store)) as client:
        for name in names:
            if name == "status" or name.startswith("downloads/"):  # the clock moves on; downloads have their own tests
                continue
            served, written = client.get(f"/api/arena/{name}").json(), json.loads((data / f"{name}.json").read_text())
            if name.startswith("matches/") and served["replay"]:
                replay = client.get(served["replay"]["url"]).content
                assert (folder / written["replay"]["url"]).read_bytes() == replay
                served["replay"] = written["replay"] = None
            if name == "models/ada/one":  # files of strangers stay on the hub
                assert 'href="/ada/one/resolve/' in served.pop("card_html")
                assert "resolve" not in written.pop("card_html")
            assert written == served, name


def test_pages_name_nothing_from_the_top_of_a_server(folder: Path) -> None:
    pages = {path.name: path.read_text() for path in folder.glob("*.html")}
    assert {"index.html", "model.html", "match.html", "offline.html"} <= set(pages) and "room.html" not in pages
    for text in pages.values():
        assert '="/' not in text and "/api/" not in text


def test_an_export_replaces_only_an_export(store: Store, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(ArenaError, match="neither empty nor an earlier export"):
        export_site(store, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "irreplaceable"
    first = export_site(store, tmp_path / "site", max_matches=1)
    assert (first.matches, first.left_out) == (1, 3)
    assert export_site(store, tmp_path / "site").matches == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "site"]


def test_the_command_says_what_it_wrote(store: Store, tmp_path: Path) -> None:
    arguments = ["site", "export", str(tmp_path / "public"), "--data", str(store.folder), "--matches", "2"]
    done = CliRunner().invoke(command_line, arguments)
    assert done.exit_code == 0, done.output
    assert "4 models, 2 matches," in done.output and "2 more matches are linked and left out" in done.output
    missing = CliRunner().invoke(command_line, ["site", "export", str(tmp_path / "x"), "--data", str(tmp_path / "no")])
    assert missing.exit_code == 2 and not (tmp_path / "no").exists()


@needs_browser
def test_the_pages_work_on_any_static_server(address: str, browser: Any) -> None:
    tab = Tab(browser, f"{address}/index.html")
    tab.page.click("main a:has-text('ada/one'), main a:has-text('one')")
    tab.page.wait_for_url("**/model.html?**")
    tab.page.wait_for_selector("main h1:has-text('ada/one'), main h1:has-text('one')")
    tab.page.click("main a[href^='match.html'] >> nth=0")
    tab.page.wait_for_selector("canvas")
    assert tab.page.evaluate("window.hacked") is None
    assert tab.complaints == []
    tab.page.close()


@needs_browser
def test_an_export_leads_to_what_it_holds(
    store: Store, tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static_site, "COMPARED", 2)
    monkeypatch.setattr(static_site, "recent_matches", lambda view, env: RecentMatches(env=env, matches=[]))
    monkeypatch.setattr(performance, "RECENT", 0)
    export_site(store, tmp_path / "public")
    folder, comparisons, matches = tmp_path / "public", set(), set()
    with serving_files(folder) as address:
        tab = Tab(browser, f"{address}/compare.html")
        assert tab.page.get_by_label("First").locator("option").count() == 2
        for page in (
            "compare.html",
            "matrix.html",
            "model.html?repo=bob/two",
            "analytics.html?team=bob/two",
            "status.html",
        ):
            tab.open(f"{address}/{page}")
            tab.page.wait_for_selector("body:not(:has([aria-busy]))")
            for link in tab.page.locator("main a[href^='match.html?']").all():
                matches.add(parse_qs(urlsplit(link.get_attribute("href")).query)["match"][0])
            for link in tab.page.locator("main a[href^='compare.html?']").all():
                asked = parse_qs(urlsplit(link.get_attribute("href")).query)
                if "a" in asked:
                    comparisons.add(f"{asked['a'][0]}/{asked['b'][0]}")
            text = tab.texts("main")[0]
            assert "palus pull" not in text and "palus worker" not in text
        assert tab.complaints == []
        tab.page.close()
    assert comparisons and len(matches) == 4
    assert matches == {path.stem for path in (folder / "data" / "matches").glob("*.json")}
    for names in comparisons:
        assert (folder / f"data/compare/{ENV}/{names}.json").is_file(), names


@needs_browser
def test_boards_and_replays_open_from_disk(folder: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((folder / "offline.html").as_uri())
    assert page.inner_text("tbody tr:first-child td:nth-child(2)") == "ada/one"
    page.click("li a >> nth=0")
    page.wait_for_selector("canvas")
    page.close()


def test_a_place_that_is_sure_is_no_range_on_the_page_from_disk(tmp_path: Path) -> None:
    store = open_store(tmp_path / "arena")
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two", "cy/three"):
        arena.add_entry(repo)
    for loser in ("bob/two", "cy/three"):
        arena.play("ada/one", loser, *["win1", "win2"] * 60)  # blue in one leg, purple in the other
    arena.rate()
    export_site(store, tmp_path / "public")
    store.close()
    page = (tmp_path / "public" / "offline.html").read_text()
    assert re.findall("<tr><td>(.*?)</td>", page) == ["1", "2–3", "2–3"]
