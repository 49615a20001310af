"""Which weights of a network belong together so that its policy commutes with its game's reflection.

Hidden units come in pairs, half a layer apart, each of which answers the mirror image as the other answers what is
seen; a value is its own image.
Source: van der Pol et al. 2020 (MDP Homomorphic Networks, arXiv 2006.16908), section 4, for a group of two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from palus.config.network import NetworkSettings
from palus.errors import ConfigError
from palus.types import BehaviorSpec


def images(
    spec: BehaviorSpec,
    settings: NetworkSettings,
    layers: Mapping[str, nn.Linear],
    first: Collection[nn.Linear],
    policy: nn.Linear,
    values: nn.Linear | None,
) -> dict[str, Tensor]:
    """For `FlatParameters.tie`: by name of a weight, for each of its numbers the place of the number's image.

    layers: all of them, by name; first: those that read observations; policy, values: those that end the network.
    Raises ConfigError where there is no image, or a part that has none.
    """
    reflection = spec.reflection
    plain = all(o.is_vector and not o.goal for o in spec.observations)
    plain = plain and settings.encoding == "joint" and settings.memory is None
    odd = [width for width in (settings.hidden_units, *settings.decoder_layers) if width % 2]
    if reflection is None or not plain or not spec.actions.is_discrete or odd:
        found = "layers of odd width" if odd else "no mirror image that its network could keep to"
        raise ConfigError(
            f"network_settings.symmetric: {spec.name} has {found}; it needs a game that declares one, nothing but "
            "vectors to see (encoding: joint) and choices to do, no memory, and layers of even width"
        )
    outputs = {policy: torch.tensor(reflection.logits)}
    if values is not None:
        outputs[values] = torch.arange(values.out_features)
    images: dict[str, Tensor] = {}
    for name, layer in layers.items():
        columns = torch.tensor(reflection.observations) if layer in first else _swapped(layer.in_features)
        rows = outputs[layer] if layer in outputs else _swapped(layer.out_features)
        images[f"{name}.weight"] = (rows[:, None] * layer.in_features + columns).flatten()
        images[f"{name}.bias"] = rows
    return images


def _swapped(units: int) -> Tensor:
    """The two halves of a layer in each other's place."""
    return torch.arange(units).roll(units // 2)
