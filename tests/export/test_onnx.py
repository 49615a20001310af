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

SPEC = BehaviorSpec("SoccerTwos", (264, 72), (3, 3, 3))


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


def test_diverged_weights_are_not_exported():
    arrays = make_actor().arrays()
    arrays["layer0_bias"][3] = np.nan
    with pytest.raises(ModelError, match="layer0_bias holds NaN"):
        build_onnx(arrays, SPEC)
