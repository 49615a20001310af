"""Statistics of play, from recordings made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from palus.envs.recording import RecordedEvent, Recording
from palus.envs.soccer.play_stats import play_statistics


def recording(frames: np.ndarray, *events: RecordedEvent) -> Recording:
    actions = np.zeros((1, 4, 3), np.int8)
    return Recording("SoccerTwos", 1, ("a", "b"), frames.astype(np.float32), actions, None, events, (0, 0), "draw")


def still(ticks: int) -> np.ndarray:
    return np.zeros((ticks + 1, 14))


def kick(tick: int, team: int) -> RecordedEvent:
    return RecordedEvent(tick, "kick", team, team)


def test_possession_belongs_to_whoever_touched_last_and_starts_with_the_first_touch() -> None:
    stats = play_statistics(recording(still(100), kick(20, 0), kick(30, 0), kick(40, 1)))
    assert stats["possession"] == [0.25, 0.75]
    assert play_statistics(recording(still(100)))["possession"] == [0.5, 0.5]


@pytest.mark.parametrize(
    ("speed_x", "speed_z", "team", "shots"),
    [
        (16.0, 0.0, 0, [1, 0]),
        (15.0, 0.0, 0, [0, 0]),  # dies before the line, 15.5 m away
        (16.0, 6.0, 0, [0, 0]),  # wide
        (-16.0, 0.0, 0, [0, 0]),  # towards the own goal
        (-16.0, 0.0, 1, [0, 1]),
    ],
)
def test_a_shot_is_a_touch_after_which_the_ball_would_reach_the_goal(
    speed_x: float, speed_z: float, team: int, shots: list[int]
) -> None:
    frames = still(50)
    frames[11:, 12] = speed_x * 0.02
    frames[11:, 13] = speed_z * 0.02
    assert play_statistics(recording(frames, kick(10, team)))["shots"] == shots


def test_touches_in_quick_succession_are_one_shot() -> None:
    frames = still(100)
    frames[:, 12] = 0.4 * np.arange(101)
    touches = [kick(tick, 0) for tick in (2, 10, 20)]
    assert play_statistics(recording(frames, *touches))["shots"] == [1, 0]


def test_distance_adds_up_both_agents_of_a_side_and_the_heat_map_the_time() -> None:
    frames = still(100)
    frames[:, 0] = 0.1 * np.arange(101)  # blue A runs 10 m along x
    frames[:, 10] = 0.05 * np.arange(101)  # purple B 5 m along z
    frames[:, 12:] = (-16.0, 8.0)
    stats = play_statistics(recording(frames, RecordedEvent(100, "goal", 1, -1)))
    assert stats["distance_m"] == [10.0, 5.0]
    assert stats["ball_heat"][0][0] == 1.0
    assert np.shape(stats["ball_heat"]) == (12, 24)
    assert stats["goal_s"] == [None, 2.0]
