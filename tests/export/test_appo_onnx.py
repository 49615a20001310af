"""ONNX files of APPO networks answer what torch answers, over several decisions with the state carried along."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch

from palus.config.appo import AppoNetworkSettings
from palus.errors import ModelError
from palus.export.appo_onnx import build_appo_onnx
from palus.nn.network import Network
from palus.nn.running import RunningMoments
from palus.types import ActionSpec, Continuous, Discrete, GameSpec, ObservationSpec

LSTM = {"kind": "lstm", "memory_size": 96, "num_layers": 2}
IMAGE = ObservationSpec("obs", (3, 72, 128), "uint8")
SMALL_IMAGE = ObservationSpec("obs", (3, 40, 48), "uint8")
VECTOR = ObservationSpec("measurements", (23,))
MIXED = ActionSpec((Discrete(3), Continuous(2), Discrete(2)))
CASES: dict[str, tuple[tuple[ObservationSpec, ...], ActionSpec, dict[str, Any]]] = {
    "doom": ((IMAGE,), ActionSpec((Discrete(5),)), {}),
    "measurements": ((IMAGE, VECTOR), ActionSpec((Discrete(3), Discrete(2))), {"hidden_units": 128}),
    "lstm, two layers": ((VECTOR,), MIXED, {"memory": LSTM, "activation": "swish"}),
    "separate critic": ((VECTOR,), MIXED, {"shared_critic": False, "adaptive_deviation": False}),
    "no core": ((VECTOR,), MIXED, {"memory": None, "decoder_layers": (32, 16), "activation": "tanh"}),
    "resnet": ((SMALL_IMAGE,), ActionSpec((Discrete(4),)), {"vis_encode_type": "resnet_impala", "normalize": False}),
    "strided resnet": (
        (SMALL_IMAGE,),
        ActionSpec((Discrete(4),)),
        {"vis_encode_type": "resnet_strided", "activation": "relu"},
    ),
    "squashed": (
        (VECTOR,),
        ActionSpec((Continuous(3),)),
        {"tanh_scale": 2.0, "adaptive_deviation": False, "memory": None, "normalize_names": ("other",)},
    ),
}


def _network(case: str) -> Network:
    """A network with weights and moments that matter: every term of the graph shows in its outputs."""
    observations, actions, changes = CASES[case]
    rest = {name: value for name, value in changes.items() if name != "shared_critic"}
    settings = AppoNetworkSettings(**{"hidden_units": 64, "memory": {"memory_size": 48}, **rest})
    spec, shared = GameSpec.alike("game", observations, actions), changes.get("shared_critic", True)
    network = Network(spec, settings, torch.Generator().manual_seed(1), critic="shared" if shared else "separate")
    network.returns = RunningMoments(1)
    rng = np.random.default_rng(2)
    arrays = {
        name: rng.uniform(0.2, 0.6, a.shape) if "running_" in name else a + 0.1 * rng.standard_normal(a.shape)
        for name, a in network.arrays().items()
    }
    network.load_arrays(
        {name: np.asarray(a, np.float64 if "running" in name else np.float32) for name, a in arrays.items()}
    )
    return network


def _observe(observations: tuple[ObservationSpec, ...], rng: np.random.Generator) -> dict[str, Any]:
    return {
        o.name: rng.integers(0, 256, (4, *o.shape), np.uint8)
        if o.dtype == "uint8"
        else rng.standard_normal((4, *o.shape)).astype(np.float32)
        for o in observations
    }


def _expected(parameters: np.ndarray, actions: ActionSpec) -> dict[str, np.ndarray]:
    """What the outputs mean, from the parameters of the distribution."""
    probabilities, means, deviations = [], [], []
    for part, columns in zip(actions.parts, actions.parameter_slices, strict=True):
        own = parameters[:, columns].astype(np.float64)
        if isinstance(part, Discrete):
            e = np.exp(own - own.max(1, keepdims=True))
            probabilities.append(e / e.sum(1, keepdims=True))
        else:
            means.append(own[:, : part.size])
            deviations.append(np.exp(own[:, part.size :]))
    found = {"action_probabilities": probabilities, "action_means": means, "action_deviations": deviations}
    return {name: np.concatenate(pieces, 1) for name, pieces in found.items() if pieces}


@pytest.mark.parametrize("case", CASES)
def test_onnx_answers_as_torch_does(case: str) -> None:
    network = _network(case)
    model = build_appo_onnx(network.arrays(), network.spec, network.settings)
    assert max(opset.version for opset in model.opset_import) <= 15
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(3)
    states = np.zeros((4, network.state_size), np.float32)
    ours = states.copy()
    for _ in range(3):
        seen = _observe(network.spec.observations, rng)
        parameters, values, after = network.act(
            {name: torch.from_numpy(rows) for name, rows in seen.items()}, torch.from_numpy(states)
        )
        states = after.numpy()
        feed = seen | ({"recurrent_in": ours} if network.state_size else {})
        found = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True))
        ours = found.get("recurrent_out", ours)
        expected = _expected(parameters.numpy(), network.spec.actions) | {"values": values.numpy()}
        if network.state_size:
            expected["recurrent_out"] = states
        assert found.keys() == expected.keys()
        for name, numbers in expected.items():
            np.testing.assert_allclose(found[name], numbers, rtol=1e-4, atol=1e-4, err_msg=name)


def test_observations_far_from_the_usual_are_clipped_as_in_torch() -> None:
    network = _network("no core")
    model = build_appo_onnx(network.arrays(), network.spec, network.settings)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    far = np.repeat(np.float32([[1e3], [1e6], [-1e3], [0.0]]), VECTOR.size, 1)
    found, values = session.run(["action_probabilities", "values"], {VECTOR.name: far})
    parameters, expected, _ = network.act({VECTOR.name: torch.from_numpy(far)}, torch.zeros(4, 0))
    wanted = _expected(parameters.numpy(), network.spec.actions)["action_probabilities"]
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    np.testing.assert_allclose(values, expected.numpy(), atol=1e-4)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)  # both beyond 5 deviations
    assert np.abs(found[0] - found[2]).max() > 1e-3


def test_broken_weights_are_not_exported() -> None:
    network = _network("no core")
    arrays = network.arrays()
    arrays["critic_linear.bias"][0] = np.nan
    with pytest.raises(ModelError, match=r"critic_linear\.bias holds NaN"):
        build_appo_onnx(arrays, network.spec, network.settings)


def test_an_encoder_of_ones_own_is_named_as_the_reason() -> None:
    network = _network("doom")
    settings = network.settings.model_copy(update={"vis_encode_type": "mine:Encoder"})
    with pytest.raises(ModelError, match="encoder of your own"):
        build_appo_onnx(network.arrays(), network.spec, settings)
