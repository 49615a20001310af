"""`check_game`: it passes the documented example and names each broken promise."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from palus.config import load_run
from palus.envs.check_game import check_game
from palus.envs.game import GameStep
from palus.errors import EnvError
from palus.train import train
from palus.trust import Trust
from palus.types import MASKS, ActionSpec, Continuous, Discrete, GameSpec, ObservationSpec

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_game.py"


def load_example():
    spec = importlib.util.spec_from_file_location("own_game", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documented_game_keeps_the_contract():
    check_game(load_example().Line(), decisions=100)


def test_the_documented_game_is_won_by_walking_right():
    game = load_example().Line(cells=3, limit=9)
    game.reset(0)
    steps = []
    while not (steps and steps[-1].over):
        steps.append(game.step(np.ones((1, 1), np.float32)))
    assert steps[-1].reward[0] == 1 and steps[-1].terminated[0] and len(steps) <= 2


def test_the_documented_game_is_learned_as_it_says(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    run = load_run(EXAMPLE.with_name("line.yaml"), [f"checkpoint_settings.results_dir={tmp_path}"])
    train(run, trust=Trust.of(["own_game"]))
    last = (tmp_path / "line/run_logs/progress.jsonl").read_text().splitlines()[-2]
    assert json.loads(last)["values"]["Environment/Cumulative Reward"] > 0.99


class Faulty:
    """A game of two agents, three steps long, with one fault."""

    def __init__(self, fault: str = "") -> None:
        actions = ActionSpec((Discrete(3), Continuous(2, -1.0, 1.0)))
        self.spec = GameSpec.alike(
            "faulty", (ObservationSpec("a", (2,)), ObservationSpec("b", (1, 2, 2), "uint8")), actions, 2
        )
        if fault in ("forbids", "forgets masks"):
            behavior = replace(self.spec.behaviors[0], actions=replace(actions, masked=True))
            self.spec = replace(self.spec, behaviors=(behavior,))
        if fault == "shares unevenly":
            self.spec = replace(self.spec, agents=tuple(replace(agent, team=0, group=0) for agent in self.spec.agents))
        if fault == "unpaid":
            self.spec = replace(self.spec, shaping=(("bonus", 1.0),))
        self.active = np.ones(2, np.bool_)
        self.fault, self.t, self.resets = fault, 0, 0

    def reset(self, seed):
        self.t, self.resets = 0, self.resets + 1
        self.active[:] = True

    def observe(self, out):
        out["a"][:] = self.resets if self.fault == "drifts" else self.t
        if self.fault != "forgets":
            out["b"][:] = self.t
        if self.fault == "forbids":
            out[MASKS][:] = [[1, 1, 1], [0, 0, 0]]
        if self.fault == "nan":
            out["a"][0, 0] = np.nan

    observe_final = observe

    def step(self, actions):
        self.t += 1
        over = self.t == 3
        reward = np.ones(2, np.float64 if self.fault == "double" else np.float32)
        terminated, truncated = np.full(2, over and self.fault != "open"), np.zeros(2, np.bool_)
        if self.fault == "both":
            truncated = terminated.copy()
        if self.fault == "scribbles":
            actions[:] = 0
        if self.fault == "vanishes":
            self.active[1] = False
        stats = {0: {"x": 1.0}} if self.fault == "stats" else {}
        shared = {"double share": np.ones(2), "shares unevenly": np.arange(2, dtype=np.float32)}.get(self.fault)
        return GameStep(reward, terminated, truncated, over, stats, group_reward=shared)

    def close(self):
        pass


def test_a_sound_game_of_two_passes():
    check_game(Faulty())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("drifts", "observation a of decision 0 differs between runs"),
        ("forgets", "left numbers of b unwritten"),
        ("nan", "non-finite numbers for match 0, agent agent 0"),
        ("double", "step.reward is float64"),
        ("open", "neither terminated nor truncated"),
        ("both", "terminated and truncated at once"),
        ("scribbles", "changed the actions"),
        ("vanishes", "agent 1 became inactive without having ended"),
        ("stats", "stats of agent 0, whose episode did not end"),
        ("double share", "step.group_reward is float64"),
        ("shares unevenly", "members of group 0 got different group rewards"),
        ("forbids", "the mask of agent agent 1 forbids every choice of branch 0"),
        ("forgets masks", "left numbers of action_masks unwritten"),
        ("unpaid", r"an attribute `shaping`, float64 \(2, 1\)"),
    ],
)
def test_a_broken_promise_is_named(fault, message):
    with pytest.raises(EnvError, match=message):
        check_game(Faulty(fault))


class Pausing(Faulty):
    """Its agents end together and take a decision's time to begin anew, as vectorised environments do."""

    def step(self, actions):
        self.t += 1
        played = self.active.copy()
        self.active[:] = ~played | (self.t % 3 != 0)
        ended = played & ~self.active
        return GameStep(played.astype(np.float32), ended, np.zeros(2, np.bool_), False)


def test_a_game_may_pause_as_a_whole():
    check_game(Pausing())
