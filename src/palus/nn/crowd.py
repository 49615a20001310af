"""Many policies of one kind (`Network.kind`) at once: the opponents of a league, each with few rows.

One after the other they cost what a pass costs whatever its rows are, five times as much as a learner with as many in
all. On the CPU they go layer by layer instead: what is done to all rows alike is done once. On a device their weights
lie side by side, and every layer is one batched product. Letters: K parts of rows, W rows of each, R rows of all,
L parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from palus.nn.captured import Captured, doubled
from palus.nn.encoders import VECTORS
from palus.nn.layers import Linear
from palus.nn.network import Network, acting_arrays
from palus.types import MASKS, AnyArray

EDGE = 16
"""Rows whose number times any width is whole cache lines in fp32, where products begin in `act_in_step`."""
PARTS, ROWS = 4, 16
"""The fewest parts and the fewest rows of each; both are doubled until all fit, so that few shapes come about."""
WEIGHTS_OF, ROW_OF, PART_OF = " weights of", " row of", " part of"
"""Beside the names of observations: whose weights each part takes, the rows that it reads, where a row's answer is."""


@torch.inference_mode()
def act_in_step(networks: Sequence[Network], blocks: Sequence[slice], seen: Mapping[str, AnyArray]) -> Tensor:
    """Parameters [R, L] float32 of networks on the CPU, each of the rows in its block; others' are 0.

    seen: name -> [R, *shape] of all rows as games give them, masks among them. Every product has a multiple of `EDGE`
    rows, so in fp32 a row gets the bits that its network would give it alone.
    """
    first = networks[0]
    sizes = [-(-(block.stop - block.start) // EDGE) * EDGE for block in blocks]
    ends = np.cumsum(sizes).tolist()
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    index = np.concatenate(
        [np.minimum(np.arange(b.start, b.start + size), b.stop - 1) for b, size in zip(blocks, sizes, strict=True)]
    )
    observations = {name: array for name, array in seen.items() if name != MASKS}
    parameters = torch.zeros(len(next(iter(seen.values()))), first.spec.actions.parameters)
    alike = all(scaler.moments is None for scaler in first.scalers.values())
    asked = [(first, slice(None))] if alike else zip(networks, parts, strict=True)
    x = torch.cat([network.inputs(observations, index[part])[VECTORS] for network, part in asked])
    for layers in zip(*(network.chain or () for network in networks), strict=True):
        if isinstance(layers[0], Linear):
            x = torch.cat([layer.forward(x[part]) for layer, part in zip(layers, parts, strict=True)])
        else:
            x = layers[0].forward(x)
    x = x.float()
    for network, block, part in zip(networks, blocks, parts, strict=True):
        found = network.action_parameterization.forward(x[part])
        parameters[block] = found[: block.stop - block.start]
    return first.masked(parameters, torch.from_numpy(seen[MASKS]) if MASKS in seen else None)


class Crowd:
    """On a device, all that some networks are asked as one batched product: their rows in parts of equal length, each
    beside its network's weights. A network's weights stay there from call to call, and are copied anew when they have
    changed."""

    def __init__(self, like: Network) -> None:
        """like: one of them."""
        dtype, place = like.weights.work.dtype, like.place
        self._pattern = Network.acting(like.spec, like.settings, like.acting_arrays(), dtype, place=place)
        self._holds: list[tuple[Network, int] | None] = []
        self._weights = self._pattern.weights.work.new_empty(0, len(self._pattern.weights.work))
        self._acts = Captured(self._acted, place)
        self._layout: tuple[list[int], list[slice], int] | None = None
        self._index: dict[str, Tensor] = {}

    @torch.inference_mode()
    def act(self, networks: Sequence[Network], blocks: Sequence[slice], seen: Mapping[str, AnyArray]) -> Tensor:
        """Parameters [R, L] float32, of the rows in each network's block; others' are of no meaning.

        seen: name -> [R, *shape] of all rows as games give them, rays in compact form or whole, masks among them. The
        result holds until the next call.
        """
        layout = self._held(networks), list(blocks), len(next(iter(seen.values())))
        if layout != self._layout:
            self._layout, self._index = layout, self._indexed(*layout)
        (parameters,) = self._acts({name: torch.from_numpy(array) for name, array in seen.items()} | self._index)
        return parameters

    def _indexed(self, holders: Sequence[int], blocks: Sequence[slice], rows: int) -> dict[str, Tensor]:
        """Which weights each part takes, which rows it reads, and where each row's answer is: for the device, which
        takes it without being waited for."""
        starts = np.array([block.start for block in blocks])
        sizes = np.array([block.stop for block in blocks]) - starts
        total, place = int(sizes.sum()), self._pattern.place
        W = doubled(ROWS, -(-total // len(sizes)))
        counts = -(-sizes // W)
        K = doubled(PARTS, int(counts.sum()))
        weights_of, row_of, part_of = (place.zeros(shape, np.int64) for shape in ((K,), (K, W), (rows,)))
        weights_of[: counts.sum()] = np.repeat(holders, counts)
        # Of all rows in the order of their blocks: which each is, and its place among all places of all parts.
        number = np.arange(total) - np.repeat(sizes.cumsum() - sizes, sizes)
        row, at = number + np.repeat(starts, sizes), number + np.repeat((counts.cumsum() - counts) * W, sizes)
        row_of.reshape(-1)[at], part_of[row] = row, at
        found = {WEIGHTS_OF: weights_of, ROW_OF: row_of, PART_OF: part_of}
        return {name: torch.from_numpy(array) for name, array in found.items()}

    def _held(self, networks: Sequence[Network]) -> list[int]:
        """Where the weights of these networks are, which all are there afterwards as they are now."""
        wanted = {id(network) for network in networks}
        there = {id(held[0]): number for number, held in enumerate(self._holds) if held is not None}
        if len(networks) > len(self._holds):
            self._holds += [None] * (doubled(PARTS, len(networks)) - len(self._holds))
            grown = self._weights.new_zeros(len(self._holds), self._weights.shape[1])
            grown[: len(self._weights)] = self._weights
            self._weights, self._acts = grown, Captured(self._acted, self._pattern.place)
        free = (number for number, held in enumerate(self._holds) if held is None or id(held[0]) not in wanted)
        numbers = []
        for network in networks:
            number = there.get(id(network))
            if number is None:
                number = next(free)
            if self._holds[number] != (network, network.version):
                tensors = acting_arrays(network.weights.tensors)
                ordered = [tensors[name].detach() for name in self._pattern.weights.shapes]
                self._pattern.weights.vector(ordered, self._weights[number])
                self._holds[number] = network, network.version
            numbers.append(number)
        return numbers

    def _acted(self, held: Mapping[str, Tensor]) -> tuple[Tensor]:
        pattern, row_of = self._pattern, held[ROW_OF]
        index = (WEIGHTS_OF, ROW_OF, PART_OF, MASKS)
        inputs = pattern.inputs({name: x for name, x in held.items() if name not in index})
        own = {name: x[row_of] for name, x in inputs.items()}  # [K, W, ...]
        W, device = row_of.shape[1], row_of.device
        states, keep = torch.zeros(W, 0, device=device), torch.ones(1, W, device=device)

        def one(weights: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
            parameters: Tensor = functional_call(pattern, dict(weights), (inputs, states, keep))[0]
            return parameters

        weights = pattern.weights.views(self._weights[held[WEIGHTS_OF]])
        parameters = vmap(one)(weights, own).flatten(0, 1)[held[PART_OF]]
        return (pattern.masked(parameters, held.get(MASKS)),)
