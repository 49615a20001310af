"""Policies give the right probabilities, whatever stands in the other rows of the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import MODELS, SOCCER, needs_models, probabilities
from hostile import heavy, stock, swelling
from scenes import set_scene

from palus import envs
from palus.arena.models import policies
from palus.arena.models.players import find_players, load_player
from palus.arena.models.policies import OnnxPlayer, RandomPlayer
from palus.arena.referee.sampling import is_distribution
from palus.config.appo import AppoNetworkSettings
from palus.config.network import NetworkSettings
from palus.envs.protocol import observe_slots
from palus.errors import ModelError
from palus.export.policy_file import PolicyFile, write_policy
from palus.nn.graph import mlp_policy
from palus.nn.network import Network
from palus.types import ActionSpec, BehaviorSpec, Discrete, GameSpec, ObservationSpec


@pytest.fixture(scope="module")
def env_spec() -> GameSpec:
    return envs.make("SoccerTwos", 1).spec


def snapshot_arrays(hidden: int = 8) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"layer0": (hidden, 336), "layer1": (hidden, hidden), **{f"branch{b}": (3, hidden) for b in range(3)}}
    arrays = {}
    for name, shape in shapes.items():
        arrays[f"{name}_weight"] = rng.normal(0, 0.5, shape).astype(np.float32)
        arrays[f"{name}_bias"] = rng.normal(0, 0.5, shape[0]).astype(np.float32)
    return arrays


def write_snapshot(path: Path, model: bytes | None) -> None:
    write_policy(path, PolicyFile("SoccerTwos", "SoccerTwos", SOCCER, NetworkSettings(), {}, model, 1000, snapshot=1))


@needs_models
def test_official_policy_matches_the_published_probabilities_on_scene_s1():
    env = envs.make("SoccerTwos", 1)
    agents = [(0, 0, 90), (8, -3, -90), (-5, 5, 90), (-8, -6, -90)]
    set_scene(env, 0, agents, (5, 0))
    room, _ = observe_slots(env, SOCCER, np.array([[True, False, False, False]]))
    seen = np.concatenate(list(room.values()), axis=1)
    policy = OnnxPlayer(MODELS / "unity-official-soccertwos.onnx", SOCCER)
    first = [0.0000, 1.0000, 0.0000, 1.0000, 0.0000, 0.0000, 0.9595, 0.0015, 0.0391]
    np.testing.assert_allclose(probabilities(policy, seen)[0], first, atol=1e-3)
    for start, size in ((0, 88), (264, 24)):  # the same frame three times
        seen[0, start : start + 2 * size] = np.tile(seen[0, start + 2 * size : start + 3 * size], 2)
    third = [0.0058, 0.9939, 0.0003, 0.9990, 0.0002, 0.0008, 0.9774, 0.0201, 0.0025]
    np.testing.assert_allclose(probabilities(policy, seen)[0], third, atol=1e-3)


def test_snapshot_and_its_export_play_alike_and_rows_do_not_touch_each_other(tmp_path: Path):
    model = mlp_policy(snapshot_arrays(), SOCCER).SerializeToString()
    write_snapshot(tmp_path / "snapshot-00001.npz", model)
    (tmp_path / "SoccerTwos.onnx").write_bytes(model)
    seen = np.random.default_rng(1).random((100, 336), dtype=np.float32)
    snapshot = OnnxPlayer(tmp_path / "snapshot-00001.npz", SOCCER)
    exported = OnnxPlayer(tmp_path / "SoccerTwos.onnx", SOCCER)
    np.testing.assert_allclose(probabilities(snapshot, seen), probabilities(exported, seen), atol=2e-5)
    for policy in (snapshot, exported):
        whole = probabilities(policy, seen)
        for rows in (slice(0, 1), slice(3, 40), slice(64, 100)):
            np.testing.assert_array_equal(probabilities(policy, seen[rows]), whole[rows])


def test_bad_snapshots_are_explained(tmp_path: Path):
    path = tmp_path / "s.npz"
    path.write_bytes(b"not a zip")
    with pytest.raises(ModelError, match="not a policy that palus wrote"):
        OnnxPlayer(path, SOCCER)
    np.savez(path, snapshot=np.array('{"id": 1}'), **snapshot_arrays())
    with pytest.raises(ModelError, match=r"weights without an ONNX model.*play the run's \.onnx"):
        OnnxPlayer(path, SOCCER)
    write_snapshot(path, None)
    with pytest.raises(ModelError, match=r"no ONNX model.*train on with --resume"):
        OnnxPlayer(path, SOCCER)
    arrays = snapshot_arrays()
    write_snapshot(
        path, mlp_policy(arrays | {"layer0_bias": np.full(8, np.nan, np.float32)}, SOCCER).SerializeToString()
    )
    with pytest.raises(ModelError, match="NaN"):
        OnnxPlayer(path, SOCCER)
    other = BehaviorSpec.of_vectors("SoccerTwos", (294,), SOCCER.branches)
    arrays["layer0_weight"] = np.zeros((8, 294), np.float32)
    write_snapshot(path, mlp_policy(arrays, other).SerializeToString())
    with pytest.raises(ModelError, match=r"obs_0 \[batch, 294\].*SoccerTwos needs"):
        OnnxPlayer(path, SOCCER)


def test_files_that_would_compute_for_hours_or_with_gigabytes_are_refused(tmp_path: Path, monkeypatch):
    (tmp_path / "large.onnx").write_bytes(swelling(1 << 29).SerializeToString())
    with pytest.raises(ModelError, match=r"large\.onnx: needs more than 1024 MiB of memory for 16 observations"):
        OnnxPlayer(tmp_path / "large.onnx", SOCCER)
    (tmp_path / "slow.onnx").write_bytes(heavy(512, 20, 8).SerializeToString())
    (tmp_path / "fine.onnx").write_bytes(stock().SerializeToString())
    OnnxPlayer(tmp_path / "fine.onnx", SOCCER)
    monkeypatch.setattr(policies, "PROBE_S", 0.02)
    with pytest.raises(ModelError, match=r"slow\.onnx: takes more than 0\.02 s for 16 observations"):
        OnnxPlayer(tmp_path / "slow.onnx", SOCCER)


def test_unknown_players_get_a_suggestion(tmp_path: Path, env_spec: GameSpec):
    (tmp_path / "striker-v2.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match=r"did you mean .*striker-v2\.onnx\?"):
        load_player(str(tmp_path / "striker-v3.onnx"), env_spec)
    with pytest.raises(ModelError, match=r"did you mean ball-chaser\?"):
        load_player("bal-chaser", env_spec)
    with pytest.raises(ModelError, match=r"SoccerTwos\.onnx is missing; it holds striker-v2\.onnx"):
        load_player(str(tmp_path), env_spec)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "SoccerTwos.onnx").touch()
    (tmp_path / "runs" / "snapshot-00001.npz").touch()
    with pytest.raises(ModelError, match=r"is missing; it holds mine, snapshot-00001\.npz: name one of them"):
        load_player(str(tmp_path / "runs"), env_spec)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelError, match="not a policy"):
        load_player(str(tmp_path / "notes.txt"), env_spec)


def test_folder_gives_files_bundles_and_snapshots_once_and_names_what_it_skips(tmp_path: Path, env_spec: GameSpec):
    arrays = snapshot_arrays()
    model = mlp_policy(arrays, SOCCER).SerializeToString()
    (tmp_path / "alpha.onnx").write_bytes(model)
    (tmp_path / "copy-of-alpha.onnx").write_bytes(model)
    (tmp_path / "broken.onnx").write_bytes(b"broken")
    (tmp_path / "bundle").mkdir()
    other = arrays | {"branch0_bias": np.float32([1, 2, 3])}
    (tmp_path / "bundle" / "SoccerTwos.onnx").write_bytes(mlp_policy(other, SOCCER).SerializeToString())
    write_snapshot(tmp_path / "snapshot-00002.npz", model)
    (tmp_path / "folder.onnx").mkdir()
    players, rejected = find_players(tmp_path, env_spec)
    assert [p.name for p in players] == ["alpha", "snapshot-00002", "bundle"]
    assert len(rejected) == 1
    assert "broken.onnx: corrupt" in rejected[0]


def test_run_folder_gives_its_policy_and_its_checkpoints(tmp_path: Path, env_spec: GameSpec):
    run = tmp_path / "mine"
    (run / "SoccerTwos").mkdir(parents=True)
    for step, bias in (("-1000", 1.0), ("-2000", 2.0), ("", 2.0)):
        arrays = snapshot_arrays() | {"branch0_bias": np.float32([bias, 0, 0])}
        path = run / "SoccerTwos" / f"SoccerTwos{step}.onnx" if step else run / "SoccerTwos.onnx"
        path.write_bytes(mlp_policy(arrays, SOCCER).SerializeToString())
    players, _ = find_players(run, env_spec)
    assert [p.name for p in players] == ["mine", "SoccerTwos-1000"]  # the last checkpoint is the policy itself


def masked_behavior() -> BehaviorSpec:
    actions = ActionSpec((Discrete(2), Discrete(3)), masked=True)
    seen = (ObservationSpec("numbers", (4,)), ObservationSpec("eye", (1, 48, 64), "uint8"))
    return BehaviorSpec("Masked", seen, actions)


@pytest.mark.parametrize("behavior", [SOCCER, masked_behavior()], ids=["ML-Agents' names", "picture and masks"])
def test_what_training_writes_plays_with_memory_and_masks_as_it_trained(tmp_path: Path, behavior: BehaviorSpec):
    settings = AppoNetworkSettings(hidden_units=8, memory={"memory_size": 8})
    network = Network(behavior, settings, torch.Generator().manual_seed(1))
    (tmp_path / "it.onnx").write_bytes(network.onnx().SerializeToString())
    player, rng = OnnxPlayer(tmp_path / "it.onnx", behavior), np.random.default_rng(0)
    seen = {
        o.name: (rng.random((5, *o.shape)) * (255 if o.is_image else 1)).astype(o.dtype) for o in behavior.observations
    }
    masks = rng.random((5, sum(behavior.branches))) < 0.5
    masks[:, behavior.branch_offsets[:-1]] = True
    states = rng.random((5, player.state_size), dtype=np.float32)
    probabilities, after = player.answer(seen, states, masks)
    logits, _, expected = network.act(
        {name: torch.from_numpy(rows) for name, rows in seen.items()}, torch.from_numpy(states), torch.from_numpy(masks)
    )
    wanted = torch.cat([part.softmax(1) for part in logits.split(list(behavior.branches), 1)], 1)
    np.testing.assert_allclose(probabilities, wanted.numpy(), atol=1e-5)
    np.testing.assert_allclose(after, expected.numpy(), atol=1e-5)
    assert (probabilities[~masks] == 0).all() and is_distribution(probabilities, behavior.branches, masks).all()
    assert not is_distribution(player.answer(seen, states)[0], behavior.branches, masks).all()
    uniform, _ = RandomPlayer(behavior).answer(seen, states, masks)
    assert (uniform[~masks] == 0).all() and is_distribution(uniform, behavior.branches, masks).all()
