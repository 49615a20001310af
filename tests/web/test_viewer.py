"""The built viewer in a real browser, opened from disk as readers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Notes, needs_browser
from viewing import OpenPage, recording

from palus.arena.referee.replay import encode_replay
from palus.envs.recording import RecordedEvent

pytestmark = needs_browser
TOUCH_TARGET_PX = 44

BLUE_A_FORWARD = [
    (0, 0.19966),
    (2, 0.86163),
    (2, 0.86163),
    (5, 0.39155),
    (3, 0.75400),
    (3, 0.59614),
    (3, 0.59614),
    (3, 0.47151),
    (3, 0.47151),
    (3, 0.40461),
    (3, 0.40461),
]
BLUE_A_REVERSE = [(1, 0.84363), (4, 0.31025), (3, 0.49555)]
PURPLE_A_FORWARD = [
    (6, 1.0),
    (6, 1.0),
    (4, 0.77510),
    (5, 0.39155),
    (3, 0.49271),
    (0, 0.17166),
    (3, 0.34095),
    (0, 0.16274),
    (3, 0.26967),
    (3, 0.57782),
    (3, 0.23141),
]
PURPLE_A_REVERSE = [(1, 0.44280), (3, 0.28341), (1, 0.49460)]

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


def rays(shown: OpenPage, agent: int) -> list[tuple[int, float]]:
    return [(ray["slot"], ray["fraction"]) for ray in shown.page.evaluate(f"window.palus.rays({agent})")]


def test_the_rays_on_screen_are_those_of_the_specification(open_page: Any) -> None:
    shown = open_page(recording())
    for agent, expected in ((0, BLUE_A_FORWARD + BLUE_A_REVERSE), (1, PURPLE_A_FORWARD + PURPLE_A_REVERSE)):
        found = rays(shown, agent)
        assert [slot for slot, _ in found] == [slot for slot, _ in expected]
        np.testing.assert_allclose([f for _, f in found], [f for _, f in expected], atol=1.5e-5)


@pytest.mark.parametrize(
    ("agent", "ball", "ray", "expected"),
    [
        ([0, 0, 90], (4, 0.5), 0, (0, 0.156303)),
        ([0, 0, 90], (1.13, 0), 0, (0, 0.006157)),
        ([0, 0, 90], (1.0, 0), 0, (2, 0.84280)),
        ([0, 7.0, 0], (0, -7), 0, (3, 0.000404)),
        ([0, 7.009, 0], (0, -7), 0, (6, 1.0)),
    ],
    ids=["ball off centre", "ball touching", "ball overlapping is not seen", "wall ahead", "wall touched is not seen"],
)
def test_single_rays_match_the_specification(
    open_page: Any, agent: list[float], ball: tuple[float, float], ray: int, expected: tuple[int, float]
) -> None:
    others = [-12, -5, 0, -12, 5, 0, -14, -5, 0]
    slot, fraction = rays(open_page(recording([*agent, *others, *ball], ticks=5)), 0)[ray]
    assert slot == expected[0]
    assert fraction == pytest.approx(expected[1], abs=2e-6)


def test_the_viewer_shows_the_recorded_places(open_page: Any) -> None:
    shown = open_page(recording(drift_m=0.04), link="#t=1.5")
    assert shown.view("[12, 13, 3, 5].map(c => view.match.channels[c][75])") == [8, 0, 8, -90]
    assert shown.view("view.match.seed") == str(2**60 + 1)
    chosen = shown.page.locator(".card").first.locator(".chosen").all_inner_texts()
    assert chosen == ["↑", "←", "·"]
    heights = shown.page.locator(".card").first.locator(".choice i").evaluate_all("all => all.map(i => i.style.height)")
    assert heights == ["0%", "100%", "0%", "50%", "0%", "50%", "20%", "30%", "50%"]


def test_keys_play_pause_step_and_seek(open_page: Any) -> None:
    shown = open_page(recording())
    assert shown.view("[view.player.playing, view.player.time]") == [False, 0]
    shown.press("Space")
    shown.wait_for("view.player.time > 0.1")
    shown.press("Space")
    paused_at = shown.view("view.player.time")
    shown.page.wait_for_timeout(100)
    assert shown.view("[view.player.playing, view.player.time]") == [False, paused_at]
    shown.press("Home", "ArrowRight", ".", ".", ",")
    assert shown.view("view.player.tick") == pytest.approx(51)
    shown.press("End", "Shift+ArrowLeft")
    assert shown.view("view.player.time") == 0
    shown.press("ArrowUp", "ArrowUp")
    assert shown.view("view.player.speed") == 4
    assert shown.page.get_by_label("Speed").input_value() == "4"
    shown.press("3", "s", "f", "t")
    assert shown.view("[view.raysOf, view.swapped, view.follow, view.trails]") == [2, True, True, False]
    shown.press("?")
    assert shown.page.get_by_role("dialog").is_visible()
    shown.press("Escape")
    assert not shown.page.get_by_role("dialog").is_visible()


def test_an_address_that_the_browser_does_not_take_stops_nothing(open_page: Any) -> None:
    """Safari raises at the hundredth address of half a minute; dragging the slider made one with every picture."""
    shown = open_page(recording())
    shown.page.evaluate(
        "history.replaceState = () => { window.tries = (window.tries ?? 0) + 1; throw new Error(); }; 0"
    )
    for _ in range(8):
        shown.press(".")
    assert shown.page.evaluate("window.tries") <= 4
    shown.press("Space")
    shown.wait_for("view.player.time > 0.3")
    shown.page.evaluate("delete history.replaceState")
    shown.press("Space")
    shown.wait_for_script("location.hash.includes('t=')")


def test_buttons_and_slider_do_what_keys_do(open_page: Any) -> None:
    shown = open_page(recording())
    shown.page.get_by_label("Moment of the match").fill("2.5")
    assert shown.view("view.player.tick") == 125
    shown.page.get_by_role("button", name="Sensors").click()
    shown.settle()
    assert shown.view("view.raysOf") == 0
    assert shown.page.locator(".legend h2").text_content() == "What Blue A senses"
    shown.page.get_by_role("button", name="Play", exact=True).first.click()
    shown.wait_for("view.player.playing")


def test_a_goal_is_scored_announced_and_listed(open_page: Any) -> None:
    events = (RecordedEvent(20, "kick", 0, 2), RecordedEvent(50, "goal", 0, -1))
    shown = open_page(recording(events=events, ticks=50))
    assert shown.page.locator(".events li").all_inner_texts() == [
        "0:00.4\nKick by Blue B",
        "0:01.0\nGoal for Blue, Ada\n1:0",
    ]
    assert shown.view("view.score") == [0, 0]
    notes = Notes(shown.page, ".banner.shown", "[aria-live=polite]")
    shown.press("End", "ArrowLeft", "ArrowUp", "ArrowUp", "ArrowUp", "Space")
    shown.wait_for("view.score[0] === 1")
    notes.wait_for(".banner.shown", "GOAL! Blue · Ada · 1:0")
    notes.wait_for("[aria-live=polite]", "Goal for Blue, Ada. 1 to 0.")
    shown.wait_for("!view.player.playing")
    shown.press("s")
    notes.wait_for(".banner.shown", "GOAL! Blue · Ada · 0:1")  # as the scoreboard above it
    shown.settle()
    assert shown.page.get_by_role("button", name="Play again").is_visible()


def test_a_link_reproduces_what_its_sender_saw(open_page: Any) -> None:
    match = recording()
    sender = open_page(match, recording(names=("Lin", "Joan")), link="#match=2&t=3.2&rays=4&swap=1&colours=contrast")
    state = "[view.matchIndex, view.player.time, view.raysOf, view.swapped, view.follow, view.palette.id]"
    assert sender.view(state) == [1, 3.2, 3, True, False, "contrast"]
    assert sender.page.locator(".name").all_inner_texts() == ["Lin", "Joan"]
    sender.press("ArrowLeft", "f")
    sender.wait_for_script("location.hash.includes('follow')")
    link = sender.page.evaluate("location.hash")
    assert link == "#match=2&t=2.2&rays=4&swap=1&follow=1&colours=contrast"
    receiver = open_page(match, match, link=link)
    assert receiver.view(state) == [1, 2.2, 3, True, True, "contrast"]


def test_a_reel_plays_on_to_its_next_match(open_page: Any) -> None:
    shown = open_page(recording(ticks=20), recording(ticks=20, names=("Lin", "Joan")), link="?autoplay")
    shown.wait_for("view.matchIndex === 1 && !view.player.playing")
    assert shown.view("view.player.time") == 0.4


def test_names_from_strangers_are_text(open_page: Any) -> None:
    goal = (RecordedEvent(10, "goal", 0, -1),)
    match = recording(names=(HOSTILE, HOSTILE), events=goal, ticks=20)
    shown = open_page(match, match, link="#t=0.2", title=HOSTILE)
    assert shown.page.locator(".name").first.inner_text() == HOSTILE
    assert shown.page.title() == HOSTILE
    assert shown.page.evaluate("[window.hacked, document.images.length, document.scripts.length]") == [None, 0, 2]


def test_a_damaged_replay_shows_what_to_do(browser: Any, tmp_path: Path) -> None:
    data = encode_replay([recording()])
    for broken, message in (
        (b"hello", "not a palus replay"),
        (data[:-5], "cut short"),
        (data[:-5] + b"\xff" * 5, "damaged"),
        (data[:8] + b"\x07\x00" + data[10:], "format 7"),
    ):
        shown = OpenPage(browser, tmp_path, broken)
        assert message in shown.page.get_by_role("alert").inner_text()
        shown.page.close()
        assert shown.complaints == []


def test_every_control_has_a_name_and_room_for_a_finger(open_page: Any) -> None:
    shown = open_page(recording(), recording())
    for button in shown.page.locator("button:visible, select:visible, input:visible").all():
        name = button.get_attribute("aria-label") or button.inner_text()
        assert name.strip(), button.evaluate("b => b.outerHTML")
    for control in shown.page.locator(".controls button:visible, .controls select, .seekbar").all():
        box = control.bounding_box()
        assert min(box["width"], box["height"]) >= TOUCH_TARGET_PX


def test_a_phone_sees_the_pitch_upright_without_scrolling_sideways(open_page: Any) -> None:
    shown = open_page(recording())
    shown.page.set_viewport_size({"width": 390, "height": 844})
    shown.settle()
    box = shown.page.locator(".stage").bounding_box()
    assert box["height"] > box["width"]
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_reduced_motion_keeps_the_camera_still(open_page: Any) -> None:
    shown = open_page(recording(drift_m=0.04), link="#t=1&follow=1")
    picture = "document.querySelector('canvas').toDataURL()"
    followed = shown.page.evaluate(picture)
    shown.page.emulate_media(reduced_motion="reduce")
    shown.wait_for_script(f"{picture} !== '{followed}'")
    shown.settle()
    still = shown.page.evaluate(picture)
    shown.press("f")
    shown.wait_for("!view.follow")
    shown.page.wait_for_timeout(50)
    assert shown.page.evaluate(picture) == still
