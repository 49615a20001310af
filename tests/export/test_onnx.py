"""Exported files: names, shapes and version fields as ML-Agents writes them; the same numbers as the torch policy."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from palus.config import load_run
from palus.errors import ModelError
from palus.export.onnx import build_onnx
from palus.learn.ppo import PPO
from palus.types import BehaviorSpec

SPEC = BehaviorSpec.of_vectors("SoccerTwos", (264, 72), (3, 3, 3))


def make_actor(normalize=False):
    settings = ("trainer_type=ppo", f"network_settings.normalize={str(normalize).lower()}")
    run = load_run("debug", [f"behaviors.SoccerTwos.{s}" for s in settings])
    actor = PPO(run.behaviors["SoccerTwos"], SPEC, torch.float32, 0).actor
    if normalize:
        actor.normalizer.update(torch.randn(500, 336, generator=torch.Generator().manual_seed(5)) * 3 + 1)
    return actor


def session(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def feed(observations, masks=None):
    masks = np.ones((len(observations), 9), np.float32) if masks is None else masks
    return {"obs_0": observations[:, :264], "obs_1": observations[:, 264:], "action_masks": masks}


def test_file_has_the_reference_interface():
    model = build_onnx(make_actor().arrays(), SPEC)

    def interface(values):
        return [
            (v.name, v.type.tensor_type.elem_type, [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim])
            for v in values
        ]

    f, i = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    assert interface(model.graph.input) == [
        ("obs_0", f, ["batch", 264]),
        ("obs_1", f, ["batch", 72]),
        ("action_masks", f, ["batch", 9]),
    ]
    assert interface(model.graph.output) == [
        ("version_number", f, [1]),
        ("memory_size", f, [1]),
        ("discrete_actions", i, ["batch", 3]),
        ("discrete_action_output_shape", f, [1, 3]),
        ("deterministic_discrete_actions", i, ["batch", 3]),
        ("action_probabilities", f, ["batch", 9]),
    ]
    assert model.ir_version == 4
    assert [o.version for o in model.opset_import] == [9]
    names = ["version_number", "memory_size", "discrete_action_output_shape"]
    fixed = session(model).run(names, feed(np.zeros((1, 336), np.float32)))
    assert [x.tolist() for x in fixed] == [[3.0], [0.0], [[3.0, 3.0, 3.0]]]


@pytest.mark.parametrize("normalize", [False, True])
def test_probabilities_equal_torch(normalize):
    actor = make_actor(normalize)
    observations = np.random.default_rng(0).normal(0, 2, (64, 336)).astype(np.float32)
    got, best = session(build_onnx(actor.arrays(), SPEC)).run(
        ["action_probabilities", "deterministic_discrete_actions"], feed(observations)
    )
    logits = actor(torch.from_numpy(observations)).view(64, 3, 3)
    np.testing.assert_allclose(got.reshape(64, 3, 3), logits.softmax(-1).numpy(), atol=1e-5)
    assert (best == logits.argmax(-1).numpy()).all()


def test_masked_actions_are_never_drawn():
    masks = np.ones((200, 9), np.float32)
    masks[:, [0, 4, 5]] = 0.0
    observations = np.random.default_rng(1).normal(size=(200, 336)).astype(np.float32)
    probabilities, sampled = session(build_onnx(make_actor().arrays(), SPEC)).run(
        ["action_probabilities", "discrete_actions"], feed(observations, masks)
    )
    assert (probabilities[:, [0, 4, 5]] == 0).all()
    assert set(sampled[:, 0]) <= {1, 2}
    assert set(sampled[:, 1]) == {0}
    assert set(sampled[:, 2]) == {0, 1, 2}


DRAWS = 200_000


@pytest.mark.parametrize("allowed", [[1, 2], [0, 2], [0, 1], [0], [1], [2]])
def test_a_forbidden_action_is_not_drawn_once_in_200_000(allowed):
    # Branches that are as sure of the forbidden actions as networks get, and one that is not.
    actor = make_actor()
    masks = np.zeros((1, 9), np.float32)
    masks[:, [b * 3 + a for b in range(3) for a in allowed]] = 1.0
    arrays = actor.arrays()
    for b, sureness in enumerate((0.0, 12.0, 60.0)):
        arrays[f"branch{b}_bias"] = np.float32([-sureness if a in allowed else sureness for a in range(3)])
    observations = np.zeros((DRAWS, 336), np.float32)
    probabilities, drawn = session(build_onnx(arrays, SPEC)).run(
        ["action_probabilities", "discrete_actions"], feed(observations, np.repeat(masks, DRAWS, 0))
    )
    assert (probabilities[:, masks[0] == 0] == 0.0).all()
    np.testing.assert_allclose(probabilities.reshape(-1, 3, 3).sum(2), 1.0, atol=1e-6)
    random = np.random.default_rng(0)
    for b in range(3):
        assert set(np.unique(drawn[:, b])) == set(allowed)
        chances = probabilities[0, 3 * b : 3 * b + 3].astype(np.float64)
        assert set(random.choice(3, DRAWS, p=chances / chances.sum())) == set(allowed)
        counts = np.bincount(drawn[:, b], minlength=3) / DRAWS
        np.testing.assert_allclose(counts, chances, atol=0.006)


def test_a_branch_that_allows_nothing_draws_evenly():
    masks = np.zeros((3000, 9), np.float32)
    masks[:, 3:] = 1.0
    observations = np.random.default_rng(2).normal(size=(3000, 336)).astype(np.float32)
    probabilities, drawn, best = session(build_onnx(make_actor().arrays(), SPEC)).run(
        ["action_probabilities", "discrete_actions", "deterministic_discrete_actions"], feed(observations, masks)
    )
    np.testing.assert_allclose(probabilities[:, :3], 1 / 3, rtol=1e-6)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(np.bincount(drawn[:, 0]) / 3000, 1 / 3, atol=0.04)
    assert set(best[:, 0]) <= {0, 1, 2}


def test_what_is_drawn_from_gives_forbidden_actions_no_chance_at_all():
    model = build_onnx(make_actor().arrays(), SPEC)
    drawn_from = [node.input[0] for node in model.graph.node if node.op_type == "Multinomial"]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 3]) for name in drawn_from
    )
    masks = np.float32([[0, 1, 1, 1, 0, 0, 1, 1, 1]])
    chances = np.exp(np.concatenate(session(model).run(drawn_from, feed(np.ones((1, 336), np.float32), masks)), 1))
    assert (chances[masks == 0] == 0.0).all()
    np.testing.assert_allclose(chances.reshape(3, 3).sum(1), 1.0, atol=1e-6)


def test_no_constant_is_reduced_by_the_mask():
    model = build_onnx(make_actor(normalize=True).arrays(), SPEC)
    constants = {tensor.name for tensor in model.graph.initializer}
    assert not [n.name for n in model.graph.node if n.op_type == "Sub" and n.input[0] in constants]


def test_normalised_observations_are_clipped_in_the_file_as_in_torch():
    actor = make_actor(normalize=True)
    far = np.zeros((4, 336), np.float32)
    far[0], far[1], far[2], far[3, ::2] = 1e3, -1e3, 1e6, 40.0
    unclipped = ((torch.from_numpy(far) - actor.normalizer.mean32) / actor.normalizer.std32).abs()
    assert (unclipped.amax(1) > 5.0).all()
    (got,) = session(build_onnx(actor.arrays(), SPEC)).run(["action_probabilities"], feed(far))
    expected = actor(torch.from_numpy(far)).view(4, 3, 3).softmax(-1).numpy().reshape(4, 9)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    np.testing.assert_allclose(got[0], got[2], atol=1e-6)  # both beyond the limit everywhere
    assert np.abs(got[0] - got[1]).max() > 1e-3


def test_diverged_weights_are_not_exported():
    arrays = make_actor().arrays()
    arrays["layer0_bias"][3] = np.nan
    with pytest.raises(ModelError, match="layer0_bias holds NaN"):
        build_onnx(arrays, SPEC)
