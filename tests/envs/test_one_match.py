"""A batched game as a single one: the same match, bit for bit, by the contract of single games."""

from __future__ import annotations

import numpy as np
import pytest

from palus.envs import make
from palus.envs.check import check_env
from palus.envs.check_game import check_game
from palus.envs.game import random_actions
from palus.envs.matches import Matches, OneMatch
from palus.envs.protocol import room_for
from palus.envs.toy import MenuToy
from palus.errors import EnvError

GAMES = ["SoccerTwos", "StrikersVsGoalie", "RescueToy", "DuelToy", "PenaltyToy", "MenuToy"]


@pytest.mark.parametrize("name", GAMES)
def test_built_in_games_keep_the_contract(name) -> None:
    check_game(OneMatch(make(name, 1)), decisions=120)


def test_it_plays_the_match_of_its_seed() -> None:
    game, env = OneMatch(make("SoccerTwos", 1)), make("SoccerTwos", 1)
    name, generator = env.spec.behaviors[0].name, np.random.default_rng(1)
    rows, (twin, seen) = np.arange(4, dtype=np.int32)[None], (room_for(env.spec.behaviors[0], 4) for _ in range(2))
    game.reset(9)
    env.reset(np.array([9]))
    goals = 0
    for _ in range(2000):
        env.observe(name, rows, twin)
        game.observe(seen)
        assert all(np.array_equal(seen[name], twin[name]) for name in seen)
        actions = random_actions(game, generator)
        one, many = game.step(actions), env.step([actions[None]])
        np.testing.assert_array_equal(one.group_reward, many.group_reward[0])
        np.testing.assert_array_equal(one.reward, many.reward[0])
        if one.over:
            assert one.points == tuple(many.points[0]) and sum(one.points) == 1
            goals += 1
            break
    assert goals
    with pytest.raises(EnvError, match="gravity"):
        game.set_parameters({"gravity": 1.0})


def test_parameters_reach_the_game() -> None:
    paid = []
    for number in (0.0, 1.0):
        game, generator = OneMatch(make("SoccerTwos", 1)), np.random.default_rng(1)
        game.set_parameters({"ball_touch": number})
        game.reset(3)
        paid.append(sum(game.step(random_actions(game, generator)).reward.sum() for _ in range(400)))
    assert paid[0] == 0 < paid[1]


def test_rays_of_a_game_that_steps_alone_are_whole() -> None:
    def made() -> OneMatch:
        game = OneMatch(make("SoccerTwos", 1))
        assert not any(o.rays for o in game.spec.behaviors[0].observations)
        game.spec = make("SoccerTwos", 1).spec  # a specification that promises more than the game does
        return game

    check_game(made(), decisions=5)
    env = Matches(made, 2)
    assert env.spec == made().spec and not any(o.rays for o in env.spec.behaviors[0].observations)
    env.reset(np.arange(2))
    room = room_for(env.spec.behaviors[0], 8, rays=True)
    env.observe(env.spec.behaviors[0].name, np.arange(8, dtype=np.int32).reshape(2, 4), room)
    assert all(seen.any() for seen in room.values())


class CutOff(MenuToy):
    """Its matches end by a time limit."""

    def step(self, actions):
        self._last = self._view("MenuToy")["obs_0"]
        step = super().step(actions)
        self._cut = step.terminated.copy()
        step.truncated[:], step.terminated[:] = self._cut, False
        return step

    def observe_final(self, behavior, rows, out):
        chosen = self._cut & (rows >= 0)
        ((name, array),) = out.items()
        assert name == "obs_0"
        array[rows[chosen]] = self._last[chosen]


def test_masks_are_no_part_of_what_was_seen_last() -> None:
    check_env(CutOff(3), make=CutOff, decisions=12)
    check_game(OneMatch(CutOff(1)), decisions=12)


def test_an_environment_of_several_matches_is_refused() -> None:
    with pytest.raises(EnvError, match="plays 2 matches at once"):
        OneMatch(make("DuelToy", 2))
