"""All weights of a network in one vector, so that copies, norms and optimiser steps are single calls.

`master` is the fp32 vector that the optimiser moves. `tensors` are views of `work`, the vector that the forward pass
reads: the master itself on the fp32 paths, a bfloat16 copy of it on the bf16 path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from palus.errors import ModelError
from palus.types import F32

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


def tree_sum(parts: Sequence[Tensor]) -> Tensor:
    """Their sum as a tree of neighbours, (a + b) + (c + d): of powers of two the same bits wherever they are cut."""
    while len(parts) > 1:
        pairs = (parts[k : k + 2] for k in range(0, len(parts), 2))
        parts = [torch.add(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
    return parts[0]


@runtime_checkable
class Packing(Protocol):
    """A layer that keeps its `weight` in another order, too. That is no member: from Python 3.12 on `isinstance` finds
    none behind a `__getattr__`, where torch has its parameters."""

    def pack(self) -> None:
        """The weights have changed."""


class FlatParameters:
    """The weights of a module in one vector; the module's parameters become views of `work`.

    masters: name -> fp32 view of `master`. order: all modules inside it, in the order of their weights in the vector;
    None: as they were made. grain: tensors begin at multiples of it, with zeros between them: a GPU's products are
    fastest where memory is aligned to 16 bytes.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        dtype: torch.dtype,
        order: Iterable[torch.nn.Module] | None = None,
        grain: int = 1,
    ) -> None:
        names = {p: name for name, p in module.named_parameters()}
        ordered = (p for inner in order or module.modules() for p in inner.parameters(recurse=False))
        leaves = {names[p]: p for p in dict.fromkeys(ordered)}
        self.shapes = {name: tuple(p.shape) for name, p in leaves.items()}
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        self._sizes = [part for size in sizes for part in (size, -size % grain)]
        self.master = self.vector([p.detach() for p in leaves.values()])
        self.gradient = torch.zeros_like(self.master)
        self.work = self.master.to(dtype)
        for leaf, view in zip(leaves.values(), self._views(self.work).values(), strict=True):
            leaf.data = view
        self._image: Tensor | None = None
        places = {id(leaf): number for number, leaf in enumerate(leaves.values())}
        self._packed = [(places[id(inner.weight)], inner) for inner in module.modules() if isinstance(inner, Packing)]
        self.tensors, self._leaves = leaves, list(leaves.values())
        self.masters, self._grad_views = self._views(self.master), list(self._views(self.gradient).values())
        self.refresh()

    def vector(self, tensors: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
        """Tensors of the shapes of all weights as one vector laid out as they are."""
        gap = tensors[0].new_zeros(max(self._sizes[1::2]))
        gaps = [gap[:size] for size in self._sizes[1::2]]
        parts = [part for tensor, own in zip(tensors, gaps, strict=True) for part in (tensor.flatten(), own)]
        return torch.cat(parts) if out is None else torch.cat(parts, out=out)

    def packed(self, vector: Tensor) -> Tensor:
        """The numbers of such a vector without the gaps."""
        return torch.cat(torch.split(vector, self._sizes)[::2])

    def unpacked(self, numbers: Tensor) -> Tensor:
        """What `packed` gave as a vector again."""
        return self.vector(torch.split(numbers, self._sizes[::2]))

    def views(self, several: Tensor) -> dict[str, Tensor]:
        """Name -> [K, *shape] of K vectors that are laid out as these weights, [K, n]."""
        parts = torch.split(several, self._sizes, 1)[::2]
        return {name: part.view(-1, *shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def arrays(self) -> dict[str, F32]:
        """Copies of all weights by name, brought over at once from where they lie."""
        return {name: view.numpy().copy() for name, view in self._views(self.master.detach().cpu()).items()}

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, self._sizes)[::2]
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def backward(
        self, outputs: Sequence[Tensor], gradients: Sequence[Tensor], *, partial: bool = False
    ) -> tuple[Tensor, ...]:
        """The gradient of sum_i <gradients[i], outputs[i]> with respect to every tensor; several threads may ask.

        partial: some tensors have no part in the outputs; their gradient is 0.
        """
        return torch.autograd.grad(outputs, self._leaves, gradients, allow_unused=partial, materialize_grads=partial)

    def tie(self, images: Mapping[str, Tensor]) -> None:
        """Keep weights equal in pairs from now on. images: name -> for every number of the tensor, flat, the number of
        its image in it; applied twice it is itself. Of a pair the first one's value stays; `master` moves alike if its
        gradient does, which `fold_gradient` sees to."""
        places = torch.arange(len(self.master))
        image = places.clone()
        for name, view in self._views(places).items():
            if name in images:
                image[view.flatten()] = view.flatten()[images[name]]
        self._image = image.to(self.master.device)
        self.load(self.master[torch.minimum(image, places).to(self.master.device)])

    def fold_gradient(self) -> None:
        """Make the gradient that of the data and its mirror image together, where weights are tied."""
        if self._image is not None:
            self.gradient.add_(self.gradient[self._image]).mul_(0.5)

    def shards(self, count: int) -> list[Shard]:
        """Cut the vector into at most `count` stretches of whole tensors and about equal length."""
        ends = np.cumsum(np.reshape(self._sizes, (-1, 2)).sum(1))
        cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
        firsts = sorted({0, *(int(cut) for cut in cuts if cut < len(ends))})
        starts = [0, *ends.tolist()]
        return [Shard(a, b, starts[a], starts[b]) for a, b in pairwise([*firsts, len(ends)])]

    def set_gradient(self, parts: Sequence[tuple[Tensor, ...]], shard: Shard | None = None) -> None:
        """Overwrite `gradient`, or a shard of it, with the sum of what `backward` returned for parts of a minibatch,
        none: with zeros."""
        if shard is None and len(parts) == 1:
            self.vector(parts[0], self.gradient)
            return
        tensors = slice(shard.first_tensor, shard.end_tensor) if shard else slice(None)
        views = self._grad_views[tensors]
        for view, *found in zip(views, *(part[tensors] for part in parts), strict=True):
            view.copy_(tree_sum(found)) if found else view.zero_()

    def refresh(self, shard: Shard | None = None) -> None:
        """Bring `work`, or a shard of it, and what is made from it up to date after `master` changed."""
        if self.work.data_ptr() != self.master.data_ptr():
            part = slice(shard.start, shard.end) if shard else slice(None)
            with torch.no_grad():
                self.work[part].copy_(self.master[part])
        for number, layer in self._packed:
            if shard is None or shard.first_tensor <= number < shard.end_tensor:
                layer.pack()

    def load(self, flat: Tensor) -> None:
        """Replace all weights. flat: laid out as `master`. Raises ModelError where tied ones differ."""
        flat = flat.to(self.master.device)
        if self._image is not None and not torch.equal(flat, flat[self._image]):
            raise ModelError(
                "the weights are not their own mirror image; they were trained without network_settings.symmetric"
            )
        with torch.no_grad():
            self.master.copy_(flat)
        self.refresh()

    @property
    def norm(self) -> float:
        """Of the gradient."""
        if not self.gradient.is_cpu:
            return float(torch.linalg.vector_norm(self.gradient))
        with np.errstate(over="ignore"):  # infinite: for the caller to judge
            return float(np.linalg.norm(self.gradient.numpy()))
