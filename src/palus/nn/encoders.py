"""Encoders of observations: stacks of convolutions for images, fully connected layers for vectors.

An encoder of one's own is a module `Class(shape, settings)` with `out_features`, named `module:Class` in the run file;
see examples/own_encoder.py. Names of weights are Sample Factory's, so that its checkpoints can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from palus.config.network import Activation, NetworkSettings
from palus.errors import ConfigError
from palus.nn.elu import Elu
from palus.nn.stacks import CONVOLUTIONS, RESIDUAL, RESNET_CHANNELS, RESNET_STAGES, stage_padding
from palus.trust import NOBODY, Trust, load
from palus.types import ObservationSpec


def activate(name: Activation, inplace: bool = True) -> nn.Module:
    """An activation; in place it spares a pass over memory, where what it overwrites is read by nothing else."""
    if name == "elu":
        return Elu() if inplace else nn.ELU()
    if name == "swish":
        return nn.SiLU()
    return nn.Tanh() if name == "tanh" else nn.ReLU(inplace)


def fully_connected(in_features: int, widths: Sequence[int], activation: Activation) -> nn.Sequential:
    """Linear layers of those widths, each followed by the activation; empty for no widths."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(in_features, width), activate(activation)]
        in_features = width
    return nn.Sequential(*layers)


class VectorEncoder(nn.Module):
    """[R, size] -> [R, out_features]: `num_layers` layers of `hidden_units`."""

    def __init__(self, size: int, settings: NetworkSettings) -> None:
        super().__init__()
        widths = [settings.hidden_units] * settings.num_layers
        self.mlp_head = fully_connected(size, widths, settings.activation)
        self.out_features = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp_head(x)  # type: ignore[no-any-return]


class ResidualBlock(nn.Module):
    """x + conv(act(conv(act(x)))), 3 x 3, the size kept."""

    def __init__(self, channels: int, activation: Activation) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
        self.res_block_core = nn.Sequential(
            activate(activation, inplace=False), convolutions[0], activate(activation), convolutions[1]
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.res_block_core(x)  # type: ignore[no-any-return]


def _plain(channels: int, name: str, activation: Activation) -> nn.Sequential:
    layers: list[nn.Module] = []
    for out, kernel, stride in CONVOLUTIONS[name]:
        layers += [nn.Conv2d(channels, out, kernel, stride), activate(activation)]
        channels = out
    return nn.Sequential(*layers)


def _residual(channels: int, activation: Activation) -> nn.Sequential:
    layers: list[nn.Module] = []
    for out in RESNET_CHANNELS:
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [ResidualBlock(out, activation), ResidualBlock(out, activation)]
        channels = out
    return nn.Sequential(*layers, activate(activation))


def _strided(channels: int, activation: Activation) -> nn.Sequential:
    layers: list[nn.Module] = []
    for out, kernel, stride, blocks in RESNET_STAGES:
        layers.append(nn.Conv2d(channels, out, kernel, stride, stage_padding(kernel)))
        layers += [ResidualBlock(out, activation) for _ in range(blocks)]
        layers.append(activate(activation))
        channels = out
    return nn.Sequential(*layers)


class ImageEncoder(nn.Module):
    """[R, channels, height, width] -> [R, out_features]: convolutions, then `image_layers` fully connected layers.

    Raises ConfigError when the image is too small for the stack.
    """

    def __init__(self, shape: tuple[int, int, int], settings: NetworkSettings) -> None:
        super().__init__()
        activation, name = settings.activation, settings.vis_encode_type
        if settings.vis_encode_type in RESIDUAL:
            self.conv_head = (_residual if settings.vis_encode_type == "resnet_impala" else _strided)(
                shape[0], activation
            )
        else:
            self.conv_head = _plain(shape[0], settings.vis_encode_type, activation)
        try:
            with torch.no_grad():
                flat = self.conv_head(torch.zeros(1, *shape)).numel()
        except RuntimeError as error:
            raise ConfigError(
                f"network_settings.vis_encode_type {name}: images of {shape[1]} x {shape[2]} are too small for its "
                "layers; use larger ones or another encoder"
            ) from error
        widths = [settings.image_units] * settings.image_layers
        self.mlp_layers = fully_connected(flat, widths, activation)
        self.out_features = widths[-1] if widths else flat

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp_layers(self.conv_head(x).flatten(1))  # type: ignore[no-any-return]


class _Named(nn.Module):
    """A convolutional stack under the name `enc`, where Sample Factory keeps it."""

    def __init__(self, enc: ImageEncoder) -> None:
        super().__init__()
        self.enc, self.out_features = enc, enc.out_features

    def forward(self, x: Tensor) -> Tensor:
        return self.enc(x)  # type: ignore[no-any-return]


def _encoder_of(observation: ObservationSpec, settings: NetworkSettings, trust: Trust) -> nn.Module:
    if not observation.is_image:
        return VectorEncoder(observation.size, settings)
    channels, height, width = observation.shape
    name = settings.vis_encode_type
    if name in CONVOLUTIONS:
        return _Named(ImageEncoder((channels, height, width), settings))
    if name in RESIDUAL:
        return ImageEncoder((channels, height, width), settings)
    encoder: nn.Module = _own_class(name, trust)((channels, height, width), settings)
    if not isinstance(getattr(encoder, "out_features", None), int):
        raise ConfigError(
            f"network_settings.vis_encode_type {name}: no attribute out_features; set it to its output's width"
        )
    return encoder


def width_of(encoder: nn.Module) -> int:
    """The encoder's `out_features`, which torch's modules declare as something more general."""
    return int(getattr(encoder, "out_features"))  # noqa: B009 (mypy knows no such attribute)


def _own_class(path: str, trust: Trust) -> Callable[..., nn.Module]:
    """The class that `module:Class` names. Raises ConfigError when there is none, TrustError when it may not run."""
    known = ", ".join([*CONVOLUTIONS, *RESIDUAL])
    if ":" not in path:
        raise ConfigError(
            f"network_settings.vis_encode_type {path}: not supported yet; use one of {known}, or module:Class of yours"
        )
    try:
        found: Callable[..., nn.Module] = load(path, trust, f"network_settings.vis_encode_type {path}")
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"network_settings.vis_encode_type {path}: cannot be imported ({error}); check module, class and PYTHONPATH"
        ) from error
    return found


class Encoder(nn.Module):
    """Encodes each observation and lays the results side by side, in the order of the game's specification."""

    def __init__(
        self, observations: Sequence[ObservationSpec], settings: NetworkSettings, trust: Trust = NOBODY
    ) -> None:
        super().__init__()
        encoders = {o.name: _encoder_of(o, settings, trust) for o in observations}
        self.encoders = nn.ModuleDict(encoders)
        self.out_features = sum(width_of(encoder) for encoder in encoders.values())

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """inputs: name -> [R, *shape] in the network's number format -> [R, out_features]."""
        encoded = [encoder(inputs[name]) for name, encoder in self.encoders.items()]
        return torch.cat(encoded, 1) if len(encoded) > 1 else encoded[0]
