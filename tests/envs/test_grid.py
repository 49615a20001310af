"""The games on boards pay what their rules say and can be learned; test_check.py holds them to the contract."""

from __future__ import annotations

import json

import numpy as np
import pytest

from palus.config import load_run
from palus.envs import make
from palus.envs.grid.foraging import Foraging
from palus.envs.grid.pursuit import Pursuit
from palus.train import Run

STAY, UP, DOWN, RIGHT, LEFT = range(5)  # of the second and of the first coordinate
NORTH_EAST = 5


def set_up(env, squares, **more):
    """All matches of the game with agents on these squares."""
    env.reset(np.arange(env.num_matches))
    env.set_state(env.get_state() | {"_squares": np.array([squares] * env.num_matches)} | more)


def play(env, *choices):
    """One decision: the choices of every behavior's agents, the same in all matches."""
    return env.step([np.tile(np.array(own, np.float32)[None, :, None], (env.num_matches, 1, 1)) for own in choices])


def test_teams_behaviors_and_what_they_see_are_unequal():
    spec = make("Pursuit", 1).spec
    assert [(b.observation_size, b.branches) for b in spec.behaviors] == [(12, (5,)), (9, (9,))]
    assert (spec.teams, [agent.group for agent in spec.agents]) == ((0, 0, 0, 1), [0, 0, 0, 1])
    assert make("Foraging", 1).spec.sides == (0, 1, 2)


@pytest.mark.parametrize(
    ("pursuer", "evader", "caught"),
    [(RIGHT, STAY, True), (STAY, LEFT, True), (RIGHT, LEFT, True), (STAY, STAY, False), (RIGHT, NORTH_EAST, False)],
)
def test_an_evader_is_caught_on_its_square_or_when_places_are_changed(pursuer, evader, caught):
    env = Pursuit(2)
    set_up(env, [(2, 3), (0, 0), (6, 0), (3, 3)])
    step = play(env, [pursuer, STAY, STAY], [evader])
    assert step.match_over.tolist() == [caught] * 2
    assert step.group_reward.tolist() == [[1.0, 1.0, 1.0, -1.0] if caught else [0.0] * 4] * 2
    if caught:
        assert step.points.tolist() == [[1.0, 0.0]] * 2 and step.stats[1][3] == {"caught": 1.0}


def test_an_evader_that_lasts_has_won():
    env = Pursuit(1)
    set_up(env, [(0, 0), (0, 1), (1, 0), (5, 5)])
    for _ in range(23):
        assert not play(env, [STAY] * 3, [STAY]).match_over.any()
    step = play(env, [STAY] * 3, [STAY])
    assert step.points.tolist() == [[0.0, 1.0]] and step.group_reward.tolist() == [[-1.0, -1.0, -1.0, 1.0]]
    assert step.terminated.all() and env.active.all()


def test_a_berry_is_for_who_reaches_it_alone():
    env = Foraging(1)
    set_up(env, [(0, 0), (2, 0), (4, 4)], _berry=np.array([[1, 0]]))
    assert not play(env, [RIGHT, LEFT, STAY]).reward.any(), "two at once spoil it"
    set_up(env, [(0, 0), (2, 0), (4, 4)], _berry=np.array([[1, 0]]))
    assert play(env, [RIGHT, STAY, STAY]).reward.tolist() == [[1.0, -0.5, -0.5]]


def test_who_falls_three_berries_behind_is_out_while_the_others_play_on():
    env = Foraging(1)
    before = {"_berry": np.array([[1, 0]]), "_berries": np.array([[2, 1, 0]])}
    set_up(env, [(0, 0), (4, 0), (4, 4)], **before)
    step = play(env, [RIGHT, STAY, STAY])
    assert step.terminated.tolist() == [[False, False, True]] and not step.match_over.any()
    assert np.isnan(step.points).all() and step.stats == {0: {2: {"berries": 0.0}}}
    assert env.active.tolist() == [[True, True, False]]
    set_up(env, [(0, 0), (4, 0), (4, 4)], **before | {"_berries": np.array([[3, 1, 1]])})
    step = play(env, [RIGHT, STAY, STAY])
    assert step.match_over.all() and step.points.tolist() == [[1.0, 0.25, 0.25]] and env.active.all()


SETTINGS = """
default_settings:
  trainer_type: ppo
  hyperparameters: {batch_size: 256, buffer_size: 4096, learning_rate: 0.005, learning_rate_schedule: constant}
  network_settings: {hidden_units: 32, num_layers: 1}
  max_steps: 1000000
  summary_freq: 1000000
  self_play: {save_steps: 8192, team_change: 1000000, swap_steps: 500, window: 5}
env_settings: {seed: 3}
"""


def started(tmp_path, game, *behaviors):
    run = SETTINGS + f"palus: {{env: {game}, threads: 1, matmul: highest}}\n"
    run += f"checkpoint_settings: {{results_dir: {json.dumps(str(tmp_path))}}}\n"
    run += f"behaviors: {{{', '.join(f'{name}: {{}}' for name in behaviors)}}}\n"
    (tmp_path / "run.yaml").write_text(run)
    return Run(load_run(str(tmp_path / "run.yaml"), []))


def numbers(run, updates, name):
    """Of every update: the mean of what agents tell."""
    found, collect = [], run.collector.collect

    def seen():
        collected = collect()
        found.append(np.mean([e.stats[name] for e in collected.episodes if e.learned]))
        return collected

    run.collector.collect = seen
    with run.report:
        for _ in range(updates):
            run.iterate()
    return found


def test_a_free_for_all_of_three_teams_is_learned_and_rated(tmp_path):
    run = started(tmp_path, "Foraging", "Forager")
    berries = numbers(run, 12, "berries")  # later it meets past selves that are no worse
    run.close()
    assert berries[0] < 0.8 and max(berries) > 1.8
    assert run.league.elo[0] > 1210 and run.league.payoffs.cells


@pytest.mark.parametrize(("learning", "sign"), [("Pursuer", 1), pytest.param("Evader", -1, marks=pytest.mark.slow)])
def test_each_of_two_unequal_teams_learns_against_the_other(tmp_path, learning, sign):
    run = started(tmp_path, "Pursuit", "Pursuer", "Evader")
    run.league.turns.learning_side = 0 if learning == "Pursuer" else 1
    caught = numbers(run, 16, "caught")
    run.close()
    assert sign * (np.mean(caught[-3:]) - np.mean(caught[:3])) > 0.15
    assert run.league.elo[run.league.turns.learning_side] > 1210
