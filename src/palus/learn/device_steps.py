"""Gradient steps on a device that never wait for it.

A rollout lies there whole. Steps have tensors of fixed shapes in memory that stays, and nothing of them is read back
before the last: so the hundred small kernels of a step are the same ones on the same memory each time. On a CUDA device
they are captured as one graph at the first step and replayed for all others; it is launching them that takes the time
there, not what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from palus.learn.adam import Adam
from palus.nn.network import Network
from palus.types import AnyArray

Held = Mapping[str, Tensor]
Objective = Callable[[Held], tuple[Tensor, Tensor]]
"""What is held, the minibatch's tensors among it -> the loss, and what is reported of it, [k]. A pure function of
tensors: it waits for no number of theirs, and its shapes depend on theirs alone."""
WARM_UP = 3
"""Times that work runs before it is captured: libraries choose their kernels then. Source: torch's notes on graphs."""


class DeviceSteps:
    """Gradient steps of one network. captures: as a graph, anew where a held shape has changed."""

    def __init__(self, network: Network, optimizer: Adam) -> None:
        self.network, self.optimizer, self.place = network, optimizer, network.place
        self.captures, self.held = self.place.device.type == "cuda", dict[str, Tensor]()
        self._shards = network.weights.shards(1)
        self._replay: Callable[[], None] | None = None

    def hold(self, arrays: Mapping[str, AnyArray]) -> dict[str, Tensor]:
        """Bring arrays to the device, into the memory of those that had their names and shapes before."""
        for name, array in arrays.items():
            source, held = torch.from_numpy(array), self.held.get(name)
            if held is None or (held.shape, held.dtype) != (source.shape, source.dtype):
                self.held[name] = held = torch.empty(source.shape, dtype=source.dtype, device=self.place.device)
                self._replay = None
            held.copy_(source, non_blocking=True)
        return {name: self.held[name] for name in arrays}

    def run(
        self,
        objective: Objective,
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
            with self.network.lock:
                self.optimizer.begin(rate)
                self._step(objective)
                self.network.version += 1
            meanwhile(k)
        return dict(zip(tags, (self.held["totals"] / steps).tolist(), strict=True))

    def work(self, objective: Objective) -> None:
        """One step on what is held: what a graph is captured of."""
        weights = self.network.weights
        loss, means = objective(self.held)
        weights.set_gradient([weights.backward([loss], [torch.ones_like(loss)])])
        weights.fold_gradient()
        for shard in self._shards:
            self.optimizer.move(shard)
        self.held["totals"].add_(means.detach())

    def _step(self, objective: Objective) -> None:
        if not self.captures:
            self.work(objective)
            return
        if self._replay is None:
            changed = (*self.optimizer.moves, self.held["totals"])
            self._replay = captured(lambda: self.work(objective), changed, self.place.device)
        self._replay()


def captured(work: Callable[[], None], changed: Sequence[Tensor], device: torch.device) -> Callable[[], None]:
    """The work as one CUDA graph, which is replayed by calling it. changed: the tensors that the work changes; they are
    as before when this returns.

    Source: torch's notes on CUDA graphs: a warm-up on a stream of its own, then the capture, in which nothing runs.
    """
    with torch.cuda.device(device):
        before, side = [tensor.clone() for tensor in changed], torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # others may act with their networks meanwhile
            work()
        for tensor, old in zip(changed, before, strict=True):
            tensor.copy_(old)
    return graph.replay
