"""The example of an encoder of one's own works as it stands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch

from palus.config.appo import AppoNetworkSettings
from palus.nn.network import Network
from palus.trust import Trust
from palus.types import ActionSpec, BehaviorSpec, Discrete, ObservationSpec


def test_the_example_encodes_images_and_learns(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    spec = BehaviorSpec("doom", (ObservationSpec("obs", (3, 72, 128), "uint8"),), ActionSpec((Discrete(5),)))
    settings = AppoNetworkSettings(vis_encode_type="own_encoder:Strided", image_units=24, memory={"memory_size": 8})
    policy = Network(spec, settings, torch.Generator(), trust=Trust(frozenset({"own_encoder"})))
    pictures = torch.randint(0, 256, (4, 3, 72, 128), dtype=torch.uint8)
    inputs = policy.inputs({"obs": pictures.numpy()}, torch.arange(4).numpy())
    parameters, values, _ = policy(inputs, torch.zeros(2, 8), torch.ones(2, 2))
    gradients = policy.weights.backward([parameters, values], [torch.randn_like(parameters), torch.ones(4, 1)])
    by_name = dict(zip(policy.weights.shapes, gradients, strict=True))
    assert by_name["encoder.encoders.obs.layers.0.weight"].abs().max() > 0
    assert policy.arrays()["core.core.weight_ih_l0"].shape == (24, 24)
    session = ort.InferenceSession(policy.onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {"obs": pictures.numpy(), "recurrent_in": np.zeros((4, 8), np.float32)}
    (found,) = session.run(["action_probabilities"], feed)
    expected, _, _ = policy.act({"obs": pictures}, torch.zeros(4, 8))
    np.testing.assert_allclose(found, expected.softmax(1).numpy(), atol=1e-5)
