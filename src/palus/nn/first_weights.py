"""The first weights of a network: in which order its modules draw them, and from what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn

from palus.config.network import NetworkSettings
from palus.nn.cores import Core
from palus.nn.layers import Linear


def in_order(network: nn.Module, sides: Sequence[str], settings: NetworkSettings) -> Iterator[nn.Module]:
    """All modules as their first weights are drawn and all weights lie in the vector: as they were made, but ML-Agents'
    actor with its head before the critic with its head. sides: before the names of encoder, core and decoder."""
    if settings.initialization != "mlagents":
        yield from network.modules()
        return
    parts = [[side + part for part in ("encoder", "core", "decoder")] for side in sides]
    names = [*parts[0], "action_parameterization", *parts[-1], "critic_linear", "critic"]
    children = dict(network.named_children())
    for name in dict.fromkeys(names):
        if name in children:
            yield from children[name].modules()


@torch.no_grad()
def initialize(modules: Iterable[nn.Module], settings: NetworkSettings, generator: torch.Generator) -> None:
    """First weights of linear and convolutional layers, ML-Agents' of its memory too; all else keeps torch's. modules:
    `in_order`."""
    kind, gain = settings.initialization, settings.initialization_gain
    if kind == "mlagents":
        for module in modules:
            if isinstance(module, Linear):
                module.init(module.weight, generator)
                module.weight.mul_(gain)
                module.bias.zero_()
            elif isinstance(module, Core):
                module.initialize(generator)
    elif kind != "torch":
        draw = nn.init.orthogonal_ if kind == "orthogonal" else nn.init.xavier_uniform_
        for module in modules:
            if isinstance(module, nn.Linear | nn.Conv2d):
                draw(module.weight, gain=gain)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


def seed_of(generator: torch.Generator, settings: NetworkSettings) -> int:
    """For torch's own initialisers. ML-Agents' draws come from the generator itself, which this leaves untouched."""
    if settings.initialization == "mlagents":
        return generator.initial_seed()
    return int(torch.randint(2**62, (), generator=generator))
