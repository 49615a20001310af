"""Encoders of observations: convolutions for images, layers for vectors, attention for lists of entities.

Observations enter a network in one of two ways (`network_settings.encoding`). `Apart`: each has an encoder of its own
and the results lie side by side, as in Sample Factory, whose names of weights these are so that its checkpoints can be
read. `Joint`: vectors as they are, beside encoded images and entities, all through layers in common, as in ML-Agents.

An encoder of one's own is a module `Class(shape, settings)` with `out_features`, named `module:Class` in the run file;
see examples/own_encoder.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from palus.config.network import VISUAL_ENCODERS, NetworkSettings
from palus.errors import ConfigError
from palus.nn.goals import GoalLayers
from palus.nn.graph import Graph
from palus.nn.layers import (
    Activate,
    Chain,
    Convolution,
    Linear,
    MaxPool,
    Reader,
    fully_connected,
    named,
    write_onnx,
)
from palus.nn.parameters import kaiming, normal
from palus.nn.small_attention import SelfAttention, attention_gain
from palus.nn.sparse import FEWEST_NUMBERS, FEWEST_ZEROS, SparseLinear
from palus.trust import NOBODY, Trust, load
from palus.types import ObservationSpec

VECTORS = ""
"""Under this name all vectors together enter a network whose encoding is joint: [R, D], in the game's order."""
CONVOLUTIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "convnet_simple": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "convnet_impala": ((16, 8, 4), (32, 4, 2)),
    "convnet_atari": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    "fully_connected": (),
    "match3": ((35, 3, 1), (144, 3, 1)),
    "simple": ((16, 8, 4), (32, 4, 2)),
    "nature_cnn": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
}
"""Name -> (channels, kernel, stride) of each layer, without padding. Source: Sample Factory 2.1.1, ML-Agents 1.1.0."""
RESNET_CHANNELS = (16, 32, 32)
"""Stages of `resnet_impala` and `resnet`. Source: Espeholt et al. 2018 (IMPALA, arXiv 1802.01561), figure 3."""
RESNET_STAGES = ((32, 8, 4, 1), (64, 3, 2, 1), (64, 3, 2, 0))
"""Stages of `resnet_strided`: channels, kernel and stride of a convolution, then so many residual blocks.

IMPALA's blocks on fewer pixels and more channels, strides in place of pooling: at 72 x 128 it multiplies 29 million
times an image, `resnet_impala` 70 and `convnet_simple` 9.
"""
LARGEST_LEAST = 100
"""No encoder needs pictures of so many rows."""
CACHED_BYTES = 2**24
"""Of pictures that are learned from at once: 128 of Doom's in fp32, which made updates of `convnet_simple` 16 % faster
than 512 at once, of `resnet_impala` 21 %."""
DENSE_GAIN = 1.41
"""Of the layers after convolutions; ENTITY_UNITS: of attention over entities. Source: ML-Agents."""
ENTITY_UNITS = 128
SMALLEST = float(np.finfo(np.float32).tiny)
"""What an entity has of numbers, added up by size, is less than this in a file where it is all zero."""


class ResidualBlock(nn.Module):
    """x + conv(act(conv(act(x)))), 3 x 3, the size kept."""

    def __init__(self, channels: int, activation: str) -> None:
        super().__init__()
        convolutions = [Convolution(channels, channels, 3, padding=1) for _ in range(2)]
        self.res_block_core = Chain(
            Activate(activation, inplace=False), convolutions[0], Activate(activation), convolutions[1]
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.res_block_core(x)  # type: ignore[no-any-return]

    def onnx(self, g: Graph, x: str) -> str:
        return g.add("Add", [x, self.res_block_core.onnx(g, x)])


def _stack(name: str, channels: int, activation: str) -> tuple[Chain, str]:
    """The convolutions of that name, and the activation of the layers after them.

    ML-Agents' encoders have activations of their own.
    """
    modules: list[nn.Module] = []
    if name in CONVOLUTIONS:
        activation = "leaky_relu" if name in VISUAL_ENCODERS else activation
        for out, kernel, stride in CONVOLUTIONS[name]:
            modules += [Convolution(channels, out, kernel, stride), Activate(activation)]
            channels = out
    elif name == "resnet_strided":
        for out, kernel, stride, blocks in RESNET_STAGES:
            # Odd kernels look over the edge, even ones do not.
            modules.append(Convolution(channels, out, kernel, stride, padding=kernel // 2 if kernel % 2 else 0))
            modules += [ResidualBlock(out, activation) for _ in range(blocks)]
            modules.append(Activate(activation))
            channels = out
    else:
        inside, activation, padding = ("swish", "relu", 0) if name == "resnet" else (activation, activation, 1)
        for out in RESNET_CHANNELS:
            modules += [Convolution(channels, out, 3, padding=1), MaxPool(padding)]
            modules += [ResidualBlock(out, inside) for _ in range(2)]
            channels = out
        modules.append(Activate(inside))
    return Chain(*modules), activation


def _least(name: str, channels: int, activation: str) -> str:
    """The smallest picture that the layers take, as a part of a sentence."""
    layers = _stack(name, channels, activation)[0]
    for side in range(1, LARGEST_LEAST):
        try:
            with torch.no_grad():
                layers(torch.zeros(1, channels, side, side))
        except RuntimeError:
            continue
        return f", which need {side} x {side}"
    return ""


def _cached(x: Tensor) -> Sequence[Tensor]:
    """Pictures that gradients are wanted of, cut so that what convolutions make of them stays in a CPU's cache on the
    way there and back. Decisions stay whole: what a row gives must not depend on how many others there are."""
    if not (x.is_cpu and torch.is_grad_enabled()):
        return (x,)
    return torch.tensor_split(x, -(-x.numel() * x.element_size() // CACHED_BYTES) or 1)


class ImageEncoder(nn.Module):
    """[R, channels, height, width] -> [R, out_features]: convolutions, then `image_layers` fully connected layers.

    What was encoded elsewhere (`palus.nn.int8`) passes through: [R, out_features].

    Raises ConfigError when the image is too small for the stack.
    """

    def __init__(self, shape: tuple[int, ...], settings: NetworkSettings) -> None:
        super().__init__()
        name = settings.vis_encode_type
        self.conv_head, activation = _stack(name, shape[0], settings.activation)
        try:
            with torch.no_grad():
                flat = self.conv_head(torch.zeros(1, *shape)).numel()
        except RuntimeError as error:
            raise ConfigError(
                f"network_settings.vis_encode_type {name}: images of {shape[2]} x {shape[1]} are too small for its "
                f"layers{_least(name, shape[0], settings.activation)}; use larger ones or another encoder"
            ) from error
        self.flat, widths = flat, [settings.image_units] * settings.image_layers
        self.mlp_layers = fully_connected(flat, widths, activation, kaiming(DENSE_GAIN))
        self.out_features = self.mlp_layers.out_features

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            return x
        features = [self.conv_head(part).flatten(1) for part in _cached(x)]
        encoded: Tensor = self.mlp_layers(torch.cat(features) if len(features) > 1 else features[0])
        return encoded

    def onnx(self, g: Graph, x: str) -> str:
        return self.mlp_layers.onnx(g, g.add("Reshape", [self.conv_head.onnx(g, x), g.shape(-1, self.flat)]))


class EntityEncoder(nn.Module):
    """Attention over the entities of some observations: name -> [R, entities, size] -> [R, 128].

    Entities that are all zero are absent. With `others` [R, width], what else is known, every entity is seen beside it.
    Source: ML-Agents' variable-length observations, its sizes and initialisation.
    """

    out_features = ENTITY_UNITS

    def __init__(self, observations: Sequence[ObservationSpec], width: int) -> None:
        super().__init__()
        init = normal(attention_gain(ENTITY_UNITS))
        own = ENTITY_UNITS if width else 0
        self.shapes = {o.name: o.shape for o in observations}
        self.own = Linear(width, ENTITY_UNITS, init) if width else None
        self.entities = nn.ModuleDict({o.name: Linear(o.shape[1] + own, ENTITY_UNITS, init) for o in observations})
        self.attention = SelfAttention(ENTITY_UNITS)

    def forward(self, inputs: Mapping[str, Tensor], others: Tensor | None = None) -> Tensor:
        own = F.silu(self.own(others)).unsqueeze(1) if self.own is not None else None
        parts, present = [], []
        for name, (count, size) in self.shapes.items():
            x = inputs[name].view(-1, count, size)
            present.append((x != 0).any(2))
            if own is not None:
                x = torch.cat([x, own.expand(-1, count, -1)], 2)
            parts.append(self.entities[name](x))
        there = torch.cat(present, 1)
        everyone = torch.arange(there.shape[1], device=there.device).unsqueeze(0)
        return self.attention(parts, everyone, there)[:, 0]  # type: ignore[no-any-return]

    def onnx(self, g: Graph, inputs: Mapping[str, str], others: str | None = None) -> str:
        """As `forward`, on names."""
        own = None
        if self.own is not None and others is not None:
            own = g.add("Unsqueeze", [Activate("swish").onnx(g, self.own.onnx(g, others))], axes=[1])
        embedded, present = [], []
        for name, (count, size) in self.shapes.items():
            x = inputs[name]
            # |x| without Abs, which ML-Agents' own files do not have; the square of a small number is 0.
            parts = [g.add("Relu", [part]) for part in (x, g.add("Mul", [x, g.number(-1.0)]))]
            sizes = g.add("ReduceSum", [g.add("Add", parts)], axes=[2], keepdims=0)
            absent = g.add("Cast", [g.add("Less", [sizes, g.number(SMALLEST)])], to=1)
            present.append(g.add("Add", [g.add("Mul", [absent, g.number(-1.0)]), g.number(1.0)]))
            if own is not None:
                again = g.add("Concat", [own] * count, axis=1) if count > 1 else own
                x, size = g.add("Concat", [x, again], axis=2), size + ENTITY_UNITS
            rows = g.add("Reshape", [x, g.shape(-1, size)])
            rows = Activate("swish").onnx(g, write_onnx(self.entities[name], g, rows))
            embedded.append(g.add("Reshape", [rows, g.shape(-1, count, ENTITY_UNITS)]))
        everyone = sum(count for count, _ in self.shapes.values())
        return self.attention.onnx(g, g.beside(embedded), g.beside(present), everyone)


def _image_encoder(observation: ObservationSpec, settings: NetworkSettings, trust: Trust) -> nn.Module:
    name = settings.vis_encode_type
    if ":" not in name:
        encoder = ImageEncoder(observation.shape, settings)
        return named("enc", encoder, encoder.out_features) if name.startswith("convnet_") else encoder
    own: nn.Module = _own_class(name, trust)(observation.shape, settings)
    if not isinstance(getattr(own, "out_features", None), int):
        raise ConfigError(
            f"network_settings.vis_encode_type {name}: no attribute out_features; set it to its output's width"
        )
    return own


def _own_class(path: str, trust: Trust) -> Callable[..., nn.Module]:
    """The class that `module:Class` names. Raises ConfigError when there is none, TrustError when it may not run."""
    try:
        found: Callable[..., nn.Module] = load(path, trust, f"network_settings.vis_encode_type {path}")
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"network_settings.vis_encode_type {path}: cannot be imported ({error}); check module, class and PYTHONPATH"
        ) from error
    return found


def normalizes(observation: ObservationSpec, settings: NetworkSettings) -> bool:
    """Whether a network brings the observation to mean 0. Entities stay as they are: absent ones are known by zeros."""
    names = settings.normalize_names
    wanted = settings.normalize and (names is None or observation.name in names)
    return wanted and observation.normalize and (observation.is_image or observation.is_vector)


def reader_of(observations: Sequence[ObservationSpec], settings: NetworkSettings) -> Callable[..., Linear]:
    """Makes the layer that reads these side by side."""
    zeros = sum(o.size for o in observations if o.sparse and o.is_vector and not normalizes(o, settings))
    read = sum(o.size if o.is_vector else np.inf for o in observations)  # what is encoded first has no zeros
    if zeros < FEWEST_ZEROS * read or read < FEWEST_NUMBERS:
        return Reader
    if not all(o.rays for o in observations):
        return SparseLinear
    each, ends = [o.size // o.rays for o in observations], np.cumsum([o.size for o in observations])
    distances = [
        place
        for o, size, end in zip(observations, each, ends.tolist(), strict=True)
        for place in range(end - o.size + size - 1, end, size)
    ]
    return partial(SparseLinear, distances=distances)


def width_of(encoder: nn.Module) -> int:
    """The encoder's `out_features`, which torch's modules declare as something more general."""
    return int(getattr(encoder, "out_features"))  # noqa: B009 (mypy knows no such attribute)


class Apart(nn.Module):
    """Encodes each observation and lays the results side by side, in the order of the game's specification.

    joined: names of the observations that enter together, under VECTORS. Raises ConfigError where a goal is to
    condition layers in common, of which there are none.
    """

    joined: tuple[str, ...] = ()

    def __init__(
        self, observations: Sequence[ObservationSpec], settings: NetworkSettings, trust: Trust = NOBODY
    ) -> None:
        super().__init__()
        if settings.goal_conditioning_type == "hyper" and any(o.goal for o in observations):
            raise ConfigError(
                "network_settings.goal_conditioning_type hyper: with encoding apart there are no hidden layers in "
                "common for the goal to condition; set encoding to joint, or goal_conditioning_type to none"
            )
        encoders: dict[str, nn.Module] = {}
        widths = [settings.hidden_units] * settings.num_layers
        for o in observations:
            if o.is_image:
                encoders[o.name] = _image_encoder(o, settings, trust)
            elif o.is_vector:
                first = reader_of([o], settings)
                encoders[o.name] = fully_connected(o.size, widths, settings.activation, name="mlp_head", first=first)
            else:
                encoders[o.name] = EntityEncoder([o], 0)
        self.encoders = nn.ModuleDict(encoders)
        self.out_features = sum(width_of(encoder) for encoder in encoders.values())

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """inputs: name -> [R, *shape] in the network's number format -> [R, out_features]."""
        encoded = [
            encoder(inputs if isinstance(encoder, EntityEncoder) else inputs[name])
            for name, encoder in self.encoders.items()
        ]
        return torch.cat(encoded, 1) if len(encoded) > 1 else encoded[0]

    def onnx(self, g: Graph, inputs: Mapping[str, str]) -> str:
        """As `forward`, on names."""
        encoded = [
            encoder.onnx(g, inputs) if isinstance(encoder, EntityEncoder) else write_onnx(encoder, g, inputs[name])
            for name, encoder in self.encoders.items()
        ]
        return g.beside(encoded)


class InputLayer(nn.Module):
    """Vectors as they are, beside encoded images, beside one vector for all entities: [R, out_features]."""

    def __init__(
        self, observations: Sequence[ObservationSpec], settings: NetworkSettings, trust: Trust = NOBODY
    ) -> None:
        super().__init__()
        vectors = [o for o in observations if o.is_vector]
        self.joined = tuple(o.name for o in vectors)
        self.encoders = nn.ModuleDict({o.name: _image_encoder(o, settings, trust) for o in observations if o.is_image})
        width = sum(o.size for o in vectors) + sum(width_of(encoder) for encoder in self.encoders.values())
        lists = [o for o in observations if not (o.is_vector or o.is_image)]
        self.attention = EntityEncoder(lists, width) if lists else None
        self.out_features = width + (ENTITY_UNITS if lists else 0)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """inputs: VECTORS -> [R, D], other names -> [R, *shape]."""
        parts = [inputs[VECTORS]] if self.joined else []
        parts += [encoder(inputs[name]) for name, encoder in self.encoders.items()]
        if self.attention is not None:
            parts.append(self.attention(inputs, torch.cat(parts, 1) if parts else None))
        return torch.cat(parts, 1) if len(parts) > 1 else parts[0]

    def onnx(self, g: Graph, inputs: Mapping[str, str]) -> str:
        """As `forward`, on names of single observations."""
        parts = [inputs[name] for name in self.joined]
        parts += [write_onnx(encoder, g, inputs[name]) for name, encoder in self.encoders.items()]
        if self.attention is not None:
            parts.append(self.attention.onnx(g, inputs, g.beside(parts) if parts else None))
        return g.beside(parts)


def _goal_columns(observations: Sequence[ObservationSpec], encoders: nn.ModuleDict) -> list[int]:
    """The columns of an `InputLayer` that hold goals, in the game's order."""
    columns, first = dict[str, range](), 0
    for o in [*(o for o in observations if o.is_vector), *(o for o in observations if o.is_image)]:
        width = o.size if o.is_vector else width_of(encoders[o.name])
        columns[o.name], first = range(first, first + width), first + width
    return [column for o in observations if o.goal for column in columns[o.name]]


class Joint(InputLayer):
    """The same through `num_layers` layers of `hidden_units` in common, which a goal may condition.

    Raises ConfigError where the goal is a list of entities.
    """

    def __init__(
        self, observations: Sequence[ObservationSpec], settings: NetworkSettings, trust: Trust = NOBODY
    ) -> None:
        super().__init__(observations, settings, trust)
        units, number, activation = settings.hidden_units, settings.num_layers, settings.activation
        goals = [o for o in observations if o.goal] if settings.goal_conditioning_type == "hyper" else []
        for o in goals:
            if not (o.is_vector or o.is_image):
                raise ConfigError(
                    f"network_settings.goal_conditioning_type hyper: the goal {o.name} is a list of entities; expected "
                    "a vector or an image, or goal_conditioning_type none, which takes it as any other observation"
                )
        self.layers: Chain | GoalLayers = (
            GoalLayers(self.out_features, _goal_columns(observations, self.encoders), units, number, activation)
            if goals
            else fully_connected(
                self.out_features, [units] * number, activation, first=reader_of(observations, settings)
            )
        )
        self.out_features = self.layers.out_features

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return self.layers.forward(super().forward(inputs))

    def onnx(self, g: Graph, inputs: Mapping[str, str]) -> str:
        return self.layers.onnx(g, super().onnx(g, inputs))
