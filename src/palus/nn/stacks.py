"""Layers of the image encoders by name, for the modules that compute them and for the ONNX files (no torch here)."""

from __future__ import annotations

from collections.abc import Iterable

CONVOLUTIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "convnet_simple": ((32, 8, 4), (64, 4, 2), (128, 3, 2)),
    "convnet_impala": ((16, 8, 4), (32, 4, 2)),
    "convnet_atari": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
}
"""Name -> (channels, kernel, stride) of each layer, without padding. Source: Sample Factory 2.1.1."""
RESNET_CHANNELS = (16, 32, 32)
"""Stages of `resnet_impala`. Source: Espeholt et al. 2018 (IMPALA, arXiv 1802.01561), figure 3."""
RESNET_STAGES = ((32, 8, 4, 1), (64, 3, 2, 1), (64, 3, 2, 0))
"""Stages of `resnet_strided`: channels, kernel and stride of a convolution, then so many residual blocks.

IMPALA's blocks on fewer pixels and more channels, strides in place of pooling: at 72 x 128 it multiplies 29 million
times an image, `resnet_impala` 70 and `convnet_simple` 9.
"""
RESIDUAL = ("resnet_impala", "resnet_strided")


def stage_padding(kernel: int) -> int:
    """Of a convolution in RESNET_STAGES: odd kernels look over the edge, even ones do not."""
    return kernel // 2 if kernel % 2 else 0


def sides_of(weights: Iterable[str]) -> tuple[str, ...]:
    """Prefixes of the bodies in a policy's weights: one where policy and value share theirs."""
    return ("actor_", "critic_") if any(name.startswith("critic_encoder.") for name in weights) else ("",)
