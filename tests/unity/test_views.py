"""Unity games as environments of Gymnasium and PettingZoo, judged by these libraries' own checkers, over real sockets
and in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from line_envs import SUCCESS, Line
from typer.testing import CliRunner

from palus.cli import app
from palus.errors import EnvError

pytest.importorskip("pettingzoo", reason="needs the extra doom")
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

with warnings.catch_warnings():  # it imports games of its own by a way that it calls old
    warnings.simplefilter("ignore")
    from pettingzoo.test import api_test, parallel_api_test

from palus.unity.gymnasium_view import UnityToGymWrapper
from palus.unity.pettingzoo_view import UnityAECEnv, UnityParallelEnv


@pytest.fixture
def served(tmp_path: Path) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """A game of one match as an executable, and how to start it."""

    def write(game: str) -> tuple[Path, dict[str, Any]]:
        words = ["unity-serve", game, "--num-matches", "1", "--write-executable", str(tmp_path / game)]
        assert CliRunner().invoke(app, words).exit_code == 0
        return tmp_path / game, {"base_port": 0}

    return write


class Obedient(UnityToGymWrapper):
    """Makes no choice that the game forbids, whatever a checker samples: the served game would end at one."""

    mask: Any = None

    def _info(self, steps: Any) -> Any:
        info = super()._info(steps)
        self.mask = info["action_mask"]
        return info

    def step(self, action: Any) -> Any:
        return super().step(action if self.mask[action] else int(self.mask.argmax()))


@pytest.mark.filterwarnings("ignore")  # the checkers advise
def test_a_served_game_passes_gymnasium_s_checker(served: Any) -> None:
    path, start = served("MenuToy")
    env = Obedient(path, **start, no_graphics=True)
    try:
        check_env(env, skip_render_check=True, skip_close_check=True)  # that would make another on the same port
        _, info = env.reset(seed=1)
        assert env.action_space.sample(mask=info["action_mask"]) in env.action_space
    finally:
        env.close()
        env.close()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("game", ["RescueToy", pytest.param("Pursuit", marks=pytest.mark.slow)])
def test_a_served_game_passes_pettingzoo_s_checkers(game: str, served: Any) -> None:
    path, start = served(game)
    env = UnityParallelEnv(path, 3, **start)
    try:
        parallel_api_test(env, 100)
    finally:
        env.close()
    env = UnityAECEnv(path, **start)
    try:
        api_test(env, 50)
    finally:
        env.close()


def test_an_episode_is_played_to_its_end_and_no_further() -> None:
    line = Line(("vector",), continuous=1, discrete=1, teams=1, seed=2)
    env = UnityToGymWrapper(line)
    goal, _ = env.reset()
    assert env.action_space == spaces.Tuple([spaces.Box(-1, 1, (1,)), spaces.Discrete(2)])
    for _ in range(5):
        seen, reward, terminated, truncated, _ = env.step((goal, int(goal[0] > 0)))
    assert (terminated, truncated) == (True, False) and seen == goal and reward == pytest.approx(SUCCESS - 0.01)
    with pytest.raises(EnvError, match="the episode is over; call reset"):
        env.step((goal, 0))


def test_what_the_one_view_or_the_other_cannot_show_is_refused_with_what_to_do() -> None:
    with pytest.raises(EnvError, match="2 agents of Line; expected one: use UnityParallelEnv"):
        UnityToGymWrapper(Line(teams=2))
    with pytest.raises(EnvError, match=r"^timescale: Extra inputs are not permitted"):
        UnityToGymWrapper("Game", timescale=20)
    with pytest.raises(EnvError, match=r"^env_path: Extra inputs"):  # it has a name of its own
        UnityToGymWrapper("Game", env_path="Other")
    with pytest.raises(EnvError, match=r"several observations \(\(3, 20, 20\), \(1,\)\); give allow_multiple_obs"):
        UnityToGymWrapper(Line(("vector", "picture"), teams=1))


def test_pictures_and_branches_have_the_forms_that_are_asked_for() -> None:
    line = Line(("vector", "picture", "vector"), continuous=0, discrete=2, teams=1, seed=0)
    env = UnityToGymWrapper(line, uint8_visual=True, flatten_branched=True, allow_multiple_obs=True)
    (picture, vector), _ = env.reset()
    goal = line.playing["Line"][0].goal
    assert picture.dtype == np.uint8 and picture.max() == 255 * max(goal, 0) and vector.tolist() == [goal, goal]
    assert env.action_space == spaces.Discrete(4)
    env.step(2)  # the second choice of the first branch, the first of the second
    assert line.playing["Line"][0].here[0].positions == [0.2, -0.2]


def test_agents_of_groups_end_one_by_one_and_rest_until_the_reset() -> None:
    env = UnityParallelEnv(Line(continuous=1, teams=1, size=2, seed=4))
    observations, infos = env.reset()
    first, second = sorted(observations)
    assert first == "Line?agent_id=0" and infos[first]["group_id"] == 1
    goal = observations[first]
    fast = {first: goal, second: np.zeros(1, np.float32)}
    for _ in range(5):
        _, rewards, terminated, _, infos = env.step({name: fast[name] for name in env.agents})
    assert terminated == {first: True, second: False} and env.agents == [second]
    assert rewards[first] == pytest.approx(-0.01) and not infos[first]["interrupted"]
    for _ in range(5):
        observations, _, terminated, _, infos = env.step({second: goal})
    assert terminated == {second: True} and infos[second]["group_reward"] == pytest.approx(SUCCESS)
    assert env.agents == [] and env.step({}) == ({}, {}, {}, {}, {})
    assert sorted(env.reset()[0]) == [first, second]
