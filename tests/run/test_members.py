"""Who the names of `palus.league.members` are, and that they play in a run as they would in the arena."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from palus.arena.models.policies import OnnxPlayer
from palus.config import load_run
from palus.config.network import NetworkSettings
from palus.envs import make
from palus.errors import CheckpointError, ModelError, TrustError
from palus.export.policy_file import PolicyFile, write_policy
from palus.nn.network import Network
from palus.nn.place import CPU
from palus.rollout.rollout import FROZEN, MEMBERS
from palus.run.guests import policy_of
from palus.run.members import find_guests
from palus.run.misfits import misfits
from palus.train import Run
from palus.trust import NOBODY
from palus.types import ActionSpec, AgentSpec, BehaviorSpec, Discrete, GameSpec, ObservationSpec

SOCCER, PENALTY = make("SoccerTwos", 1).spec, make("PenaltyToy", 1).spec


def network(behavior, seed=1):
    settings = NetworkSettings(hidden_units=8, num_layers=1)
    return Network(behavior, settings, torch.Generator().manual_seed(seed), critic="none")


def written(path, game, name=""):
    """A file of the behavior's policy, by the ending of the path."""
    made = network(game.behavior(name or game.behaviors[0].name))
    if path.suffix == ".npz":
        write_policy(path, PolicyFile.of(made, game, name, 5))
    else:
        path.write_bytes(made.onnx().SerializeToString())
    return str(path)


def test_names_are_players_of_the_house_and_files_that_fit(tmp_path):
    names = ["random", "ball-chaser", written(tmp_path / "a.onnx", SOCCER), written(tmp_path / "b.npz", SOCCER)]
    assert [(g.name, g.behavior) for g in find_guests(names, SOCCER)] == [(name, "SoccerTwos") for name in names]
    striker = written(tmp_path / "Striker.onnx", PENALTY, "Striker")
    keeper = written(tmp_path / "anybody.npz", PENALTY, "Keeper")
    found = [(g.name, g.behavior) for g in find_guests(["random", striker, keeper], PENALTY)]
    assert found == [("random", "Striker"), ("random", "Keeper"), (striker, "Striker"), (keeper, "Keeper")]
    for name, fault in (
        ("ball-chasr", "no such player; did you mean ball-chaser"),
        (striker, "a.onnx|obs_0|inputs|observation"),
        (keeper, "trained on other observations or actions than SoccerTwos has"),
    ):
        with pytest.raises(ModelError, match=fault):
            find_guests([name], SOCCER)


def test_a_strangers_file_decides_as_its_author_meant_under_masks_too(tmp_path):
    spec = make("MenuToy", 1).spec
    path = written(tmp_path / "menu.onnx", spec)
    (guest,) = find_guests([path], spec)
    policy = policy_of(guest, torch.float32, CPU, NOBODY)
    seen, masks = np.array([[0.25], [0.5]], np.float32), np.array([[1, 1, 0, 1], [0, 1, 1, 1]], np.bool_)
    logits, values, _ = policy.act({"obs_0": torch.from_numpy(seen)}, torch.zeros(2, 0), torch.from_numpy(masks))
    expected, _ = OnnxPlayer(tmp_path / "menu.onnx", spec.behaviors[0]).answer({"obs_0": seen}, seen[:, :0], masks)
    np.testing.assert_allclose(logits.softmax(1).numpy(), expected, atol=1e-6)
    assert values is None and torch.isfinite(logits).all() and not logits.softmax(1).numpy()[~masks].any()


def test_a_file_whose_network_needs_foreign_code_is_refused(tmp_path):
    picture = BehaviorSpec("Eye", (ObservationSpec("obs_0", (1, 8, 8), "uint8"),), ActionSpec((Discrete(2),)))
    settings = NetworkSettings(vis_encode_type="no_such_module:Encoder")
    write_policy(tmp_path / "own.npz", PolicyFile("Eye", "Eye", picture, settings, {"bias": np.zeros(1)}, None, 5))
    spec = GameSpec("Eye", (picture,), (AgentSpec("eye", 0, 0, "Eye"),))
    (guest,) = find_guests([str(tmp_path / "own.npz")], spec)
    with pytest.raises(TrustError, match="no_such_module"):
        policy_of(guest, torch.float32, CPU, NOBODY)


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        (["palus.league.members=[ball-chaser]"], []),
        (["palus.league.members=[ball-chasr]"], ["palus.league.members: ball-chasr: no such player"]),
        (["palus.league.members=[ball-chaser]", "palus.sampling.collector=workers"], ["reads the game itself"]),
        (["palus.league.members=[random]", "palus.sampling.collector=workers"], []),
        (["palus.league.members=[random]", "behaviors.SoccerTwos.self_play=null"], ["nobody plays against them"]),
    ],
)
def test_members_that_cannot_play_are_named_before_the_start(changes, faults):
    found = [fault for fault in misfits(load_run("soccertwos", changes)) if "members" in fault]
    assert len(found) == len(faults) and all(want in fault for want, fault in zip(faults, found, strict=True)), found


def started(folder, members, **how):
    """A small run of SoccerTwos against members and past selves."""
    place = f"checkpoint_settings.results_dir={json.dumps(str(folder))}"
    fixed = ("env_settings.seed=3", "palus.threads=1", "palus.matmul=highest", "palus.num_matches=12")
    small = [
        f"behaviors.SoccerTwos.{key}"
        for key in (
            "hyperparameters.buffer_size=2400",
            "self_play.swap_steps=0",
            "self_play.play_against_latest_model_ratio=0",
        )
    ]
    named = f"palus.league.members={json.dumps(members)}"
    return Run(load_run("debug", [place, *fixed, *small, "palus.env_options={max_steps: 150}", named]), **how)


def played(run, iterations):
    with run.report:
        for _ in range(iterations):
            run.iterate()
    return run


def test_members_are_met_beside_past_selves_rated_and_resumed_bit_for_bit(tmp_path):
    members = ["ball-chaser", "random", written(tmp_path / "a.onnx", SOCCER)]
    whole = played(started(tmp_path / "whole", members), 4)
    whole.close()
    ids = [MEMBERS + k for k in range(3)]
    assert [m.policy for m in whole.league.members] == ids
    met = {opponent for policy, opponent in whole.league.payoffs.cells if policy == 0}
    assert {*ids, FROZEN} <= met, "the bot, the uniform player, the file, and the first of its past"
    points, matches = whole.league.payoffs.cells[0, ids[0]]
    assert points / matches < 0.5, "a beginner loses to who runs at the ball"
    assert dict(whole.league.state_dict()["member_elo"])[ids[0]] > 1200

    half = played(started(tmp_path / "half", members), 2)
    half.save()
    half.close()
    with pytest.raises(CheckpointError, match=r"palus\.league\.members"):
        started(tmp_path / "half", members[::-1], resume=True)
    half = played(started(tmp_path / "half", members, resume=True), 2)
    half.close()
    assert half.league.payoffs.cells == whole.league.payoffs.cells
    assert half.league.state_dict()["member_elo"] == whole.league.state_dict()["member_elo"]
    weights = [run.trainees[0].learner.network.arrays() for run in (whole, half)]
    assert all(np.array_equal(a, weights[1][name]) for name, a in weights[0].items())
