"""Where a run's time went, and its latest figures: `run_logs/timers.json` in ML-Agents' format."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palus import __version__

TIMERS = "run_logs/timers.json"
"""Where it lies in a run's folder."""


@dataclass
class _Node:
    total: float = 0.0
    count: int = 0
    children: dict[str, _Node] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        own = self.total - sum(child.total for child in self.children.values())
        found: dict[str, Any] = {"total": self.total, "count": self.count, "self": max(own, 0.0)}
        if self.children:
            found["children"] = {name: child.plain() for name, child in self.children.items()}
        return found


class Timers:
    """Wall seconds of named blocks within blocks, and gauges. Not thread-safe."""

    def __init__(self) -> None:
        self._root = _Node(count=1)
        self._open = [self._root]
        self._gauges: dict[str, dict[str, float]] = {}
        self._started, self._begun = time.time(), time.perf_counter()

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Counts what is done in it below the block around it."""
        node, begun = self._open[-1].children.setdefault(name, _Node()), time.perf_counter()
        self._open.append(node)
        try:
            yield
        finally:
            self._open.pop()
            node.count += 1
            node.total += time.perf_counter() - begun

    def gauge(self, behavior: str, tag: str, value: float, numbers: int = 1) -> None:
        """A figure of a summary, and the sum of the numbers that it is the mean of; their latest values stay, with the
        least and the greatest."""
        for kind, now in (("mean", value), ("sum", value * numbers)):
            name = f"{behavior}.{tag}.{kind}".replace("/", ".").replace(" ", "")
            old = self._gauges.get(name, {"min": now, "max": now, "count": 0})
            least, most = min(old["min"], now), max(old["max"], now)
            self._gauges[name] = {"value": now, "min": least, "max": most, "count": old["count"] + 1}

    def to_json(self) -> str:
        """The file's text as of now."""
        self._root.total = time.perf_counter() - self._begun
        finite = {name: own for name, own in self._gauges.items() if np.isfinite(list(own.values())).all()}
        metadata = {
            "timer_format_version": "0.1.0",
            "start_time_seconds": str(int(self._started)),
            "end_time_seconds": str(int(time.time())),
            "python_version": sys.version,
            "command_line_arguments": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "palus_version": __version__,
            "pytorch_version": torch.__version__,
            "numpy_version": np.__version__,
        }
        return json.dumps({"name": "root", "gauges": finite, "metadata": metadata, **self._root.plain()}, indent=4)
