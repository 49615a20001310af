"""The arena's pages in a real browser while time goes by, results come in and names grow long."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import Tab, eventually, needs_browser
from sqlalchemy import insert, select, update
from synthetic_arena import START_MS, SyntheticArena, match_id, sha_of
from web_server import serving

from palus.store import open_store
from palus.store.derived import rating_points
from palus.store.tables import entries, jobs, workers
from palus.web.app import WebLimits, make_app

pytestmark = needs_browser


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


def test_the_board_and_the_competition_say_which_matches_they_count(
    visit: Callable[[str], Tab], tmp_path: Path
) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two", "cy/new"):
        arena.add_entry(repo)
    arena.play("ada/one", "bob/two", "win1", "win2")
    arena.play("cy/new", "cy/new", "draw", "draw", rated=False)
    arena.rate()
    with serving(make_app(store)) as address:
        tab = visit(address)
        assert tab.texts("h1 + p")[0].startswith("2 ranked models, 4 matches in the log, rated or not. ")
        tab.open(f"{address}/analytics?tab=competition")
        tab.page.wait_for_selector(".facts")
        assert tab.texts(".facts > div")[:2] == ["Rated matches 2 of 4 in the log", "Models 2 that played one"]
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


def test_status_counts_all_workers_and_jobs_of_which_it_lists_some(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    worker = {"isolation": "namespaces", "platform": "{}", "matches": 9, "first_seen_ms": 1, "last_seen_ms": 2**52}
    job = {"kind": "pair", "payload": "{}", "priority": 0, "attempts": 1, "created_ms": 1, "state": "leased"}
    with store.write() as connection:
        connection.execute(insert(workers), [worker | {"name": f"w{k}"} for k in range(120)])
        connection.execute(insert(jobs), [job | {"key": f"pair {k}", "worker": "w1"} for k in range(130)])
    with serving(make_app(store)) as address:
        tab = visit(f"{address}/status")
        assert {"Waiting 0 130 jobs running", "Workers 120 playing now"} <= {*tab.texts(".facts > div")}
    store.close()


def test_a_comparison_says_how_many_of_the_games_it_lists(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two"):
        arena.add_entry(repo)
    arena.play("ada/one", "bob/two", *["win1", "draw"] * 100)
    arena.rate()
    with serving(make_app(store, limits=WebLimits(fresh_s=0.0, keep_s=0.0))) as address:
        tab = visit(f"{address}/compare?a=bob/two&b=ada/one")
        text = "section:has(h2:text-is('Games between the two')) header p"
        assert tab.texts(text)[0].endswith(" over mirrored pairs.")
        arena.play("ada/one", "bob/two", "win1", "draw")
        tab.open(f"{address}/compare?a=bob/two&b=ada/one")
        assert tab.texts(text)[0].endswith(" over mirrored pairs. The newest 200 of 202 games are listed.")
    store.close()


def test_no_word_of_an_overview_is_broken_on_a_phone(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    worker = {"isolation": "namespaces", "platform": "{}", "matches": 9, "first_seen_ms": 1, "last_seen_ms": 2**52}
    with store.write() as connection:
        connection.execute(insert(workers).values(name="laptop", **worker))
    with serving(make_app(store)) as address:
        tab = visit(f"{address}/status")
        tab.page.set_viewport_size({"width": 360, "height": 740})
        one, *others = (
            tab.page.locator(f".facts dd:not(.small):text-is('{value}')").bounding_box()["height"]
            for value in ("1", "namespaces", "continuous")
        )
        assert others == [one, one]
    store.close()


def test_what_a_tag_means_is_written_where_nobody_points_at_it(visit: Callable[[str], Tab], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two"):
        arena.add_entry(repo)
    arena.play("ada/one", "bob/two", "win1", "win2")
    arena.rate()
    seen = {"isolation": "namespaces", "platform": "{}", "matches": 9, "first_seen_ms": 1, "last_seen_ms": 2**52}
    reason = "bob: match 0123456789abcdef was not played as reported: " + "x" * 60
    with store.write() as connection:
        connection.execute(insert(workers).values(name="bob/w", suspended=reason, **seen))
        connection.execute(insert(workers).values(name="cy/w", **seen))
    with serving(make_app(store)) as address:
        tab = visit(f"{address}/status")
        tab.page.set_viewport_size({"width": 360, "height": 740})
        states = tab.texts("[aria-label='Workers'] tbody td:nth-child(2)")
        assert states == [f"suspended {reason}", "playing only matches that can be played again"]
        assert tab.page.evaluate("document.documentElement.scrollWidth <= 360")
        for page in ("/", "/ada/one"):
            tab.open(address + page)
            assert "elow 20 games, or the interval is wider than ± 100." in tab.texts("main")[0]
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
