"""All weights of a network in one vector, so that copies, norms and optimiser steps are single calls.

`master` is the fp32 vector that the optimiser moves. `tensors` are views of `work`, the vector that the forward pass
reads: the master itself on the fp32 paths, a bfloat16 copy of it on the bf16 path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

Init = Callable[[Tensor, torch.Generator], None]


def kaiming(gain: float = 1.0) -> Init:
    """Normal with std gain / sqrt(fan_in): ML-Agents' "Kaiming" initialisation for linear layers."""

    def init(weight: Tensor, generator: torch.Generator) -> None:
        weight.normal_(0.0, gain / math.sqrt(weight.shape[1]), generator=generator)

    return init


def normal(gain: float) -> Init:
    """Normal with std gain: ML-Agents' "Normal" initialisation."""

    def init(weight: Tensor, generator: torch.Generator) -> None:
        weight.normal_(0.0, gain, generator=generator)

    return init


def xavier_uniform(weight: Tensor, generator: torch.Generator) -> None:
    """Uniform in +-sqrt(6 / (fan_in + fan_out)). Source: Glorot and Bengio 2010, equation 16."""
    bound = math.sqrt(6.0 / (weight.shape[0] + weight.shape[1]))
    weight.uniform_(-bound, bound, generator=generator)


@dataclass(frozen=True)
class Shard:
    """Whole tensors `first_tensor` to `end_tensor` (exclusive), numbers `start` to `end` of the vector."""

    first_tensor: int
    end_tensor: int
    start: int
    end: int


class FlatParameters:
    """Named linear layers in one vector; `of_module` takes any other network.

    layers: name -> (out, in, initialiser of the weight); each contributes `<name>_weight` [out, in] and
    `<name>_bias` [out], biases zero.
    """

    def __init__(
        self, layers: Mapping[str, tuple[int, int, Init]], *, dtype: torch.dtype, generator: torch.Generator
    ) -> None:
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (out, in_, _) in layers.items():
            shapes[f"{name}_weight"] = (out, in_)
            shapes[f"{name}_bias"] = (out,)
        self._allocate(shapes)
        for name, (_, _, init) in layers.items():
            init(self._master_views[f"{name}_weight"], generator)
        self._open(dtype, {})

    @classmethod
    def of_module(
        cls, module: torch.nn.Module, dtype: torch.dtype, order: Iterable[torch.nn.Module] | None = None
    ) -> FlatParameters:
        """Move the weights of a module into one vector; the module's parameters become views of `work`.

        order: all modules inside it, in the order of their weights in the vector; None: as they were made.
        """
        flat = cls.__new__(cls)
        names = {p: name for name, p in module.named_parameters()}
        ordered = (p for inner in order or module.modules() for p in inner.parameters(recurse=False))
        parameters = {names[p]: p for p in dict.fromkeys(ordered)}
        flat._allocate({name: tuple(p.shape) for name, p in parameters.items()})
        with torch.no_grad():
            for name, view in flat._master_views.items():
                view.copy_(parameters[name])
        flat._open(dtype, parameters)
        return flat

    def _allocate(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self.master = torch.zeros(sum(math.prod(s) for s in shapes.values()))
        self.gradient = torch.zeros_like(self.master)
        self._master_views = self._views(self.master)

    def _open(self, dtype: torch.dtype, leaves: Mapping[str, torch.nn.Parameter]) -> None:
        """Make the working copy and the tensors that gradients are taken of. leaves: those that exist already."""
        self.work = self.master.to(dtype)
        self.tensors: dict[str, Tensor] = {}
        for name, view in self._views(self.work.detach()).items():
            if name in leaves:
                leaves[name].data = view
            self.tensors[name] = leaves[name] if name in leaves else view.requires_grad_()
        self._leaves = list(self.tensors.values())
        self._grad_views = list(self._views(self.gradient).values())

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        views, offset = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            views[name] = flat[offset : offset + size].view(shape)
            offset += size
        return views

    @property
    def dtype(self) -> torch.dtype:
        """The type that the forward pass computes in."""
        return self.work.dtype

    def backward(self, outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The gradient of sum_i <gradients[i], outputs[i]> with respect to every tensor; several threads may ask."""
        return torch.autograd.grad(outputs, self._leaves, gradients)

    def shards(self, count: int) -> list[Shard]:
        """Cut the vector into at most `count` stretches of whole tensors and about equal length."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])
        cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
        firsts = sorted({0, *(int(cut) for cut in cuts if cut < len(ends))})
        starts = [0, *ends.tolist()]
        return [Shard(a, b, starts[a], starts[b]) for a, b in pairwise([*firsts, len(ends)])]

    def set_gradient(self, parts: Sequence[tuple[Tensor, ...]], shard: Shard | None = None) -> None:
        """Overwrite `gradient`, or a shard of it, with the sum of what `backward` returned for parts of a minibatch."""
        tensors = slice(shard.first_tensor, shard.end_tensor) if shard else slice(None)
        views = self._grad_views[tensors]
        for view, first, *others in zip(views, *(part[tensors] for part in parts), strict=True):
            view.copy_(first)
            for other in others:
                view.add_(other)

    def refresh(self, shard: Shard | None = None) -> None:
        """Bring `work`, or a shard of it, up to date after `master` changed."""
        if self.work.data_ptr() != self.master.data_ptr():
            part = slice(shard.start, shard.end) if shard else slice(None)
            with torch.no_grad():
                self.work[part].copy_(self.master[part])

    def load(self, flat: Tensor) -> None:
        """Replace all weights. flat: same length as `master`."""
        with torch.no_grad():
            self.master.copy_(flat)
        self.refresh()

    def masters(self, prefix: str) -> dict[str, Tensor]:
        """fp32 views of the tensors whose name starts with `prefix`, without the prefix."""
        return {k.removeprefix(prefix): v for k, v in self._master_views.items() if k.startswith(prefix)}
