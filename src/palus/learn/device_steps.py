"""Gradient steps on a device that never wait for it.

A rollout lies there whole. Steps have tensors of fixed shapes in memory that stays, and nothing of them is read back
before the last: so the hundred kernels of a step are the same ones on the same memory each time. On a CUDA device
they are captured as one graph at the first step and replayed for all others; it is launching them that takes the time
there, not what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from palus.learn.adam import Adam
from palus.nn.captured import captured
from palus.nn.network import Network
from palus.types import AnyArray

Held = Mapping[str, Tensor]


@dataclass(frozen=True)
class Descent:
    """What a gradient step goes by: outputs of the network, the loss's gradient with respect to each, and
    the means that are reported, in the order of their tags.

    A pure function of the tensors that are held makes it, which waits for no number of theirs; its shapes depend on
    theirs alone.
    """

    outputs: Sequence[Tensor]
    slopes: Sequence[Tensor]
    means: Sequence[Tensor]


class DeviceSteps:
    """Gradient steps of one network. captures: as a graph, anew where a held shape has changed. idle: called when all
    steps of an update are under way; the device is at work yet."""

    def __init__(self, network: Network, optimizer: Adam) -> None:
        self.network, self.optimizer, self.place = network, optimizer, network.place
        self.captures, self.held = self.place.captures, dict[str, Tensor]()
        self.idle: Callable[[], None] = lambda: None
        self._shards = network.weights.shards(1)
        self._replay: Callable[[], None] | None = None

    def hold(self, arrays: Mapping[str, AnyArray | Tensor]) -> dict[str, Tensor]:
        """Bring arrays to the device, into the memory of those that had their names and shapes before."""
        for name, array in arrays.items():
            source, held = array if isinstance(array, Tensor) else torch.from_numpy(array), self.held.get(name)
            if held is None or (held.shape, held.dtype) != (source.shape, source.dtype):
                self.held[name] = held = torch.empty(source.shape, dtype=source.dtype, device=self.place.device)
                self._replay = None
            held.copy_(source, non_blocking=True)
        return {name: self.held[name] for name in arrays}

    def run(
        self,
        objective: Callable[[Held], Descent],
        tags: Sequence[str],
        minibatches: Mapping[str, AnyArray],
        rate: float,
        meanwhile: Callable[[int], None],
    ) -> dict[str, float]:
        """A step down the gradient for each minibatch; the means of what the objective reports, by these tags.

        minibatches: name -> [steps, ...]. meanwhile: called after each step was begun, with its number.
        """
        plan = {name: self.place.tensor(array) for name, array in minibatches.items()}
        chosen = self.hold({name: array[0] for name, array in minibatches.items()})
        self.held.setdefault("totals", torch.zeros(len(tags), device=self.place.device)).zero_()
        steps = len(next(iter(minibatches.values())))
        for k in range(steps):
            for name, tensor in chosen.items():
                tensor.copy_(plan[name][k])
            self.optimizer.begin(rate)
            self._step(objective)
            self.network.version += 1
            meanwhile(k)
        self.idle()
        return dict(zip(tags, (self.held["totals"] / steps).tolist(), strict=True))

    def work(self, objective: Callable[[Held], Descent]) -> None:
        """One step on what is held: what a graph is captured of."""
        weights = self.network.weights
        wanted = objective(self.held)
        weights.set_gradient([weights.backward(wanted.outputs, wanted.slopes)])
        weights.fold_gradient()
        for shard in self._shards:
            self.optimizer.move(shard)
        self.held["totals"].add_(torch.cat([mean.view(-1) for mean in wanted.means]))

    def _step(self, objective: Callable[[Held], Descent]) -> None:
        if not self.captures:
            self.work(objective)
            return
        if self._replay is None:
            changed = (*self.optimizer.moves, self.held["totals"])
            self._replay = captured(lambda: self.work(objective), changed, self.place.device)
        self._replay()
