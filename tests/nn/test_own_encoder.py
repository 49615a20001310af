"""An encoder of one's own: named by its path, it says how wide it is; the example works as it stands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from small_networks import DOOM, TINY, network

from palus.config.appo import AppoNetworkSettings
from palus.errors import ConfigError
from palus.nn.network import Network
from palus.trust import Trust

OURS = Trust(frozenset({"palus.nn", __name__, "no_such_module"}))


def test_the_example_encodes_images_and_learns(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    settings = AppoNetworkSettings(vis_encode_type="own_encoder:Strided", image_units=24, memory={"memory_size": 8})
    policy = Network(DOOM, settings, torch.Generator(), trust=Trust(frozenset({"own_encoder"})))
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


class OwnEncoder(torch.nn.Module):
    def __init__(self, shape: tuple[int, int, int], settings: AppoNetworkSettings) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(shape[0], settings.hidden_units)
        self.out_features = settings.hidden_units

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.mean((2, 3)))


def test_an_encoder_of_ones_own_is_named_by_its_path(monkeypatch) -> None:
    monkeypatch.setattr("palus.nn.encoders.OwnEncoder", OwnEncoder, raising=False)
    arrays = network(trust=OURS, vis_encode_type="palus.nn.encoders:OwnEncoder", **TINY).arrays()
    assert arrays["encoder.encoders.obs.layer.weight"].shape == (16, 3)


@pytest.mark.parametrize("encoder", ["palus.nn.encoders:Missing", "no_such_module:Class"])
def test_an_unknown_encoder_is_an_error_of_the_run_file(encoder: str) -> None:
    with pytest.raises(ConfigError, match=r"network_settings\.vis_encode_type"):
        network(trust=OURS, vis_encode_type=encoder)


def test_an_encoder_of_ones_own_says_how_wide_it_is(monkeypatch) -> None:
    class Silent(OwnEncoder):
        def __init__(self, shape: tuple[int, int, int], settings: AppoNetworkSettings) -> None:
            super().__init__(shape, settings)
            del self.out_features

    monkeypatch.setattr("palus.nn.encoders.Silent", Silent, raising=False)
    with pytest.raises(ConfigError, match=r"vis_encode_type palus\.nn\.encoders:Silent: no attribute out_features"):
        network(trust=OURS, vis_encode_type="palus.nn.encoders:Silent", **TINY)
