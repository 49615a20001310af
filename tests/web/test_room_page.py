"""The demo room in a real browser: choose, watch, share, play."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Notes, Tab, browsing, eventually, needs_axe, needs_browser
from synthetic_arena import SyntheticArena
from web_server import serving

from palus.store import open_store
from palus.web.app import make_app
from palus.web.live import RoomLimits
from palus.web.room import Rooms

pytestmark = needs_browser

GAME = "window.palusRoom && window.palusRoom.game"
MOVES = [
    ("w", "Forward", 9, (1, 0)),
    ("ArrowDown", "Backward", 18, (-1, 0)),
    ("d", "Step right", 3, (0, 1)),
]
"""Key, name of its button, action code, and the direction ahead and to the right in which the player must go."""


class RoomServer:
    """An arena whose room can be looked into."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(folder)
        self.rooms = Rooms(RoomLimits(matches=4, celebration_s=0.2))
        self.app = make_app(self.store, rooms=self.rooms)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RoomServer, str]]:
    made = RoomServer(tmp_path_factory.mktemp("store"))
    with serving(made.app) as address:
        yield made, address
    made.store.engine.dispose()


@pytest.fixture(scope="module")
def room_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browsing(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


class RoomTab(Tab):
    """The room's page in a tab."""

    def view(self, expression: str) -> Any:
        """An expression over `view`, what the match shows now; None before it began."""
        return self.page.evaluate(
            f"(game => {{ try {{ const view = game.view; return {expression} }} catch {{ return null }} }})({GAME})"
        )

    def wait_for(self, expression: str) -> Any:
        """Until an expression over `view` is true; gives it. Polled: the content policy forbids `eval`."""
        return eventually(self.page, lambda: self.view(expression), expression)


@pytest.fixture
def open_tab(room_browser: Any, server: tuple[RoomServer, str]) -> Iterator[Any]:
    opened: list[RoomTab] = []

    def open_one(query: str = "", address: str = server[1]) -> RoomTab:
        opened.append(RoomTab(room_browser, f"{address}/room{query}"))
        return opened[-1]

    yield open_one
    for tab in opened:
        tab.page.close()
        assert [text for text in tab.complaints if "GL Driver Message" not in text] == []


def until_running(tab: RoomTab, rooms: Rooms, matches: int) -> None:
    eventually(tab.page, lambda: rooms.running == matches, f"{matches} matches are running")


def steady(tab: RoomTab, expression: str) -> Any:
    """The value of an expression over `view` once it has stopped to change."""

    def same_after_a_while() -> Any:
        before = tab.view(expression)
        tab.page.wait_for_timeout(500)
        return before if tab.view(expression) == before else None

    return eventually(tab.page, same_after_a_while, f"{expression} stands still")


def test_choose_two_players_watch_a_goal_and_leave(open_tab: Any, server: tuple[RoomServer, str]) -> None:
    tab = open_tab()
    tab.page.get_by_label("Blue", exact=True).fill("palus/goalie-striker")
    tab.page.get_by_label("Purple", exact=True).fill("palus/random")
    tab.page.get_by_label("Seed").fill("4")
    notes = Notes(tab.page, ".banner strong", ".palus [aria-live=polite]")
    tab.page.get_by_role("button", name="Start").click()
    tab.wait_for("view.score[0] === 1 && view.score[1] === 0")
    notes.wait_for(".banner strong", "GOAL!")
    notes.wait_for(".palus [aria-live=polite]", "Goal for Blue, palus/goalie-striker. 1 to 0.")
    tab.page.wait_for_selector(".events .goal")
    assert tab.texts(".events .goal")[0].split(" ", 1)[1] == "Goal for Blue, palus/goalie-striker 1:0"
    assert tab.page.url.endswith("/room?blue=palus%2Fgoalie-striker&purple=palus%2Frandom&seed=4")
    until_running(tab, server[0].rooms, 1)
    tab.page.goto("about:blank")
    until_running(tab, server[0].rooms, 0)


def test_a_link_shows_the_same_match_to_whoever_opens_it(open_tab: Any) -> None:
    frames = "view.match.ticks >= 60 && view.match.channels.map(c => [...c.slice(0, 61)])"
    query = "?blue=palus/ball-chaser&purple=palus/goalie-striker&seed=11"
    sent, received = (open_tab(query).wait_for(frames) for _ in range(2))
    assert sent == received
    assert open_tab(query.replace("11", "12")).wait_for(frames) != sent


def test_a_model_is_played_against_from_its_page_with_one_key(open_tab: Any, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    SyntheticArena(store).add_entry("palus/ball-chaser", source="house")
    with serving(make_app(store)) as address:
        tab = open_tab("", address)
        tab.open(f"{address}/palus/ball-chaser")
        tab.page.get_by_role("link", name="Play against it").click()
        tab.page.wait_for_selector(".room-form")
        assert tab.page.get_by_label("Purple", exact=True).input_value() == "palus/ball-chaser"
        assert tab.page.get_by_label("Blue", exact=True).input_value() == "palus/goalie-striker"
        assert tab.page.get_by_label("I play").input_value() == "0"
        tab.page.wait_for_selector("button[type=submit]:focus")
        tab.page.keyboard.press("Enter")
        tab.wait_for("view.match.ticks > 5")
        assert tab.texts(".scoreboard .name") == ["You & palus/goalie-striker", "palus/ball-chaser"]
    store.close()


def test_a_person_moves_their_player_with_the_keyboard(open_tab: Any) -> None:
    tab = open_tab("?blue=palus/random&purple=palus/random&seed=3&play=1")
    assert tab.page.get_by_label("I play").input_value() == "0"
    tab.page.get_by_role("button", name="Start").click()
    tab.wait_for("view.match.ticks > 10")
    assert tab.texts(".scoreboard .name")[0] == "You & palus/random"
    for key, glyph, action, (ahead, right) in MOVES:
        tab.page.keyboard.down(key)
        button = tab.page.get_by_role("button", name=glyph)
        assert button.get_attribute("aria-pressed") == "true"
        held = f"view.match.actions[0].slice(0, view.match.decisions).slice(-8).every(action => action === {action})"
        tab.wait_for(f"view.match.ticks > 60 && {held}")
        last = "const n = view.match.ticks; return [n - 25, n].map(t => view.match.channels.slice(0, 3).map(c => c[t]))"
        (x, z, yaw), (new_x, new_z, _) = tab.view(f"(() => {{ {last} }})()")
        tab.page.keyboard.up(key)
        assert button.get_attribute("aria-pressed") == "false"
        sin, cos = math.sin(math.radians(yaw)), math.cos(math.radians(yaw))
        went_ahead = (new_x - x) * sin + (new_z - z) * cos
        went_right = (new_x - x) * cos - (new_z - z) * sin
        assert ahead * went_ahead + right * went_right > 0.2, key


def test_buttons_under_the_pitch_do_what_keys_do(open_tab: Any) -> None:
    tab = open_tab("?blue=palus/random&purple=palus/random&seed=3&play=2")
    tab.page.get_by_role("button", name="Start").click()
    tab.wait_for("view.match.ticks > 5 && view.swapped")  # who plays purple sees it on the left
    box = tab.page.get_by_role("button", name="Turn right").bounding_box()
    assert min(box["width"], box["height"]) >= 44
    tab.page.mouse.move(box["x"] + 20, box["y"] + 20)
    tab.page.mouse.down()
    tab.wait_for("view.match.actions[1][view.match.decisions - 1] === 2")
    tab.page.mouse.up()
    tab.wait_for("view.match.actions[1][view.match.decisions - 1] === 0")


def test_pause_sensors_and_3_d(open_tab: Any) -> None:
    tab = open_tab("?blue=palus/random&purple=palus/random&seed=5")
    tab.wait_for("view.match.ticks > 5")
    tab.page.keyboard.press("2")
    tab.wait_for("view.raysOf === 1")
    assert tab.page.locator(".legend:not([hidden]) h2").inner_text().lower() == "what purple a senses"
    tab.page.keyboard.press("Space")
    at = steady(tab, "view.match.ticks")
    tab.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")  # as over plain HTTP
    tab.page.get_by_role("button", name="Copy a link to this match").click()
    tab.page.wait_for_selector(".notice.shown:text-is('The address bar holds the link to this match')")
    drawn = """new Promise(done => {
        const { setTransform } = CanvasRenderingContext2D.prototype;
        let count = 0;
        CanvasRenderingContext2D.prototype.setTransform = function (...all) {
            count += 1;
            return setTransform.apply(this, all);
        };
        setTimeout(() => done(count), 200);
    })"""
    assert tab.page.evaluate(drawn) == 0, "nothing moves, so nothing is drawn"
    held = "new KeyboardEvent('keydown', { code: 'Space', repeat: true, bubbles: true, cancelable: true })"
    assert tab.page.evaluate(f"document.body.dispatchEvent({held})") is False, "the page does not scroll"
    tab.page.get_by_role("button", name="3-D view").click()
    tab.wait_for("view.solid")
    assert tab.page.locator("canvas.solid").is_visible()
    tab.page.get_by_role("button", name="Go on").click()
    tab.wait_for(f"view.match.ticks > {at}")
    with tab.page.expect_navigation():  # after Back the match begins anew
        tab.page.evaluate("window.dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    tab.wait_for("view.match.ticks > 5")


def test_the_result_of_a_match_stands_on_the_page(open_tab: Any, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    short = Rooms(RoomLimits(duration_ticks=40, celebration_s=0.0))
    with serving(make_app(store, rooms=short)) as address:
        tab = open_tab("?blue=palus/random&purple=palus/random&seed=5", address)
        tab.wait_for("view.player.finished")
        tab.page.wait_for_selector(".notice.shown:text-is('Full time · 0:0')")
        tab.page.wait_for_selector(".palus [aria-live=polite]:text-is('The match is over, 0 to 0.')", state="attached")
        assert tab.page.get_by_role("button", name="Pause").is_disabled()
        tab.page.get_by_role("button", name="Play this match again").click()
        tab.wait_for("!view.player.finished && view.match.ticks > 0")
    store.engine.dispose()


def test_who_cannot_play_is_explained(open_tab: Any) -> None:
    tab = open_tab("?blue=ada/nobody&purple=palus/random")
    alert = tab.page.get_by_role("alert")
    alert.wait_for()
    assert alert.inner_text() == "ada/nobody does not play SoccerTwos here. Choose a player from the list."


STRIKERS = "?env=StrikersVsGoalie&blue=palus/random&purple=palus/goalie-striker&seed=3"


def pose(tab: RoomTab, agent: int) -> list[float]:
    """Newest (x, z, yaw) of an agent."""
    found: list[float] = tab.view(f"[0, 1, 2].map(c => view.match.channels[3 * {agent} + c][view.match.ticks])")
    return found


@pytest.mark.parametrize(
    ("play", "seat", "own", "names"),
    [
        (3, "Player 3, Purple goalie", "goalie", ["palus/random", "You"]),
        (2, "Player 2, Blue striker B", "striker B", ["You & palus/random", "palus/goalie-striker"]),
    ],
)
def test_a_person_takes_a_seat_on_either_side_of_an_asymmetric_game(
    open_tab: Any, play: int, seat: str, own: str, names: list[str]
) -> None:
    tab = open_tab(f"{STRIKERS}&play={play}")
    assert tab.page.get_by_label("Game").input_value() == "StrikersVsGoalie"
    assert tab.page.get_by_label("I play").locator("option:checked").inner_text() == seat
    tab.page.get_by_role("button", name="Start").click()
    tab.wait_for("view.match.ticks > 10")
    assert tab.texts(".scoreboard .name") == names
    assert tab.texts(".agent-name") == ["Blue striker A", "Blue striker B", "Purple goalie"]
    assert tab.view("view.swapped") == (own == "goalie")  # who plays purple sees its goal on the left
    golden = "[...document.querySelector('.stage canvas').getContext('2d').getImageData(0, 0, 2000, 2000).data]"
    golden += ".filter((v, i, all) => i % 4 === 0 && v === 255 && all[i + 1] === 215 && all[i + 2] === 94).length"
    assert tab.page.evaluate(golden) > 20  # the ring around the player that is the reader's
    agent = play - 1
    before = pose(tab, agent)
    right = [math.cos(math.radians(before[2])), -math.sin(math.radians(before[2])), 0]
    tab.page.keyboard.down("d")
    tab.wait_for(f"view.match.actions[{agent}][view.match.decisions - 1] === 3")
    eventually(tab.page, lambda: np.subtract(pose(tab, agent), before) @ right > 2, "the player has gone to its right")
    tab.page.keyboard.up("d")
    tab.page.keyboard.press("3")
    senses = ["ball", "own goal", "wall", "opponent", "nothing"]
    eventually(tab.page, lambda: tab.texts(".legend:not([hidden]) li") == senses, "what the goalie senses")


def test_another_game_is_chosen_in_the_form(open_tab: Any) -> None:
    tab = open_tab()
    assert tab.page.get_by_label("I play").locator("option").count() == 5
    tab.page.get_by_label("Game").select_option("StrikersVsGoalie")
    eventually(tab.page, lambda: tab.page.get_by_label("I play").locator("option").count() == 4, "three seats")
    assert tab.page.url.endswith("/room?env=StrikersVsGoalie")
    tab.page.get_by_role("button", name="Start").click()
    tab.wait_for("view.match.ticks > 5")
    assert tab.view("view.match.pitch.pitch") == "strikers-vs-goalie/1"
    tab.open(tab.page.url.replace("StrikersVsGoalie", "Chess"))
    chess = "Chess is not played in this room; there are SoccerTwos and StrikersVsGoalie."
    assert chess in tab.page.get_by_role("alert").inner_text()


@needs_axe
def test_axe_finds_nothing_wrong(open_tab: Any) -> None:
    tab = open_tab("?blue=palus/random&purple=palus/random&seed=5&play=3")
    assert tab.violations() == []
    tab.page.get_by_role("button", name="Start").click()
    tab.wait_for("view.match.ticks > 5")
    tab.page.keyboard.press("1")
    assert tab.violations() == []
