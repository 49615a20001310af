"""The viewer draws what a game declares of its pitch: StrikersVsGoalie, which has another than SoccerTwos."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from browsing import needs_browser
from matplotlib.image import imread
from scenes import set_scene
from viewing import OpenPage, recording

from palus.envs.protocol import observe_slots
from palus.envs.recording import RecordedEvent
from palus.envs.soccer.env import StrikersVsGoalie
from palus.envs.soccer.pitch import STRIKERS_VS_GOALIE

pytestmark = needs_browser

# (x, z, yaw) of both strikers and of the goalie, then the ball.
SCENE = [0, 0, 90, -5, 5, 90, 8, -3, -90, 5, 0]
PLACES = [(0, 0), (-5, 5), (8, -3)]
HALF_X, HALF_Z = 18.1, 8.55  # metres that the flat view shows


def strikers(frame: list[float] = SCENE, **more: Any) -> Any:
    return recording(frame, env_id="StrikersVsGoalie", **more)


def simulated(frame: list[float], agent: int) -> list[tuple[int, float]]:
    """(slot, fraction) of the rays of an agent's observation; the slot behind "nothing" for what it has no tag for."""
    env = StrikersVsGoalie(1, record=True)
    env.reset(np.array([1]))
    set_scene(env, 0, np.reshape(frame[:9], (3, 3)).tolist(), (frame[9], frame[10]))
    role = STRIKERS_VS_GOALIE.places[agent].role
    behavior = env.spec.behavior(role.behavior)
    own = np.arange(3)[STRIKERS_VS_GOALIE.agents_of(role)] == agent
    seen, _ = observe_slots(env, behavior, own[None])
    size = len(role.tags) + 2
    rays = np.concatenate([rows[0].reshape(3, -1, size)[-1] for rows in seen.values()])
    slots = [int(np.argmax(ray[:-1])) if ray[:-1].any() else size - 1 for ray in rays]
    return list(zip(slots, rays[:, -1].tolist(), strict=True))


def is_blue(colour: tuple[int, ...]) -> bool:
    return colour[2] > colour[0] + 60 and colour[1] > 1.2 * colour[0]


def is_purple(colour: tuple[int, ...]) -> bool:
    return colour[2] > colour[1] + 60 and colour[0] > 1.2 * colour[1]


def is_grass(colour: tuple[int, ...]) -> bool:
    return colour[1] > 1.2 * max(colour[0], colour[2])


def pixels(shown: OpenPage, points: list[tuple[float, float]], metres_high: float) -> list[tuple[int, ...]]:
    """Colours of the shown picture at (x, z); metres_high: how much of the field it shows from top to bottom."""
    png = shown.page.locator(".stage canvas:visible").screenshot()
    picture = np.rint(255 * imread(io.BytesIO(png), format="png")).astype(int)
    height, width, _ = picture.shape
    scale = height / metres_high
    return [tuple(picture[round(height / 2 - z * scale), round(width / 2 + x * scale), :3].tolist()) for x, z in points]


@pytest.mark.parametrize(
    "frame",
    [SCENE, [-14.6, 0, -90, -5, 5, 90, 8, 0, 33, 5, 0], [-12, 3, -80, -13, -5, -100, -14, 3, 10, -14.2, -2]],
    ids=["middle", "a striker inside the blocker sees a net without a tag", "all before the blocker"],
)
def test_the_rays_on_screen_are_those_of_the_simulation(open_page: Any, frame: list[float]) -> None:
    shown = open_page(strikers(frame, ticks=5))
    for agent in range(3):
        found = [(ray["slot"], ray["fraction"]) for ray in shown.page.evaluate(f"window.palus.rays({agent})")]
        expected = simulated(frame, agent)
        assert [slot for slot, _ in found] == [slot for slot, _ in expected]
        np.testing.assert_allclose([f for _, f in found], [f for _, f in expected], atol=2e-5)


def test_both_strikers_the_goalie_and_the_wall_before_the_goal_are_drawn(open_page: Any) -> None:
    shown = open_page(strikers())
    box = shown.page.locator(".stage canvas:visible").bounding_box()
    metres_high = max(2 * HALF_Z, 2 * HALF_X * box["height"] / box["width"])
    beside = [(x - 0.33, z - 0.33) for x, z in PLACES]  # between the ring and the edge
    wall, open_goal, nobody = (-15.25, 2.0), (15.2, 2.2), (-8.33, -6.33)
    found = pixels(shown, [*beside, wall, open_goal, nobody], metres_high)
    assert [is_blue(colour) for colour in found] == [True, True, False, False, False, False]
    assert [is_purple(colour) for colour in found] == [False, False, True, False, False, False]
    assert [is_grass(colour) for colour in found] == [False, False, False, False, True, True]
    assert is_grass(pixels(open_page(recording()), [wall], metres_high)[0])  # nothing closes a goal there
    shown.press("c")  # the goalie's team in its other colour
    assert pixels(shown, beside[2:], metres_high)[0][2] < 80


def test_they_stand_in_the_3_d_view_too(open_page: Any) -> None:
    shown = open_page(strikers(), link="#t=0&orbit=0_89_27", three_d=True)
    shown.wait_for("view.solid")
    shown.settle()
    at_the_top = 2 * (27 - 1) * np.tan(np.radians(20))  # bodies are a metre high
    beside = [(x - 0.3 if x else 0.3, z + 0.3 if z < 0 else z - 0.3) for x, z in PLACES]
    found = pixels(shown, beside, at_the_top)
    assert [is_blue(colour) for colour in found] == [True, True, False], found
    assert [is_purple(colour) for colour in found] == [False, False, True], found
    (wall,) = pixels(shown, [(-15.25, 2.0)], 2 * (27 - 2.5) * np.tan(np.radians(20)))
    assert max(wall) - min(wall) < 60 and min(wall) > 70, wall  # grey; grass would be green


def test_numbers_stand_above_all_players_in_3_d(open_page: Any) -> None:
    far = (-5, 2.5)  # beyond the middle, and its number over the grass
    frame = [0, 0, 90, *far, 90, 8, -3, -90, 5, 0]
    shown = open_page(strikers(frame), link="#t=0&orbit=0_30_27", three_d=True)
    shown.wait_for("view.solid")
    shown.settle()
    elevation, half_view = np.radians(30), np.tan(np.radians(20))
    eye = 27 * np.array([0, np.sin(elevation), np.cos(elevation)])
    ahead = (np.array([0, 0.4, 0]) - eye) / np.linalg.norm([0, 0.4, 0] - eye)
    up = np.cross([1, 0, 0], ahead)
    numbers = np.array([(x, 1.75, -z) for x, z in (far, *PLACES[::2])]) - eye
    seen_at = np.stack([numbers[:, 0], numbers @ up], axis=1) / (numbers @ ahead)[:, None]
    # a dark disc with a white digit, wherever on the pitch: no grass shines through
    assert all(max(c) - min(c) < 40 for c in pixels(shown, seen_at.tolist(), 2 * half_view))


def test_names_numbers_and_senses_are_those_of_the_game(open_page: Any) -> None:
    events = (RecordedEvent(20, "kick", 1, 2), RecordedEvent(50, "goal", 0, -1))
    shown = open_page(strikers(events=events, ticks=50), link="#t=0&rays=3")
    assert shown.page.locator(".agent-name").all_inner_texts() == ["Blue striker A", "Blue striker B", "Purple goalie"]
    assert shown.page.locator(".events li").all_inner_texts() == [
        "0:00.4\nKick by Purple goalie",
        "0:01.0\nGoal for Blue, Ada\n1:0",
    ]
    assert shown.page.locator(".legend li").all_inner_texts() == ["ball", "own goal", "wall", "opponent", "nothing"]
    shown.press("1")
    tags = ["ball", "attacked goal", "wall", "teammate", "opponent", "nothing"]
    assert shown.page.locator(".legend li").all_inner_texts() == tags
    shown.press("4", "?")  # there is no fourth
    assert shown.view("view.raysOf") == 0
    help_text = shown.page.get_by_role("dialog").inner_text()
    assert "players 1 and 2" in help_text and "player 3." in help_text and "player 4" not in help_text
