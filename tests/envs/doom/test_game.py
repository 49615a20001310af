"""Doom environments on the real engine: episodes, ends, rewards, pictures, videos, network games."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from palus.envs import make_game
from palus.envs.check_game import check_game
from palus.errors import EnvError

pytest.importorskip("vizdoom", reason="needs the extra doom")

from palus.envs.doom.multiplayer import NetworkGame
from palus.envs.doom.player import DoomPlayer, EngineSeat
from palus.envs.doom.rewards import tunable
from palus.envs.doom.scenarios import ENVIRONMENTS


@pytest.fixture
def start():
    """Makes games and closes them."""
    games = []

    def make(name, **options):
        games.append(make_game(name, **options))
        return games[-1]

    yield make
    for game in games:
        game.close()


def look(game, final=False):
    out = {o.name: np.zeros((game.spec.num_agents, *o.shape), o.dtype) for o in game.spec.behaviors[0].observations}
    (game.observe_final if final else game.observe)(out)
    return out


def still(game):
    """An action that presses nothing; a turning component's middle index is no turn."""
    parts = game.spec.behaviors[0].actions.parts
    middle = [part.choices // 2 if getattr(part, "low", None) is not None else 0 for part in parts]
    return np.tile(np.array(middle, np.float32), (game.spec.num_agents, 1))


def play(game, seed, action, limit=10_000):
    """One episode under one action: all its steps."""
    game.reset(seed)
    steps, rewards = [], []
    while not (steps and steps[-1].over) and len(steps) < limit:
        steps.append(game.step(action))
        rewards.append(steps[-1].reward.copy())
    return steps[-1], np.array(rewards)


def test_a_single_player_game_keeps_the_contract_and_repeats_itself(start):
    check_game(start("doom_basic"), decisions=90)


def test_standing_in_acid_survives_about_a_hundred_decisions(start):
    game = start("doom_health_gathering_supreme")
    last, rewards = play(game, 5, still(game))
    tics = last.stats[0]["len"]
    assert last.terminated[0] and not last.truncated[0]
    assert 300 < tics == 4 * len(rewards) < 500
    assert rewards[:-1, 0].tolist() == pytest.approx([0.04] * (len(rewards) - 1))
    assert last.stats[0]["true_objective"] == pytest.approx(rewards.sum(), abs=1e-4)


def test_lost_health_costs_what_the_shaping_says_and_not_the_objective(start):
    game = start("doom_health_gathering_supreme", shaping={"HEALTH": [0.0, -0.05]})
    last, rewards = play(game, 5, still(game))
    lost = 0.04 * len(rewards) - rewards.sum()
    assert 80 * 0.05 < lost < 100 * 0.05  # the last drop is the death, which is not shaped
    assert last.stats[0]["true_objective"] == pytest.approx(0.04 * len(rewards), abs=1e-4)


def test_new_squares_of_the_map_are_paid_once_an_episode(start):
    game = start("doom_health_gathering_supreme", shaping={"CELLS": [10.0, 0.0]})
    for _ in range(2):
        last, rewards = play(game, 3, np.array([[3]], np.float32))  # forward
        paid = rewards[:, 0] > 5
        squares = (rewards[paid, 0] / 10).round()
        assert 3 <= squares.sum() < 20 and set(squares) <= {1.0, 2.0} and not paid[0]
        assert last.stats[0]["true_objective"] == pytest.approx(0.04 * len(rewards), abs=1e-3)
    _, rewards = play(game, 3, still(game))
    assert rewards.max() < 1


def test_an_agent_may_be_told_its_health(start):
    game = start("doom_health_gathering_supreme", measurements=True)
    game.reset(5)
    health = [look(game)["measurements"][0, 2]]
    while not game.step(still(game)).over:
        health.append(look(game)["measurements"][0, 2])
    # 100 points / 30, and the acid has taken its first 8 before the first picture.
    assert health[0] == pytest.approx(92 / 30) and (np.diff(health) <= 0).all() and 0 < health[-1] < 10 / 30


def test_shaping_may_change_while_a_game_runs_and_stays_out_of_the_score(start):
    game = start("doom_basic", shaping={"AMMO2": [0.0, -100.0]})
    assert game.spec.shaping == (("AMMO2.rise", 0.0), ("AMMO2.drop", -100.0))
    shoot = np.array([[3]], np.float32)
    last, rewards = play(game, 1, shoot)
    shots = last.stats[0]["true_objective"] - rewards.sum()  # the reward's scale is 0.01
    assert shots >= 3 and shots == pytest.approx(round(float(shots)), abs=1e-3)
    game.shaping[:] = 0.0
    last, rewards = play(game, 1, shoot)
    assert last.stats[0]["true_objective"] == pytest.approx(rewards.sum(), abs=1e-4)


def test_pickups_are_paid_but_are_not_the_objective(start):
    game = start("doom_health_gathering")
    for seed in range(20):
        last, rewards = play(game, seed, np.array([[3]], np.float32))  # forward
        pickups = int((rewards > 1).sum())
        if pickups:
            break
    assert pickups and rewards.sum() == pytest.approx(last.stats[0]["true_objective"] + pickups, abs=1e-4)


def test_the_time_limit_of_basic_truncates_and_its_reward_is_scaled(start):
    game = start("doom_basic")
    last, rewards = play(game, 1, still(game))
    assert last.truncated[0] and not last.terminated[0] and len(rewards) in (72, 75)
    assert rewards[0, 0] == pytest.approx(-0.04)
    assert look(game, final=True)["obs"].any()


@pytest.mark.parametrize("truncates", [False, True])
def test_the_engines_own_time_out_is_an_end_by_the_rules_unless_asked_otherwise(start, truncates):
    game = start("doom_my_way_home", timeout_truncates=truncates, frameskip=100)
    last, rewards = play(game, 1, still(game))
    assert (last.truncated[0], last.terminated[0]) == (truncates, not truncates)
    assert last.stats[0]["len"] == 2100 and len(rewards) == 21


def test_a_death_is_an_end_by_the_rules(start):
    game = start("doom_health_gathering_supreme", timeout_truncates=True)
    for _ in range(2):
        last, rewards = play(game, 5, still(game))
        assert last.over and last.terminated[0] and not last.truncated[0]
        assert last.stats[0]["true_objective"] == pytest.approx(rewards.sum(), abs=1e-3)


def test_the_observation_is_the_resized_picture(start):
    game = start("doom_defend_the_center", wide=True)
    game.reset(3)
    seen, frame = look(game)["obs"][0], game.render()
    assert seen.shape == (3, 72, 128) and frame.shape == (144, 256, 3)
    assert np.array_equal(seen, frame[::2, ::2].transpose(2, 0, 1)) and seen.std() > 10


def test_the_observation_may_be_the_mean_of_the_drawn_pixels(start):
    game = start("doom_defend_the_center", wide=True, average=True)
    game.reset(3)
    drawn = game.render().astype(int).reshape(72, 2, 128, 2, 3).mean((1, 3))
    assert np.abs(look(game)["obs"][0].transpose(1, 2, 0) - drawn).max() <= 0.5
    with pytest.raises(EnvError, match="120 x 160 pixels drawn, which is not twice the resolution 72 x 128"):
        start("doom_basic", average=True)


@dataclass
class Told:
    """A player after a decision."""

    reward: float = 0.0
    finished: bool = False
    timed_out: bool = False
    frags: float = 0.0

    def stats(self):
        return {"frags": self.frags}


@pytest.mark.parametrize(
    ("name", "options", "decisions", "players", "over", "truncated"),
    [
        ("doom_basic", {}, 74, [Told()], False, False),  # 296 of 300 tics
        ("doom_basic", {}, 75, [Told()], True, True),
        ("doom_basic", {}, 75, [Told(finished=True)], True, False),  # in its last decision
        ("doom_basic", {}, 72, [Told(finished=True, timed_out=True)], True, True),  # the engine keeps the same limit
        ("doom_duel", {}, 9, [Told(finished=True), Told()], True, False),  # one player's end is all players'
        ("doom_duel", {}, 9, [Told(finished=True, timed_out=True)] * 2, True, False),
        ("doom_duel", {"timeout_truncates": True}, 9, [Told(finished=True, timed_out=True)] * 2, True, True),
        (
            *("doom_duel", {"timeout_truncates": True}, 9),
            *([Told(finished=True), Told(finished=True, timed_out=True)], True, False),
        ),
    ],
)
def test_who_ends_and_how_follows_from_the_players_and_the_limit(name, options, decisions, players, over, truncated):
    game = make_game(name, **options, **({"wad": "multi_duel.wad"} if name == "doom_duel" else {}))
    game._players, game._decisions = players, decisions
    step = game._result()
    count = len(players)
    assert step.over == over and step.truncated.tolist() == [truncated] * count
    assert step.terminated.tolist() == [over and not truncated] * count
    assert not over or step.stats[count - 1]["len"] == decisions * game.spec.frameskip


def test_rewards_are_scaled_and_the_frags_of_a_duel_are_its_points():
    basic, duel = make_game("doom_basic"), make_game("doom_duel", wad="multi_duel.wad")
    basic._players = [Told(reward=5.0)]
    assert basic._result().reward == pytest.approx([0.05])
    duel._players = [Told(1.0, True, frags=3.0), Told(-2.0, True, frags=1.0)]
    step = duel._result()
    assert step.reward.tolist() == [1.0, -2.0] and step.points == (1.0, 0.0)


class Handle:
    """In the place of an engine: variables by name, nothing is paid."""

    def __init__(self, names):
        self.finished = self.dead = False
        self.names, self.values = names, dict.fromkeys(names, 0.0) | {"PLAYER_COUNT": 2.0}

    def get_state(self):
        return SimpleNamespace(screen_buffer=None, game_variables=np.array([self.values[name] for name in self.names]))

    def get_game_variable(self, variable):
        return self.values.get(variable.name, 0.0)

    def make_action(self, buttons, tics):
        return 0.0

    def is_episode_finished(self):
        return self.finished

    def is_episode_timeout_reached(self):
        return True

    def is_player_dead(self):
        return self.dead

    def set_seed(self, seed):
        pass

    def new_episode(self):
        pass


def test_deaths_and_shaping_of_an_episode_know_nothing_of_the_one_before():
    environment = ENVIRONMENTS["doom_duel"]
    names = environment.scenario.variables
    numbers = np.array([number for _, number in tunable(environment.scheme, names)])
    handle = Handle(names)
    seat = EngineSeat(environment, None, NetworkGame(environment, 1), 1)
    player = DoomPlayer(seat, SimpleNamespace(game=handle), numbers)
    paid = []
    for deaths, health in ((3.0, [40.0, 50.0]), (5.0, [100.0, 70.0])):
        player.begin(1)
        for first, points in zip((True, False), health, strict=True):
            player.reward = 0.0
            handle.values["HEALTH"] = points
            player.advance([], 2)
            player.conclude(first)
            paid.append(player.reward)
        handle.values["DEATHCOUNT"] = deaths
        assert player.stats()["deaths"] == {3.0: 3.0, 5.0: 2.0}[deaths]
    assert paid == pytest.approx([0.0, 0.1, 0.0, -0.3])  # 0.01 a point, and nothing for the first decision


@pytest.mark.parametrize("dead", [False, True])
def test_who_dies_in_the_last_tic_has_not_timed_out(dead):
    handle = Handle(("HEALTH",))
    player = DoomPlayer(EngineSeat(ENVIRONMENTS["doom_deadly_corridor"], None), SimpleNamespace(game=handle), None)
    player.begin(1)
    handle.finished, handle.dead = True, dead
    player.advance([], 4)
    player.conclude(False)
    assert player.finished and player.timed_out == (not dead)


def test_health_that_rises_in_the_first_decision_is_no_pickup():
    game, handle = make_game("doom_health_gathering"), Handle(("HEALTH",))
    player = DoomPlayer(EngineSeat(game.environment, None), SimpleNamespace(game=handle), None)
    game._players, paid = [player], []
    for _ in range(2):
        handle.values["HEALTH"] = 10.0
        game.reset(1)
        for health in (60.0, 80.0, 70.0):
            handle.values["HEALTH"] = health
            paid.append(float(game.step(still(game)).reward[0]))
    assert paid == [0.0, 1.0, 0.0] * 2


def test_every_engine_of_a_game_has_a_seed_of_its_own():
    game, seeds = make_game("doom_duel", wad="multi_duel.wad"), [[], []]
    game._players = [SimpleNamespace(begin=own.append) for own in seeds]
    game.reset(7)
    game.reset(2**31 - 1)
    assert seeds == [[7, 2**31 - 1], [8, 0]]
    game._players = []
    game.close()


def test_a_video_gets_every_tic_and_changes_nothing(start):
    frames = []
    plain, filmed = (start("doom_health_gathering_supreme") for _ in range(2))
    filmed.recorder = lambda frame: frames.append(frame.copy())
    action = np.array([[3]], np.float32)
    plain.reset(4)
    filmed.reset(4)
    for _ in range(30):
        a, b = plain.step(action), filmed.step(action)
        assert a.reward.tolist() == b.reward.tolist()
        assert np.array_equal(look(plain)["obs"], look(filmed)["obs"])
    assert len(frames) == 1 + 30 * 4 and frames[0].shape == (120, 160, 3)
    assert not np.array_equal(frames[40], frames[41])


def test_a_killed_engine_is_reported_and_the_next_reset_starts_another(start):
    game = start("doom_basic")
    game.reset(1)
    os.kill(game._players[0].engine.pid, signal.SIGKILL)
    with pytest.raises(EnvError, match="an engine of doom_basic is lost"):
        for _ in range(3):
            game.step(still(game))
    game.reset(1)
    assert game.step(still(game)).reward[0] == pytest.approx(-0.04)


def test_two_agents_duel_over_the_network(start):
    game = start("doom_duel", wad="multi_duel.wad", timelimit=0.1)
    for seed in (1, 2):  # the second episode runs on the same engines
        last, rewards = play(game, seed, still(game))
        assert last.terminated.tolist() == [True, True] and len(rewards) == 105
        assert {"true_objective", "frags", "deaths", "leader_gap", "len"} <= set(last.stats[0])
        assert last.stats[0]["leader_gap"] == -last.stats[1]["leader_gap"]
    seen = look(game)
    assert seen["measurements"].shape == (2, 23) and seen["measurements"][0, 6] == pytest.approx(2 / 5)
    assert not np.array_equal(seen["obs"][0], seen["obs"][1])
    assert game.render().shape == (120, 320, 3)


def test_a_lost_engine_of_a_duel_does_not_hang_the_other(start):
    game = start("doom_duel", wad="multi_duel.wad", timelimit=1)
    game.reset(1)
    os.kill(game._players[1].engine.pid, signal.SIGKILL)
    with pytest.raises(EnvError, match="is lost"):
        for _ in range(5):
            game.step(still(game))


class NeverBack:
    """A handle whose calls wait for ever, as for an engine that died with the lock of their message queue in hand."""

    def __init__(self, handle):
        self.handle, self.closed = handle, False

    def make_action(self, buttons, tics):
        threading.Event().wait()

    def close(self):
        self.closed = True


def test_an_engine_that_dies_with_a_lock_in_hand_costs_its_game_and_no_more(start, monkeypatch):
    monkeypatch.setattr("palus.envs.doom.game.LOOK_S", 0.1)
    monkeypatch.setattr("palus.envs.doom.game.GRACE_S", 1.0)
    game = start("doom_duel", wad="multi_duel.wad", timelimit=1)
    game.reset(1)
    first, second = game._players
    handle = NeverBack(second.engine.game)
    second.engine = replace(second.engine, game=handle)
    os.kill(second.engine.pid, signal.SIGKILL)
    with pytest.raises(EnvError, match="is lost"):
        game.step(still(game))
    assert first.engine.is_dead and not handle.closed  # the call that is given up still waits in its memory
    game.reset(1)
    assert not game.step(still(game)).over


def test_a_handle_that_cannot_be_closed_is_left_alone(start, monkeypatch):
    monkeypatch.setattr("palus.envs.doom.engine.GRACE_S", 0.1)
    game = start("doom_basic")
    game.reset(1)
    engine, closing, ends = game._players[0].engine, threading.Event(), threading.Event()

    class NeverClosed:
        def close(self):
            closing.set()
            ends.wait()

    replace(engine, game=NeverClosed()).close()
    assert closing.is_set() and engine.is_dead
    ends.set()


def test_bots_play_and_are_counted(start):
    game = start("doom_deathmatch_bots", wad="cig.wad", num_bots=3, timelimit=0.15)
    last, _ = play(game, 1, still(game))
    assert last.stats[0]["true_objective"] == last.stats[0]["frags"]
    assert game._players[0].variable("PLAYER_COUNT") == 4
