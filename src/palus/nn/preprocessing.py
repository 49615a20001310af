"""Observations as games give them -> what a network's encoders read: scaled, normalised, vectors side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import torch
from numba import njit
from torch import Tensor

from palus.config.network import NetworkSettings
from palus.nn.bfloat16 import kernel_view
from palus.nn.encoders import VECTORS, normalizes
from palus.nn.place import Placement
from palus.nn.running import ObservationScaler
from palus.types import F32, I64, RAY_DISTANCES, RAY_TAGS, AnyArray, ObservationSpec

Rows = AnyArray | Tensor
"""Observations of some rows: arrays, or tensors where the network is, which only a network without Numba takes."""


class Preprocessor:
    """In one pass over the rows, by Numba's kernels or by torch's operators as the place has it.

    scalers: by name of the observation, each with the moments that it normalises by.
    """

    def __init__(
        self,
        observations: Sequence[ObservationSpec],
        settings: NetworkSettings,
        joined: Collection[str],
        dtype: torch.dtype,
        place: Placement,
        takes_rays: bool = False,
    ) -> None:
        """joined: names of those that enter as one vector, in this order. dtype: of the network's activations.

        takes_rays: whether the network reads joined rays in compact form (`palus.nn.sparse`), where they come so.
        """
        self.scalers = {o.name: scaler_of(o, settings) for o in observations}
        self._joined, self._dtype, self._place = {name: self.scalers[name].size for name in joined}, dtype, place
        self._rays = {o.name: o.rays for o in observations}
        self._takes_rays = takes_rays
        self._alone = tuple(name for name in self.scalers if name not in self._joined)
        if not place.compiled:
            for scaler in self.scalers.values():
                scaler.move(place.device)

    def __call__(self, observations: Mapping[str, Rows], index: I64 | Tensor | None = None) -> dict[str, Tensor]:
        """Rows of observations as the network reads them, in its number format.

        observations: name -> [N, *shape] as the game gives them, rays perhaps in compact form; where there is no Numba
        also VECTORS, as `vectors` gave them; index: [R], None for all rows.
        """
        if not self._place.compiled:
            return self._by_torch(observations, index)
        return self._by_numba(observations, index)  # type: ignore[arg-type]  # arrays, on the CPU

    def vectors(self, observations: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of all rows, on the device, what `__call__` makes of vectors; empty where there are none."""
        return self._joined_rows(observations, observations.__getitem__)

    def observe(self, observations: Mapping[str, AnyArray], rows: I64) -> None:
        """Take some rows into the moments. observations: name -> [N, *shape]."""
        for name, scaler in self.scalers.items():
            scaler.update(observations[name], rows)

    def arrays(self, prefix: str = "") -> dict[str, AnyArray]:
        """The moments (float64), in the shapes of their observations."""
        arrays: dict[str, AnyArray] = {}
        for name, scaler in self.scalers.items():
            if scaler.moments is not None:
                found = scaler.moments.arrays(f"{prefix}{name}.")
                arrays |= {k: v if k.endswith(".count") else v.reshape(scaler.shape) for k, v in found.items()}
        return arrays

    def load_arrays(self, arrays: Mapping[str, AnyArray], prefix: str = "") -> None:
        """Take over what `arrays` gave. KeyError or ValueError when it does not fit."""
        for name, scaler in self.scalers.items():
            if scaler.moments is not None:
                scaler.moments.load_arrays(arrays, f"{prefix}{name}.")
                scaler.refresh()

    def _by_torch(self, observations: Mapping[str, Rows], index: I64 | Tensor | None) -> dict[str, Tensor]:
        """Arrays are gathered here and scaled there, tensors both there."""
        there = self._place.tensor(index) if isinstance(index, np.ndarray) else index

        def taken(name: str) -> Tensor:
            x = observations[name]
            if isinstance(x, Tensor):
                x = x.to(self._place.device, non_blocking=True)
                return x if there is None else x[there]
            return self._place.tensor(x if index is None else x[index])

        inputs = {name: self._rows(name, observations, taken) for name in self._alone}
        return inputs | (
            {VECTORS: taken(VECTORS)} if VECTORS in observations else self._joined_rows(observations, taken)
        )

    def _joined_rows(self, observations: Mapping[str, Rows], taken: Callable[[str], Tensor]) -> dict[str, Tensor]:
        parts = [self._rows(name, observations, taken) for name in self._joined]
        return {VECTORS: torch.cat(parts, 1) if len(parts) > 1 else parts[0]} if parts else {}

    def _rows(self, name: str, observations: Mapping[str, Rows], taken: Callable[[str], Tensor]) -> Tensor:
        scaler = self.scalers[name]
        if name in observations:
            whole = taken(name)
        else:
            whole = expanded(taken(name + RAY_TAGS), taken(name + RAY_DISTANCES), scaler.size)
        return scaler.scaled(whole, self._dtype)

    def _by_numba(self, observations: Mapping[str, AnyArray], index: I64 | None) -> dict[str, Tensor]:
        if index is None:
            index = np.arange(len(next(iter(observations.values()))))
        if self._takes_rays and all(name not in observations for name in self._joined):
            return {VECTORS: self._compact(observations, index)}
        compact = [name for name in self.scalers if name not in observations]
        if compact:
            rows = {name: observations[name][index] for name in self.scalers if name in observations}
            for name in compact:
                tags, distances = (observations[name + part][index] for part in (RAY_TAGS, RAY_DISTANCES))
                whole = expanded(torch.from_numpy(tags), torch.from_numpy(distances), self.scalers[name].size)
                rows[name] = whole.numpy()
            observations, index = rows, np.arange(len(index))
        inputs = {name: self.scalers[name](observations[name], index, self._dtype) for name in self._alone}
        if self._joined:
            out, first = torch.empty((len(index), sum(self._joined.values())), dtype=self._dtype), 0
            view = kernel_view(out)
            for name, size in self._joined.items():
                self.scalers[name].write(observations[name], index, view, first)
                first += size
            inputs[VECTORS] = out
        return inputs

    def _compact(self, observations: Mapping[str, AnyArray], index: I64) -> Tensor:
        """Rows of rays as `palus.nn.sparse` has them, [R, 2 n]."""
        rays, place = sum(self._rays[name] for name in self._joined), 0
        out, first = torch.empty(len(index), 2 * rays), 0
        for name, size in self._joined.items():
            n = self._rays[name]
            before = np.arange(place - 1, place - 1 + size, size // n, dtype=np.float32)
            tags, distances = observations[name + RAY_TAGS], observations[name + RAY_DISTANCES]
            _lay(tags, distances, index, before, out.numpy(), first)
            first, place = first + n, place + size
        return out


@njit(cache=True, nogil=True)
def _lay(tags: AnyArray, distances: F32, index: I64, before: F32, out: F32, first: int) -> None:
    """Some rows of a compact form [N, n]: the places of their tags in whole rows, -1 for none, from column `first` on,
    and their distances as far from the middle. before: [n], the place before each ray's first number; out: [R, .]."""
    n, nothing, none = tags.shape[1], np.float32(0.0), np.float32(-1.0)
    for i in range(index.shape[0]):
        r, row = np.uint64(index[i]), out[i]
        own, far, tag, distance = tags[r], distances[r], row[first:], row[row.shape[0] // 2 + first :]
        for k in range(n):
            known = np.float32(own[k])
            tag[k] = before[k] + known if known > nothing else none
        for k in range(n):
            distance[k] = far[k]


def scaler_of(observation: ObservationSpec, settings: NetworkSettings) -> ObservationScaler:
    """An observation's way into a network."""
    divisor = settings.image_scale if observation.dtype == "uint8" else 1.0
    return ObservationScaler(observation.shape, divisor, normalizes(observation, settings))


def expanded(tags: Tensor, distances: Tensor, size: int) -> Tensor:
    """Rays out of their compact form (`palus.types.RAY_TAGS`), to the bit: [R, n] and [R, n] -> [R, size]."""
    each = size // tags.shape[1]
    rays = (tags.unsqueeze(2) == torch.arange(1, each + 1, device=tags.device)).float()
    rays[:, :, -1] = distances
    return rays.flatten(1)
