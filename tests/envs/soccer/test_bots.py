"""The scripted teams: legal, side-blind, and in the right order of strength."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import set_scene

from palus.envs.soccer.bots import act_ball_chaser, act_goalie_striker
from palus.envs.soccer.env import SoccerTwos


def act_random(env, team, matches):
    return np.random.default_rng(int(env.time[0])).integers(0, 3, (len(matches), 2, 3)).astype(np.int32)


def goals(one, two, matches=100, decisions=300):
    """Goals of `one` and of `two`, who change sides in every second match."""
    env = SoccerTwos(matches)
    env.reset(np.arange(matches))
    even, odd = np.arange(0, matches, 2), np.arange(1, matches, 2)
    score = [0, 0]
    for _ in range(decisions):
        actions = np.zeros((matches, 4, 3), np.int32)
        for team, agents in ((0, (0, 2)), (1, (1, 3))):
            for played, player in ((even, (one, two)[team]), (odd, (two, one)[team])):
                actions[np.ix_(played, agents)] = player(env, team, played)
        env.step([actions])
        for n in np.flatnonzero(env.winner >= 0):
            score[(env.winner[n] + n) % 2] += 1
    return score


def test_goalie_striker_beats_the_ball_chaser_clearly():
    won, lost = goals(act_goalie_striker, act_ball_chaser)
    assert won + lost > 300 and won > 2.5 * lost


def test_ball_chaser_beats_random_play():
    won, lost = goals(act_ball_chaser, act_random)
    assert won > 1.2 * lost


@pytest.mark.parametrize("act", [act_ball_chaser, act_goalie_striker])
def test_both_sides_play_the_same_rules(act):
    """Turn the field by 180 degrees and swap the colours: the same actions come out."""
    env, turned = SoccerTwos(50), SoccerTwos(50)
    env.reset(np.arange(50))
    turned.reset(np.arange(50))
    rng = np.random.default_rng(0)
    for _ in range(7):
        env.step([rng.integers(0, 3, (50, 4, 3)).astype(np.int32)])
    for n in range(50):
        swap = [1, 0, 3, 2]
        yaw = [y - 180 if y > 0 else y + 180 for y in env.agent_yaw[n, swap]]
        agents = [(-x, -z, y) for (x, z), y in zip(env.agent_pos[n, swap], yaw, strict=True)]
        ball, speed = -env.ball_pos[n], -env.ball_vel[n]
        set_scene(turned, n, agents, tuple(ball), agent_vel=-env.agent_vel[n, swap], ball_vel=tuple(speed))
    matches = np.arange(50)
    mine, theirs = act(env, 0, matches), act(turned, 1, matches)
    assert mine.shape == (50, 2, 3) and mine.dtype == np.int32 and mine.min() >= 0 and mine.max() <= 2
    assert (mine == theirs).mean() > 0.99  # rounding may tip a close decision


def test_a_bot_plays_only_the_matches_asked_for():
    env = SoccerTwos(6)
    env.reset(np.arange(6))
    everything = act_goalie_striker(env, 1, np.arange(6))
    assert np.array_equal(act_goalie_striker(env, 1, np.array([4, 1])), everything[[4, 1]])
