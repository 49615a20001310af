"""The arena's pages in a real browser, over a real server and a store whose results are known."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from browsing import Tab, browsing, end_and_home_scroll, eventually, needs_axe, needs_browser, tabs
from fastapi import APIRouter
from sqlalchemy import insert, select, update
from synthetic_arena import ENV, START_MS, SyntheticArena, sha_of
from web_server import serving, serving_files

from palus.arena.referee.replay import encode_replay
from palus.envs.recording import RecordedEvent, Recording
from palus.envs.soccer.play_stats import play_statistics
from palus.store import open_store
from palus.store.derived import play_stats, rating_points
from palus.store.tables import entries, workers
from palus.web.api.leaderboard import MEASURES
from palus.web.app import WebLimits, make_app
from palus.web.static_site import export_site

pytestmark = needs_browser

HOSTILE = "<img src=x onerror=window.hacked=1>"
CARD = f"# A card\n\n[link](javascript:window.hacked=1) **bold** {HOSTILE}\n\n<script>window.hacked=1</script>\n"
EVERY_PAGE = (
    "/",
    "/ada/one",
    "/eve/refused",
    "/thief/copy",
    "/gus/words",
    "/match?match={match}&t=1",
    "/compare?a=bob/two&b=ada/one",
    "/matrix",
    "/status",
    "/analytics",
    "/analytics?tab=competition",
    "/analytics?tab=downloads",
    "/nobody/nothing",
    "/no/such/address",
)


def recording(ticks: int = 200) -> Recording:
    """Four agents that stand still and a ball that rolls into the right goal."""
    frames = np.tile(np.array([0, 0, 90, 8, -3, -90, -5, 5, 90, -8, -6, -90, 0, 0], np.float32), (ticks + 1, 1))
    frames[:, 12] += np.arange(ticks + 1) * 0.08
    return Recording(
        env_id=ENV,
        seed=1,
        names=("ada/one", "bob/two"),
        frames=frames,
        actions=np.tile(np.array([1, 2, 0], np.int8), (ticks // 5, 4, 1)),
        probabilities=None,
        events=(RecordedEvent(60, "kick", 0, 0), RecordedEvent(ticks, "goal", 0, -1)),
        score=(1, 0),
        result="blue",
    )


MATCH = recording()
POINTS = [{"steps": steps, "share": share, "low": share - 0.1, "high": share + 0.1, "pairs": 50} for steps, share in
          ((0, 0.5), (200_000, 0.7), (1_000_000, 0.8))]  # fmt: skip
PROBE = json.dumps({
    "schema": 1, "env_id": ENV, "behavior": ENV, "symmetric": True, "model_sha256": sha_of("ada/one"),
    "trainer_type": "ppo", "steps": 1_000_000, "wall_seconds": 600.0, "seed": 1, "palus_version": "0.1.0",
    "best": POINTS[2] | {"pairs": 200}, "curve": POINTS,
}).encode()  # fmt: skip


def fill(arena: SyntheticArena) -> None:
    """Ada beats Bob more often than not, Bob beats Cy; Eve's model was refused, Fay's waits, one is a copy of Ada's."""
    for repo in ("ada/one", "bob/two", "cy/three", f"{HOSTILE[:-1]}/four"):
        arena.add_entry(repo)
    arena.add_entry("palus/ball-chaser", source="house")
    why = {"code": "external_data", "sentence": "Tensor w lies in w.bin.", "remedy": "Export it into the file."}
    arena.add_entry("eve/refused", state="refused", **why)
    arena.add_entry("fay/new", state="pending")
    arena.add_entry("thief/copy", file="ada/one")
    arena.push_card("ada/one", CARD, more={"probe.json": PROBE})
    arena.push_card("gus/words", "# Only words\n\nשלום עולם\n\n- אחת\n")
    for _ in range(6):
        arena.play(
            "ada/one",
            "bob/two",
            "win1",
            "win2",
            "win1",
            "draw",
            replay=encode_replay([MATCH], title="ada/one against bob/two"),
        )
        arena.play("bob/two", "cy/three", "win1", "win2", "draw", "win2")
        arena.play("cy/three", "palus/ball-chaser", "win1", "draw")
    arena.play("bob/two", f"{HOSTILE[:-1]}/four", "win1", "win2")
    arena.rate({"support": [], "cycles": []})
    with arena.store.write() as connection:
        stats = {"match_id": sha_of("match 1")[:16], "stats": json.dumps(play_statistics(MATCH))}
        connection.execute(insert(play_stats).values(stats))
        worker = {
            "name": "laptop",
            "isolation": "namespaces",
            "platform": json.dumps({"envs": [ENV, "doom_duel"]}),
            "matches": 9,
        }
        connection.execute(insert(workers).values(worker | {"first_seen_ms": START_MS, "last_seen_ms": START_MS}))


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyntheticArena]:
    store = open_store(tmp_path_factory.mktemp("arena"))
    arena = SyntheticArena(store)
    fill(arena)
    yield arena
    store.close()


@pytest.fixture(scope="module")
def site(arena: SyntheticArena) -> Iterator[str]:
    with serving(make_app(arena.store, limits=WebLimits(fresh_s=0.0, keep_s=0.0, poll_s=0.05))) as address:
        yield address


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browsing(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[[str], Tab]]:
    with tabs(browser) as open_tab:
        yield open_tab


def match_id(number: int) -> str:
    return sha_of(f"match {number}")[:16]


def test_the_leaderboard_shows_ranks_ratings_and_their_uncertainty(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(site)
    assert tab.texts("[aria-label='Ranking'] tbody th a")[:2] == ["one", "two"]
    rank, owner, rating, *_ = tab.texts("[aria-label='Ranking'] tbody tr:first-child td")
    assert rank in {"1", "1–2"}
    assert owner == "ada"
    assert " ± " in rating
    bar = tab.page.locator("[aria-label='Ranking'] .interval").first.get_attribute("aria-label")
    middle, half = (int(number) for number in rating.split(" ± "))
    low, high = (int(number) for number in bar.removeprefix("95 % interval ").split(" to "))
    assert abs(low - (middle - half)) <= 1 and abs(high - (middle + half)) <= 1, "each is rounded for itself"
    assert "provisional" in tab.texts("[aria-label='Ranking'] tbody tr:last-child th")[0]
    assert tab.complaints == []


def test_search_and_other_columns_are_kept_in_the_address(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(site)
    tab.page.get_by_label("Search").fill("BOB")
    others = [*(column.title for column in MEASURES), "Nash"]
    tab.page.route("**/matrix/*", lambda route: route.fulfill(body="{"), times=1)
    tab.page.get_by_role("button", name=", ".join(others)).click()
    tab.page.wait_for_selector("th:has-text('openskill')")
    tab.page.wait_for_selector("[role=status]:has-text('The column Nash could not be loaded.')")
    tab.page.get_by_role("button", name="Rating", exact=True).nth(0).click()
    tab.page.get_by_role("button", name=", ".join(others)).click()
    tab.page.wait_for_selector("[role=status]:text-is('1 model found')", state="attached")
    tab.page.get_by_role("button", name="Rating", exact=True).nth(0).click()
    with tab.page.expect_response("**/matrix/*"):  # ratings may have changed meanwhile
        tab.page.get_by_role("button", name=", ".join(others)).click()
    assert tab.texts("[aria-label='Ranking'] tbody th a") == ["two"]
    again = visit(tab.page.url)
    assert again.texts("[aria-label='Ranking'] tbody th a") == ["two"]
    assert again.texts("[aria-label='Ranking'] thead th")[3:-2] == others
    assert tab.complaints + again.complaints == []


def test_models_that_are_not_ranked_are_listed_found_and_explained(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(site)
    names, lines = (f"[aria-label='Not on the board'] tbody {part}" for part in ("th a", "tr"))
    assert sorted(tab.texts(names)) == ["copy", "new", "refused"]
    for name, state, why in (
        ("eve/refused", "refused", "Tensor w lies in w.bin."),
        ("fay/new", "pending", "waits to be checked"),
        ("thief/copy", "same player", "is the same player as ada/one"),
    ):
        tab.page.get_by_label("Search").fill(name)
        assert "No ranked model matches" in tab.texts("[aria-label='Ranking']")[0]
        (line,) = tab.texts(lines)
        assert state in line and why in line
        assert tab.page.locator("[role=status]:text-is('1 model found')").count() == 1
    tab.page.locator(names).click()
    tab.page.get_by_role("link", name="ada/one").first.wait_for()
    assert tab.texts("[aria-label='Same player'] strong") == ["The same player as ada/one"]
    assert tab.complaints == []


def test_a_refusal_says_of_which_game_it_is(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two"):
        arena.add_entry(repo)
    why = {"code": "external_data", "sentence": "Tensor w lies in w.bin.", "remedy": "Export it into the file."}
    arena.add_entry("ada/one", file="strikers", env="StrikersVsGoalie", state="refused", **why)
    arena.play("ada/one", "bob/two", "win1", "draw")
    arena.rate()
    with serving(make_app(store)) as address:
        tab = visit(f"{address}/ada/one")
        (said,) = tab.texts("[aria-label^='Validation'] strong")
        assert said.startswith("Revision ") and said.endswith(" was refused in StrikersVsGoalie")
        assert "Rank" in tab.texts(".facts dt")
    store.close()


def test_pages_say_what_plays_and_under_which_name(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(f"{site}/gus/words")
    assert tab.texts("[aria-label='Validation'] strong") == ["No model of this repository plays here"]
    tab.page.locator("iframe").scroll_into_view_if_needed()
    directions = [("h2", "ltr"), ("p", "rtl"), ("ul", "rtl")]
    for block, direction in directions:
        part = tab.page.frame_locator("iframe").locator(block)
        eventually(
            tab.page, lambda part=part, d=direction: part.evaluate("b => getComputedStyle(b).direction") == d, block
        )
    tab.open(f"{site}/thief/copy")
    assert "shown on the board as ada/one" in tab.texts("[aria-label='Revisions'] tbody th")[0]
    assert "palus pull" not in tab.texts("main")[0] and "nothing to download" in tab.texts("main")[0]
    tab.open(f"{site}/status")
    assert "envs SoccerTwos and doom_duel" in tab.texts("[aria-label='Workers'] tbody")[0]
    assert tab.complaints == []


def test_a_column_head_sorts_and_says_so(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(site)
    tab.page.get_by_role("button", name="Games", exact=True).press("Enter")
    assert tab.page.locator("thead th[aria-sort]").get_attribute("aria-sort") == "descending"
    assert tab.texts("[aria-label='Ranking'] tbody th a")[0] == "two"
    assert tab.complaints == []


def test_a_new_model_and_new_matches_appear_without_a_reload(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    with serving(make_app(store, limits=WebLimits(fresh_s=0.0, poll_s=0.05))) as address:
        tab = visit(address)
        assert "No models yet" in tab.texts("main")[0]
        tab.page.evaluate("window.stayed = true")
        tab.page.wait_for_selector(".live.on")
        arena.add_entry("ada/one")
        arena.add_entry("bob/two")
        arena.play("ada/one", "bob/two", "win1", "draw")
        arena.rate()
        tab.page.wait_for_selector("[aria-label='Ranking'] th:has-text('one')")
        arena.play("bob/two", "ada/one", "win1", "win1")
        tab.page.wait_for_selector("[aria-label='Newest matches'] tbody tr:nth-child(4)")
        assert tab.page.evaluate("window.stayed") is True
        assert tab.complaints == []
        # Out of sight for a while, and then refused by the server once.
        tab.page.evaluate("(wait => { window.setTimeout = (task, ms) => wait(task, ms / 20); })(window.setTimeout)")
        tab.page.evaluate("window.dispatchEvent(new Event('pagehide'))")
        arena.add_entry("cy/three")
        arena.play("cy/three", "ada/one", "win1", "win2")
        arena.rate()
        tab.page.route("**/events", lambda route: route.fulfill(status=503), times=1)
        with tab.page.expect_response("**/events"):
            tab.page.evaluate("window.dispatchEvent(new Event('pageshow'))")
        assert tab.texts(".live") == ["Not live"]
        tab.page.wait_for_selector(".live.on")
        tab.page.wait_for_selector("[aria-label='Ranking'] th:has-text('three')")
        assert tab.page.locator("[aria-label='Newest matches'] tbody tr").count() == 6
    store.close()


def test_a_page_that_is_come_back_to_shows_what_is_now(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two"):
        arena.add_entry(repo)
    arena.play("ada/one", "bob/two", "win1", "draw")
    with serving(make_app(store, limits=WebLimits(fresh_s=0.0, keep_s=0.0, poll_s=0.05))) as address:
        tab = visit(f"{address}/matrix")
        tab.page.wait_for_selector("#log-end:has-text('it ended with match 2,')")
        tab.open(f"{address}/no/such/address")
        arena.play("ada/one", "bob/two", "win1", "draw")
        tab.page.go_back()
        tab.page.wait_for_selector("#log-end:has-text('it ended with match')")
        assert "it ended with match 4," in tab.texts("#log-end")[0]
    store.close()


def test_a_link_to_a_game_that_is_not_played_says_so(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(site)
    for page in ("/", "/matrix", "/compare", "/analytics"):
        for env, label in (("Gone", "Environment: Gone is not played here"), (ENV, "Environment")):
            tab.open(f"{site}{page}?env={env}")
            field = tab.page.locator("label:has-text('Environment')")
            assert field.evaluate("label => label.firstChild.textContent") == label
            assert field.get_by_role("combobox").input_value() == ENV
    assert tab.complaints == []


def test_an_answer_that_is_none_is_told(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(f"{site}/analytics")
    tab.page.route("**/leaderboard/*", lambda route: route.fulfill(body='{"rows": ['))
    tab.open(site)
    assert tab.texts("[role=alert] p") == ["The answer broke off, or is not palus's. Try again in a moment."]
    assert tab.complaints == []


def test_the_board_moves_under_the_focus_and_leaves_it_where_it_is(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two", "cy/three"):
        arena.add_entry(repo)
    arena.play("ada/one", "bob/two", "win1", "win2")
    arena.play("bob/two", "cy/three", "win1", "win2")
    arena.rate()
    with serving(make_app(store, limits=WebLimits(fresh_s=0.0, poll_s=0.05))) as address:
        tab = visit(address)
        tab.page.wait_for_selector(".live.on")
        assert tab.texts("[aria-label='Ranking'] tbody th a") == ["one", "two", "three"]
        tab.page.locator("[aria-label='Ranking'] th a:text-is('two')").focus()
        for first, other in (("two", "ada/one"), ("three", "bob/two")):
            winner = {"two": "bob/two", "three": "cy/three"}[first]
            for _ in range(6):
                arena.play(winner, other, "win1", "win2")
            arena.rate()
            tab.page.wait_for_selector(f"[aria-label='Ranking'] tbody tr:first-child th:has-text('{first}')")
            assert tab.page.evaluate("document.activeElement.textContent") == "two"
        newest = "[aria-label='Newest matches'] tbody tr"
        record = tab.page.locator(f"{newest}:first-child a:text-is('Record')")  # nothing of it is kept to be watched
        record.focus()
        label = record.get_attribute("aria-label")
        arena.play("ada/one", "cy/three", "draw", "draw", replay=b"kept")
        tab.page.wait_for_selector(f"{newest}:nth-child(3) a[aria-label='{label}']:focus")
        assert tab.texts(f"{newest}:first-child td:last-child") == ["Watch"]
        assert tab.complaints == []
    store.close()


def test_status_goes_on_while_a_reader_is_in_a_table(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    why = {"code": "external_data", "sentence": "Tensor w lies in w.bin.", "remedy": "Export it into the file."}
    arena.add_entry("eve/refused", state="refused", **why)
    with serving(make_app(store, limits=WebLimits(fresh_s=0.0, poll_s=0.05))) as address:
        tab = visit(f"{address}/status")
        tab.page.wait_for_selector(".live.on")
        tab.page.locator("[aria-label='Models that are not ranked'] a:text-is('refused')").focus()
        arena.add_entry("ada/one", state="pending")
        tab.page.wait_for_selector("[aria-label='Models that are not ranked'] a:text-is('one')")
        assert tab.page.evaluate("document.activeElement.textContent") == "refused"
        arena.play("ada/one", "bob/two", "win1", "draw")
        tab.page.wait_for_selector(".note:has-text('Match 2 ends the log')")
        assert "When this page was opened it ended with match 0," in tab.texts("#log-end")[0]
        assert tab.complaints == []
    store.close()


def test_the_page_of_a_model_that_is_checked_follows_in_place(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    arena.push_card("ada/one", "# Pushed")
    with serving(make_app(store, limits=WebLimits(fresh_s=0.0, poll_s=0.05))) as address:
        tab = visit(f"{address}/ada/one")
        tab.page.wait_for_selector(".live.on")
        assert "If that was done just now" in tab.texts("[aria-label='Validation']")[0]
        tab.page.evaluate("window.stayed = true")
        arena.add_entry("ada/one", state="pending")
        tab.page.wait_for_selector("[aria-label='Validation']:has-text('waits to be checked')")
        with store.write() as connection:
            connection.execute(update(entries).values(state="accepted", checked_ms=START_MS + 9))
        tab.page.wait_for_selector("main:not(:has([aria-label='Validation'])) h1")
        assert "is ranked once the ratings include its first games" in tab.texts("main")[0]
        arena.add_entry("bob/two")
        arena.play("ada/one", "bob/two", "win1", "draw")
        assert tab.texts(".live.on") == ["Live"]
        arena.rate()
        tab.page.wait_for_selector(".facts dt:text-is('Rank')")
        tab.page.wait_for_selector(".live", state="hidden")  # from now on the numbers stand still
        assert tab.page.evaluate("window.stayed") is True
        assert tab.complaints == []
    store.close()


def test_a_match_is_opened_sought_and_shared(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(f"{site}/ada/one")
    tab.page.locator("section:has(h2:text('Best wins')) a:text('Watch')").first.click()
    tab.page.wait_for_selector(".palus .controls")
    tab.page.locator(".palus input[type=range]").first.focus()
    tab.page.keyboard.press("Home")
    for _ in range(10):
        tab.page.keyboard.press(".")
    tab.page.wait_for_url("**&t=0.2")
    tab.page.locator(".palus .scoreboard").click()  # which gives the focus to what is around the viewer
    tab.page.keyboard.press(".")
    tab.page.wait_for_url("**&t=0.22")
    shared = visit(tab.page.url)
    shared.page.wait_for_selector(".palus .controls")
    value = "document.querySelector('.palus input[type=range]').value"
    assert shared.page.evaluate(value) == tab.page.evaluate(value) != "0"
    shared.open(f"{site}/match?match={match_id(1)}&autoplay")
    number = f"Number({value.replace(').value', ')?.value')} ?? 0)"
    eventually(shared.page, lambda: shared.page.evaluate(number) > 0.5, "it plays")
    shared.page.evaluate("location.hash = 'content'")  # as the skip link does
    assert shared.page.evaluate(f"new Promise(done => setTimeout(() => done({number}), 100))") > 0.5
    assert tab.complaints + shared.complaints == []


def test_the_match_page_says_what_the_record_says(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(f"{site}/match?match={match_id(1)}")
    assert tab.texts("h1") == ["ada/one 1 : 0 bob/two"]
    text = tab.texts("main")[0]
    assert f"palus verify {match_id(1)}" in text
    assert "record intact" in text
    assert str(2**63 + 1) in text
    tab.page.wait_for_selector(".palus .controls")
    tab.page.get_by_role("link", name="bob/two").focus()
    end_and_home_scroll(tab.page)
    tab.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # as over plain HTTP
    tab.page.get_by_role("button", name="Copy the command").click()
    tab.page.wait_for_selector("button:text-is('Selected: copy it with the keyboard')")
    assert tab.page.evaluate("getSelection().toString()").strip() == f"palus verify {match_id(1)}"
    tab.page.get_by_role("link", name="The other leg").click()
    tab.page.wait_for_url(f"**/match?match={match_id(2)}")
    assert tab.complaints == []


@pytest.mark.parametrize(
    ("method", "address", "status", "title"),
    [
        ("GET", "/no/such/address", 404, "Nothing here"),
        ("GET", "/ada/o%20ne", 404, "Nothing here"),
        ("GET", "/static/missing.js", 404, "Nothing here"),
        ("GET", "/nobody/nothing", 404, "Nothing here"),
        ("POST", "/matrix", 405, "Not at this address"),
        ("GET", "/broken", 500, "Something failed"),
    ],
)
def test_a_browser_is_shown_errors_on_a_page(
    browser: Any, arena: SyntheticArena, method: str, address: str, status: int, title: str
) -> None:
    broken = APIRouter()
    broken.add_api_route("/broken", lambda: 1 / 0)
    with serving(make_app(arena.store, extra_routers=[broken])) as site:
        answers = [httpx.request(method, site + address, headers={"Accept": accept}) for accept in ("*/*", "text/html")]
        assert [answer.headers["content-type"] for answer in answers] == [
            "application/json",
            "text/html; charset=utf-8",
        ]
        assert answers[1].status_code == status and answers[1].headers["content-security-policy"]
        page = browser.new_page()
        if method == "POST":
            page.goto(site)
            page.evaluate(f"""() => {{
                const form = document.createElement("form");
                Object.assign(form, {{ method: "post", action: "{address}" }});
                document.body.append(form);
                form.submit();
            }}""")
        else:
            page.goto(site + address)
        page.wait_for_selector(f"h1:text-is('{title}')")
        assert page.title() == f"{title} · palus arena"
        assert html.unescape(answers[1].text).count(answers[0].json()["error"]) == 2 or address == "/ada/o%20ne"
        page.get_by_role("main").get_by_role("link", name="Leaderboard").click()
        page.wait_for_selector("h1:text-is('Leaderboard')")
        page.close()


def test_programs_get_errors_as_json_whatever_they_accept(site: str) -> None:
    for address in ("/api/arena/nothing", "/api/models/ada/none", "/api/arena/matches/xyz"):
        answer = httpx.get(site + address, headers={"Accept": "text/html"})
        assert answer.status_code >= 400 and answer.json()["error"]


def test_a_refused_model_tells_code_sentence_and_remedy(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(f"{site}/eve/refused")
    assert tab.texts("[aria-label='Validation'] p") == [
        "Tensor w lies in w.bin.",
        "What to do: Export it into the file.",
        "Code external_data",
    ]
    tab.open(f"{site}/status")
    assert "Tensor w lies in w.bin." in tab.texts("[aria-label='Models that are not ranked'] tbody")[0]
    assert tab.complaints == []


def test_the_second_leg_of_a_comparison_is_the_better_one(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(f"{site}/compare?b=bob/two")
    assert tab.page.get_by_label("First").input_value() == "ada/one", "a model is not compared with itself"
    with tab.page.expect_navigation():  # after Back the fields are as the address says
        tab.page.evaluate("window.dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    tab.open(f"{site}/compare")
    tab.page.get_by_label("First").select_option("bob/two")
    tab.page.wait_for_url("**/compare?a=bob%2Ftwo&b=ada%2Fone&env=SoccerTwos")
    tab.page.wait_for_selector("h2:text('Sequential test')")
    assert tab.page.locator("[aria-label^='Games of'] tbody tr.win").count() == 18
    tab.page.get_by_label("Environment").dispatch_event("change")
    tab.page.wait_for_url("**/compare?env=SoccerTwos")
    tab.page.wait_for_selector("h2:text('Sequential test')")
    assert tab.complaints == []


def test_analytics_count_the_results_of_a_team(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(f"{site}/analytics?team=ada/one")
    tab.page.wait_for_selector("h2:text('Results per day')")
    assert tab.texts(".facts dd")[:4] == ["18", "6", "0", "75.00 %"]
    last = "[aria-label='Games of {}, newest first'] tr:first-child td:nth-last-child(2)"
    assert tab.texts(last.format("ada/one")) == ["Watch"]
    held: list[Any] = []
    tab.page.route("**/bob/two", lambda route: held.append(route))
    for team in ("bob/two", "cy/three", "cy/nobody"):
        tab.page.get_by_label("Team").fill(team)
        tab.page.get_by_label("Team").press("Enter")
    tab.page.wait_for_selector(
        "[role=status]:text-is('There is no team “cy/nobody” here. These are the results of cy/three.')"
    )
    with tab.page.expect_response("**/bob/two"):
        held[0].continue_()
    tab.page.wait_for_selector("a:text-is('Rating, opponents and play of cy/three')")
    assert tab.texts(last.format("cy/three")) == ["Record"]  # nothing of it is kept to be watched
    tab.page.get_by_role("tab", name="Results").press("ArrowRight")
    assert tab.page.get_by_role("tab", name="Competition stats").get_attribute("aria-selected") == "true"
    tab.page.wait_for_selector("h2:text('Matches so far')")
    tab.page.keyboard.press("ArrowRight")
    with tab.page.expect_download() as download:
        tab.page.get_by_role("link", name="history.csv").click()
    assert Path(download.value.path()).read_text().startswith("model1,model2,timestamp,result\n")
    assert tab.complaints == []


def test_a_probe_is_told_as_the_publishers_own_claim(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(f"{site}/ada/one?repo=bob/two")
    assert tab.texts("h1") == ["ada/one"]
    tab.page.locator("section:has(> header h2:text-is('Newest matches')) button:has-text('Show more')").click()
    focused = "document.activeElement.getAttribute('aria-label')"
    assert tab.page.evaluate(focused) == "Newest matches", "the button is gone, the reader stays at the table"
    box = tab.page.locator("section", has=tab.page.get_by_role("heading", name="Exploitability, as its publisher says"))
    assert "the arena has not played these matches" in box.inner_text()
    assert [cell.inner_text() for cell in box.locator("dd:not(.small)").all()] == [
        "≥ 0.40",
        "80.0 %",
        "200",
        "1M steps",
    ]
    assert box.locator("path.band").count() == 1
    assert tab.complaints == []


def test_names_and_cards_of_strangers_stay_text(visit: Callable[[str], Tab], site: str) -> None:
    for address in ("/ada/one", "/matrix", "/analytics?tab=competition", "/palus/ball-chaser", "/bob/two"):
        tab = visit(site + address)
        frames = [frame for frame in tab.page.frames if frame.parent_frame]
        assert all(frame.evaluate("window.hacked === undefined") for frame in [tab.page.main_frame, *frames])
        assert tab.page.locator("main img").count() == 0
        assert tab.complaints == [], address
    board = visit(site)
    assert HOSTILE[:-1] in board.texts("[aria-label='Ranking'] tbody")[0]


def test_long_names_and_long_times_fit_their_pages(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    long = f"{'w' * 38}/{'m' * 57}"
    for repo in (long, "ada/one", "eve/two"):
        arena.add_entry(repo)
    arena.add_entry(f"x{long}", file=long)
    arena.play("ada/one", long, "win1", "draw", "win1", "draw")
    arena.rate()
    with store.write() as connection:
        (point,) = connection.execute(select(rating_points).where(rating_points.c.sha256 == sha_of(long))).mappings()
        for days in (1, 2):  # as far apart as 2.2 days
            later = {"seq": point["seq"] + days, "at_ms": point["at_ms"] + days * 95_040_000}
            connection.execute(insert(rating_points).values(dict(point) | later))
        evening = 1_699_142_400_000  # 20:00 in New York, of the day before clocks are put back
        ada = rating_points.c.sha256 == sha_of("ada/one")
        connection.execute(update(rating_points).where(ada).values(at_ms=evening))
        (point,) = connection.execute(select(rating_points).where(ada)).mappings()
        later = {"seq": point["seq"] + 1, "at_ms": evening + 25 * 3_600_000}
        connection.execute(insert(rating_points).values(dict(point) | later))
    with serving(make_app(store)) as address:
        tab = visit(f"{address}/{long}")
        below = tab.page.locator("section:has(h2:text-is('Rating over time')) .chart text[y='250']")
        labels = below.all_text_contents()
        assert len(labels) == len(set(labels)) >= 2 and all(label.startswith("Nov ") for label in labels), labels
        clock = tab.page.context.new_cdp_session(tab.page)
        clock.send("Emulation.setTimezoneOverride", {"timezoneId": "America/New_York"})
        tab.open(f"{address}/ada/one")
        assert below.all_text_contents() == ["Nov 5", "12:00"]
        for page in (
            f"/x{long}",
            f"/match?match={match_id(1)}",
            f"/compare?a=eve/two&b={long}",
            f"/analytics?team={long}",
            "/matrix",
        ):
            tab.open(address + page)
            for width in (1280, 1024, 390):
                tab.page.set_viewport_size({"width": width, "height": 820})
                fits = f"document.documentElement.scrollWidth <= {width}"
                eventually(tab.page, lambda fits=fits: tab.page.evaluate(fits), f"{page} is {width} wide")
                tables = "[...document.querySelectorAll('.scroll:not(.matrix)')]"
                cut = f"{tables}.filter(t => t.scrollWidth > t.clientWidth).map(t => t.ariaLabel)"
                assert tab.page.evaluate(cut) == [], f"{page}, {width} wide"
    store.close()


def without_date(route: Any) -> None:
    """An answer that does not say what time it is."""
    answer = route.fetch()
    route.fulfill(response=answer, headers={name: said for name, said in answer.headers.items() if name != "date"})


@pytest.mark.parametrize("off_s", [-18_000, -1, 0, 1, 40_000_000])
def test_times_are_told_by_the_clock_of_the_arena(visit: Callable[[str], Tab], tmp_path: Path, off_s: int) -> None:
    store = open_store(tmp_path)
    since_ms = round(1000 * time.time()) - 2 * 3_600_000
    SyntheticArena(store).add_entry("ada/one", state="pending", checked_ms=since_ms)
    with serving(make_app(store)) as address:
        tab = visit(f"{address}/no/such/address")
        tab.page.add_init_script(f"(now => {{ Date.now = () => now() + {1000 * off_s}; }})(Date.now)")
        tab.open(f"{address}/status")
        assert tab.texts("[aria-label='Models that are not ranked'] time") == ["2 hours ago"]
    store.close()


def test_times_grow_old_and_are_rounded_as_people_do(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two"):
        arena.add_entry(repo)
    arena.play("ada/one", "bob/two", "win1", "draw", ticks=2999)  # 59.98 s
    with serving(make_app(store)) as address:
        tab = visit(address)
        now = START_MS + 85_200_000  # 23 hours and 40 minutes later
        faster = "(wait => { window.setInterval = (task, ms) => wait(task, ms / 300); })(window.setInterval);"
        tab.page.add_init_script(f"window.now = {now}; Date.now = () => window.now; {faster}")
        tab.page.route(re.compile("/api/arena/(?!events)"), without_date)
        tab.open(address)
        lines = tab.texts("[aria-label='Newest matches'] tbody tr")
        assert all("1 min 0 s" in line for line in lines) and len(lines) == 2
        assert [time for time in tab.texts("main time") if time != "yesterday"] == []
        tab.page.evaluate("window.now += 86_400_000")
        eventually(tab.page, lambda: set(tab.texts("main time")) == {"2 days ago"}, "a day has passed")
        for part, where in (("results", ".facts time"), ("competition", "[aria-label='All teams'] time")):
            tab.open(f"{address}/analytics?tab={part}")
            tab.page.wait_for_selector(f"{where}:text-is('yesterday')")
            tab.page.evaluate("window.now += 86_400_000")
            tab.page.wait_for_selector(f"{where}:text-is('2 days ago')")
        assert tab.complaints == []
    store.close()


def test_a_phone_shows_every_page_of_the_navigation_and_whole_links(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(site)
    for width in (390, 360):
        tab.page.set_viewport_size({"width": width, "height": 844})
        for link in tab.page.locator("header nav a").all():
            box = link.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width, link.inner_text()
            assert box["y"] + box["height"] <= 160 and box["height"] >= 44
    tab.page.set_viewport_size({"width": 360, "height": 844})
    for address, tables in (
        ("/", ("Models of SoccerTwos by rank", "Models that are not ranked", "Newest matches")),
        ("/status", ("Models that are not ranked", "Workers")),
        ("/analytics?team=ada/one", ("Games of ada/one",)),
    ):
        tab.open(site + address)
        for label in tables:
            region = tab.page.get_by_role("region", name=label)
            assert region.evaluate("region => region.scrollWidth - region.clientWidth") <= 0, f"{label} is cut"
    assert tab.page.get_by_role("link", name="Play", exact=True).is_visible()


def test_a_phone_shows_every_game_and_every_revision_that_can_be_chosen(
    visit: Callable[[str], Tab], tmp_path: Path
) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    for env in ("StrikersVsGoalie", "doom_duel"):
        arena.add_entry("ada/one", file=env, env=env)
    arena.add_entry("bob/two")
    for k in range(6):
        arena.add_entry("ada/one", file=f"revision {k}")
        arena.play(f"revision {k}", "bob/two", "win1", "draw")
    arena.rate()
    with serving(make_app(store)) as address:
        tab = visit(f"{address}/ada/one")
        tab.page.set_viewport_size({"width": 360, "height": 844})
        for label, choices in (("Environment", 3), ("Revision", 6)):
            buttons = tab.page.get_by_role("group", name=label).get_by_role("button").all()
            assert len(buttons) == choices
            assert [b.inner_text() for b in buttons if (box := b.bounding_box())["x"] + box["width"] > 360] == []
    store.close()


def test_the_keyboard_reaches_the_content_at_once(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(site)
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.page.keyboard.press("Enter")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.type") == "search"


def test_a_static_export_shows_the_same_pages(
    visit: Callable[[str], Tab], arena: SyntheticArena, tmp_path: Path
) -> None:
    export_site(arena.store, tmp_path / "public")
    with serving_files(tmp_path) as address:
        tab = visit(f"{address}/public/")
        tab.page.get_by_role("region", name="Models of").get_by_role("link", name="one").click()
        tab.page.wait_for_url("**/public/model.html?repo=ada%2Fone")
        tab.page.locator("section:has(h2:text('Best wins')) a:text('Watch')").first.click()
        tab.page.wait_for_selector(".palus .controls")
        for page in ("compare", "matrix", "analytics", "status"):
            tab.open(f"{address}/public/{page}.html")
        assert tab.complaints == []


@needs_axe
@pytest.mark.parametrize("address", EVERY_PAGE)
def test_axe_finds_nothing_by_day_or_night(visit: Callable[[str], Tab], site: str, address: str) -> None:
    tab = visit(site + address.format(match=match_id(1)))
    tab.page.emulate_media(color_scheme="light", reduced_motion="reduce")
    assert tab.violations() == []
    tab.page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert tab.violations("color-contrast") == []
    tab.page.set_viewport_size({"width": 390, "height": 800})
    fits = "document.documentElement.scrollWidth <= 390"
    eventually(tab.page, lambda: tab.page.evaluate(fits), "the page is no wider than a phone")
