"""Which goals are worth watching, on recordings made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from recorded_goals import BLUE_A, BLUE_B, PURPLE_A, PURPLE_B, kick, recording

from palus.envs.soccer.highlights import goal_beauty
from palus.envs.soccer.pitch import STRIKERS_VS_GOALIE


def test_a_goal_counts_one_point_and_the_speed_of_the_ball_over_20():
    assert goal_beauty(recording((990, BLUE_A))) == 1.0
    assert goal_beauty(recording((990, BLUE_A), speed=30.0)) == pytest.approx(2.5, rel=1e-5)


def test_a_goal_of_purple_counts_as_one_of_blue():
    assert goal_beauty(recording((980, PURPLE_A), (990, PURPLE_B), scorer=1)) == 2.0


@pytest.mark.parametrize(
    ("kicks", "passes"),
    [
        ([(980, BLUE_A), (990, BLUE_B)], 1),
        ([(970, BLUE_A), (980, BLUE_A), (990, BLUE_B)], 1),  # kicking twice is no pass
        ([(960, BLUE_A), (970, BLUE_B), (980, BLUE_A)], 2),
        ([(970, BLUE_A), (980, PURPLE_A), (990, BLUE_B)], 1),  # an opponent's touch in between does not spoil it
        ([(799, BLUE_A), (990, BLUE_B)], 0),  # more than four seconds, 200 ticks, before the goal
        ([(800, BLUE_A), (990, BLUE_B)], 1),
    ],
)
def test_passes_inside_the_team_shortly_before_the_goal_count(kicks, passes):
    assert goal_beauty(recording(*kicks)) == 1.0 + passes


def test_own_goals_are_nobodys_highlight():
    assert goal_beauty(recording((980, BLUE_A), (990, PURPLE_A))) == 0.0  # blue scores, purple kicked last
    assert goal_beauty(recording((990, BLUE_A), scorer=1)) == 0.0


def test_no_goal_or_nobodys_kick_before_it_is_no_highlight():
    assert goal_beauty(recording((100, BLUE_A), goal=None)) == 0.0
    assert goal_beauty(recording()) == 0.0
    assert goal_beauty(recording((100, BLUE_A))) == 0.0  # it rolled in by itself, 18 s later


def test_who_is_on_which_team_and_where_the_ball_is_are_the_pitch_s():
    first, second, keeper = (place.team for place in STRIKERS_VS_GOALIE.places)
    assert (first, second, keeper) == (0, 0, 1)
    goal, frames = recording((980, 0), (990, 1)), np.zeros((20, 11), np.float32)
    frames[:, 9] = np.arange(20) * 10.0 * 0.02
    goal = replace(goal, env_id="StrikersVsGoalie", frames=frames)
    assert goal_beauty(goal) == pytest.approx(2.5, rel=1e-5)
    assert goal_beauty(replace(goal, events=(kick(990, 2), goal.events[-1]))) == 0.0
