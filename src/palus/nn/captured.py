"""Work on a device that is launched at once: CUDA graphs, without which every small kernel waits for Python.

A network of a game takes some ten kernels of a few microseconds, and launching one takes as long. So what is asked for
often is captured, its shapes and its memory with it, and replayed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from palus.nn.lock import SharedLock
from palus.nn.place import Placement

WARM_UP = 3
"""Times that work runs before it is captured: libraries choose their kernels then. Source: torch's notes on graphs."""
PAYS = 32
"""Calls of one shape from which on a graph of it is worth its making, which costs as much as so many calls."""
BUSY = SharedLock()
"""Who acts on a device reads; a capture is alone. What another thread did meanwhile has spoiled one: two threads that
captured side by side, on an H200, with torch 2.11."""
KEPT = 16
"""Shapes that memory and graphs are kept of."""


def captured(work: Callable[[], None], changed: Sequence[Tensor], device: torch.device) -> Callable[[], None]:
    """The work as one CUDA graph, which is replayed by calling it. changed: the tensors that the work changes; they are
    as before when this returns.

    Source: torch's notes on CUDA graphs: a warm-up on a stream of its own, then the capture, in which nothing runs.
    """
    with BUSY, torch.cuda.device(device):
        before, side = [tensor.clone() for tensor in changed], torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # others may wait for theirs meanwhile
            work()
        for tensor, old in zip(changed, before, strict=True):
            tensor.copy_(old)
    return graph.replay


Given = Mapping[str, Tensor]


@dataclass
class _Form:
    """Memory of arguments of one shape, what came of them, and the graph once there is one."""

    held: dict[str, Tensor]
    calls: int = 0
    found: tuple[Tensor, ...] = ()
    replay: Callable[[], None] | None = None


class Captured:
    """A function of tensors on a device, as a CUDA graph for every shape that it is often asked for.

    What the function reads besides must stay where it is in memory, and what it gives holds until it is called again,
    by one thread at a time. On devices without graphs it is called as it is. Only the main thread captures, others
    replay: what one captures, the work of another can spoil.
    """

    def __init__(self, work: Callable[[Given], Sequence[Tensor]], place: Placement) -> None:
        self._work, self._place = work, place
        self._forms: OrderedDict[tuple[object, ...], _Form] = OrderedDict()

    def __call__(self, given: Given, rows: int | None = None) -> tuple[Tensor, ...]:
        """What `work` makes of these arguments, brought over from wherever they are. rows: as many are computed of
        each, the first ones those that are given; the others are of no meaning."""
        shapes = {name: (rows or len(x), *x.shape[1:]) for name, x in given.items()}
        key = tuple((name, shapes[name], x.dtype) for name, x in given.items())
        form = self._forms.get(key)
        if form is None:
            device = self._place.device
            form = _Form({name: torch.zeros(shapes[name], dtype=x.dtype, device=device) for name, x in given.items()})
            self._forms[key] = form
            if len(self._forms) > KEPT:
                self._forms.popitem(last=False)
        self._forms.move_to_end(key)
        form.calls += 1
        if form.replay is None and form.calls > PAYS and self._place.captures and _is_main():
            form.replay = captured(lambda: self._run(form), (), self._place.device)
        with BUSY.reading():
            for name, x in given.items():
                if x.numel():
                    form.held[name][: len(x)].copy_(x, non_blocking=True)
            (form.replay or (lambda: self._run(form)))()
        return form.found

    def _run(self, form: _Form) -> None:
        form.found = tuple(self._work(form.held))


def doubled(size: int, wanted: int) -> int:
    """`size`, doubled until it holds so many: so that few shapes come about."""
    while size < wanted:
        size *= 2
    return size


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
