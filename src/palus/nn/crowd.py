"""Many policies of one kind (`Network.kind`) at once: the opponents of a league, each with few rows.

One after the other they cost what a pass costs whatever its rows are, five times as much as a learner with as many in
all. On the CPU they go layer by layer instead: what is done to all rows alike is done once. On a device their weights
lie side by side, and every layer is one batched product. Letters: K places for policies, W rows of each, R rows of all,
P weights, L parameters.
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
from palus.types import I64, MASKS, AnyArray

EDGE = 16
"""Rows whose number times any width is whole cache lines in fp32, where products begin in `act_in_step`."""
PLACES, ROWS = 4, 16
"""The fewest places and the fewest rows of each; both are doubled until all fit."""
ROW_OF, PLACE_OF = " row of", " place of"
"""Beside the names of observations: the row that each place reads, and the place that each row's answer is at."""


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
    """On a device, a place for each of some networks. One that acts again keeps its place; its weights are copied anew
    when they have changed."""

    def __init__(self, like: Network) -> None:
        """like: one of them."""
        dtype, place = like.weights.work.dtype, like.place
        self._pattern = Network.acting(like.spec, like.settings, like.acting_arrays(), dtype, place=place)
        self._holds: list[tuple[Network, int] | None] = []
        self._weights = self._pattern.weights.work.new_empty(0, len(self._pattern.weights.work))
        self._acts = Captured(self._acted, place)
        self._layout: tuple[list[int], list[slice], int] | None = None
        self._index: dict[str, I64] = {}

    @torch.inference_mode()
    def act(self, networks: Sequence[Network], blocks: Sequence[slice], seen: Mapping[str, AnyArray]) -> Tensor:
        """Parameters [R, L] float32, of the rows in each network's block; others' are of no meaning.

        seen: name -> [R, *shape] of all rows as games give them, rays in compact form or whole, masks among them. The
        result holds until the next call.
        """
        layout = self._seated(networks), list(blocks), len(next(iter(seen.values())))
        if layout != self._layout:
            self._layout, self._index = layout, self._indexed(*layout)
        (parameters,) = self._acts({name: torch.from_numpy(array) for name, array in {**seen, **self._index}.items()})
        return parameters

    def _indexed(self, places: Sequence[int], blocks: Sequence[slice], rows: int) -> dict[str, I64]:
        """Which row each place reads, and where each row's answer is."""
        W = doubled(ROWS, max(block.stop - block.start for block in blocks))
        row_of, place_of = np.zeros((len(self._holds), W), np.int64), np.zeros(rows, np.int64)
        for place, block in zip(places, blocks, strict=True):
            count = block.stop - block.start
            row_of[place, :count] = np.arange(block.start, block.stop)
            place_of[block] = place * W + np.arange(count)
        return {ROW_OF: row_of, PLACE_OF: place_of}

    def _seated(self, networks: Sequence[Network]) -> list[int]:
        """The places of these networks, which all have one afterwards, with their present weights."""
        wanted = {id(network) for network in networks}
        there = {id(held[0]): place for place, held in enumerate(self._holds) if held is not None}
        if len(networks) > len(self._holds):
            self._holds += [None] * (doubled(PLACES, len(networks)) - len(self._holds))
            grown = self._weights.new_zeros(len(self._holds), self._weights.shape[1])
            grown[: len(self._weights)] = self._weights
            self._weights, self._acts = grown, Captured(self._acted, self._pattern.place)
        free = (place for place, held in enumerate(self._holds) if held is None or id(held[0]) not in wanted)
        places = []
        for network in networks:
            place = there.get(id(network))
            if place is None:
                place = next(free)
            if self._holds[place] != (network, network.version):
                tensors = acting_arrays(network.weights.tensors)
                ordered = [tensors[name].detach() for name in self._pattern.weights.shapes]
                self._pattern.weights.vector(ordered, self._weights[place])
                self._holds[place] = network, network.version
            places.append(place)
        return places

    def _acted(self, held: Mapping[str, Tensor]) -> tuple[Tensor]:
        pattern, row_of = self._pattern, held[ROW_OF]
        inputs = pattern.inputs({k: x for k, x in held.items() if k not in (ROW_OF, PLACE_OF, MASKS)})
        own = {name: x[row_of] for name, x in inputs.items()}  # [K, W, ...]
        W, device = row_of.shape[1], row_of.device
        states, keep = torch.zeros(W, 0, device=device), torch.ones(1, W, device=device)

        def one(weights: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Tensor:
            parameters: Tensor = functional_call(pattern, dict(weights), (inputs, states, keep))[0]
            return parameters

        parameters = vmap(one)(pattern.weights.views(self._weights), own).flatten(0, 1)[held[PLACE_OF]]
        return (pattern.masked(parameters, held.get(MASKS)),)
