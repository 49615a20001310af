"""The arena's pages in a real browser, over a real server and a store whose results are known."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from browsing import Tab, end_and_home_scroll, eventually, needs_axe, needs_browser
from fastapi import APIRouter
from sqlalchemy import insert
from synthetic_arena import ENV, START_MS, SyntheticArena, match_id, sha_of
from web_server import serving, serving_files

from palus.arena.referee.replay import encode_replay
from palus.envs.recording import RecordedEvent, Recording
from palus.envs.soccer.play_stats import play_statistics
from palus.store import open_store
from palus.store.derived import play_stats
from palus.store.tables import workers
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
    tab.page.wait_for_selector("h2:text('Rated matches so far')")
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


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_row_that_has_just_changed_can_be_read_from_the_first_moment(
    visit: Callable[[str], Tab], site: str, scheme: str
) -> None:
    tab = visit(site)
    tab.page.emulate_media(color_scheme=scheme)
    tab.page.evaluate(
        """() => {
            document.querySelectorAll("tbody tr").forEach(row => row.classList.add("arrived"));
            document.getAnimations().forEach(one => { one.pause(); one.currentTime = 0; });
        }"""
    )
    background = tab.page.locator("tr.arrived").first.evaluate("row => getComputedStyle(row).backgroundColor")
    assert background not in ("rgba(0, 0, 0, 0)", "transparent")
    assert tab.violations("color-contrast") == []


def test_what_an_empty_field_says_is_no_paler_than_other_text(visit: Callable[[str], Tab], site: str) -> None:
    tab = visit(site)  # axe looks at no placeholder
    for scheme in ("light", "dark"):
        tab.page.emulate_media(color_scheme=scheme)
        of = "([selector, part]) => getComputedStyle(document.querySelector(selector), part).color"
        hint, dim = (tab.page.evaluate(of, asked) for asked in (("[type=search]", "::placeholder"), (".note", None)))
        assert hint == dim
