"""The viewer beyond playback: 3-D, what an agent may do, links, video, and a tour with the keyboard alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import AXE, Notes, needs_axe, needs_browser
from viewing import OpenPage, recording

from palus.envs.recording import RecordedEvent

pytestmark = needs_browser

GOAL = (RecordedEvent(20, "kick", 0, 2), RecordedEvent(50, "goal", 0, -1))
PICTURE = "document.querySelector('.stage canvas:not([hidden])').toDataURL()"


def violations(shown: OpenPage) -> list[str]:
    """Ids of axe's rules that the page breaks. The script of axe comes from outside: the page's policy must be told."""
    shown.page.evaluate(f"{AXE.read_text()};0")
    found = shown.page.evaluate("axe.run(document).then(result => result.violations.map(fault => fault.id))")
    assert isinstance(found, list)
    return found


def test_every_function_is_reached_with_the_keyboard_alone(open_page: Any) -> None:
    match = recording(events=GOAL, ticks=100)
    shown = open_page(match, recording(names=("Lin", "Joan")))
    visited = [""]
    for _ in range(60):
        shown.page.keyboard.press("Tab")
        label = "(e => e === document.body ? '' : e.ariaLabel || e.innerText)(document.activeElement)"
        visited.append(" ".join(shown.page.evaluate(label).split()))
        if visited[-1] == "":
            break
    for name in ("Play", "Moment of the match", "Speed", "Sensors", "Trails", "Follow the ball", "Swap sides"):
        assert name in visited
    for name in ("Record a video", "Copy a link to this moment", "Full screen", "Keys and help"):
        assert name in visited
    assert any(name.startswith("Blue A") for name in visited), visited
    assert any("Goal for Blue" in name for name in visited), visited
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    shown.page.get_by_role("button", name="Trails").focus()
    shown.press("Shift+Tab", "Tab")
    assert shown.page.evaluate(outline) == "solid"


def test_a_chosen_agents_choices_stand_on_the_pitch(open_page: Any) -> None:
    shown = open_page(recording(), link="#t=1&rays=1")
    with_choices = shown.page.evaluate(PICTURE)
    before = shown.view("view.match.probabilities[1][10]")
    # The forward arrow of blue A is as full as forward is probable: empty it, and the picture changes.
    shown.page.evaluate("window.palus.viewer.view.match.probabilities[1].fill(20)")
    shown.press("c", "c")
    assert before == 255
    assert shown.page.evaluate(PICTURE) != with_choices


def test_a_link_made_in_a_celebration_shows_the_same_celebration(open_page: Any) -> None:
    match = recording(events=GOAL, ticks=100, drift_m=0.05)
    sender = open_page(match, link="#t=0.9&trails=0")
    sender.press("Space")
    sender.click_when("view.player.celebration && view.player.celebration.elapsed > 0.7", "Pause")
    sender.wait_for_script("location.hash.includes('after=')")
    link = sender.page.evaluate("location.hash")
    assert link.startswith("#match=1&t=1&after=") and link.endswith("&trails=0")
    receiver = open_page(match, link=link)
    elapsed = "view.player.celebration.elapsed"
    assert receiver.view(elapsed) == pytest.approx(sender.view(elapsed), abs=0.006)  # links carry hundredths
    assert receiver.page.evaluate("location.hash") == link


def test_the_3_d_view_opens_turns_and_travels_in_links(open_page: Any) -> None:
    match = recording(drift_m=0.04)
    shown = open_page(match, link="#t=1&rays=1", three_d=True)
    flat = shown.page.evaluate(PICTURE)
    shown.page.get_by_role("button", name="3-D view").click()
    shown.wait_for("view.solid")
    shown.settle()
    assert shown.page.locator("canvas.solid").is_visible()
    assert shown.page.evaluate(PICTURE) != flat
    shown.press("]", "PageUp", "i")
    shown.wait_for_script("location.hash.includes('orbit=10_58_')")
    link = shown.page.evaluate("location.hash")
    receiver = open_page(match, link=link, three_d=True)
    receiver.wait_for("view.solid")
    receiver.wait_for_script(f"location.hash === '{link}'")
    receiver.page.evaluate("location.hash = '#match=1&t=1&orbit=-30_40_20'")  # another link, in the same page
    receiver.press(".")
    receiver.wait_for_script("location.hash === '#match=1&t=1.02&orbit=-30_40_20'")
    shown.press("d")
    shown.wait_for("!view.solid")
    shown.settle()
    assert shown.page.evaluate(PICTURE) == flat
    shown.page.evaluate("""() => {
        const { drawImage } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.drawImage = function (source, ...all) {
            if (source.isConnected) window.filmed = source.className;
            return drawImage.call(this, source, ...all);
        };
    }""")
    shown.press("v", "d")
    shown.wait_for_script("window.filmed === 'solid'")  # a video goes on with what is seen


def test_without_3_d_in_the_file_nothing_offers_it(open_page: Any) -> None:
    shown = open_page(recording(), link="#t=1&orbit=0_40_20")
    assert not shown.page.get_by_role("button", name="3-D view").is_visible()
    shown.press("d", "?")
    assert shown.view("view.solid") is False
    assert "3-D" not in shown.page.get_by_role("dialog").inner_text()


def test_a_video_of_the_match_is_saved(open_page: Any, tmp_path: Path) -> None:
    shown = open_page(recording(ticks=40, events=(RecordedEvent(40, "goal", 1, -1),)))
    with shown.page.expect_download() as saved:
        shown.press("v")
        shown.wait_for("view.filming && view.player.playing")
    assert saved.value.suggested_filename == "Ada vs Grace.webm"
    saved.value.save_as(tmp_path / "match.webm")
    film = (tmp_path / "match.webm").read_bytes()
    assert film[:4] == b"\x1a\x45\xdf\xa3"  # the first bytes of every WebM file
    assert len(film) > 5000
    shown.wait_for("!view.filming")


def test_the_end_is_announced(open_page: Any) -> None:
    shown = open_page(recording(ticks=10))
    notes = Notes(shown.page, "[aria-live=polite]")
    shown.press("Space")
    notes.wait_for("[aria-live=polite]", "The match is over, 0 to 0.")


@needs_axe
@pytest.mark.parametrize("link", ["#t=0", "#t=1&rays=2&colours=contrast", "#t=1&orbit=0_40_20"])
def test_axe_finds_nothing_wrong(open_page: Any, link: str) -> None:
    shown = open_page(recording(events=GOAL), recording(), link=link, three_d="orbit" in link)
    shown.settle()
    assert violations(shown) == []
    shown.press("?")
    assert violations(shown) == []
