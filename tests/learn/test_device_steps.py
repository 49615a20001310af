"""Gradient steps on a device, beside what a network does: what stays in memory, what is counted, what is captured."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from palus.learn import device_steps
from palus.learn.device_steps import Descent, DeviceSteps
from palus.nn.place import Placement

PLACE = Placement(torch.device("cpu"), compiled=False)


def steps() -> tuple[DeviceSteps, list[float]]:
    """Of a network without weights; and the rates of its steps."""
    rates = list[float]()
    nothing = {name: lambda *_: None for name in ("backward", "set_gradient", "fold_gradient")}
    weights = SimpleNamespace(shards=lambda count: [], **nothing)
    network: Any = SimpleNamespace(place=PLACE, version=5, weights=weights)
    optimizer: Any = SimpleNamespace(begin=rates.append, moves=())
    return DeviceSteps(network, optimizer), rates


def total(held: Any) -> Descent:
    return Descent((), (), (held["x"].sum(), held["x"].max()))


def test_arrays_keep_their_memory_until_their_shape_or_their_kind_changes() -> None:
    own, _ = steps()
    first = own.hold({"x": np.zeros((2, 3), np.float32)})["x"]
    assert own.hold({"x": np.ones((2, 3), np.float32)})["x"] is first and first.sum() == 6
    other = own.hold({"x": np.ones((1, 3), np.float32)})["x"]
    assert other.shape == (1, 3)
    assert own.hold({"x": np.full((1, 3), 2**24 + 1)})["x"].tolist() == [[2**24 + 1] * 3]


def test_every_minibatch_is_one_step_and_means_are_those_of_this_update() -> None:
    own, rates = steps()
    seen = list[Any]()
    own.idle = lambda: seen.append("idle")
    batches = {"x": np.array([[1, 2], [3, 4], [5, 9]], np.float32)}
    for _ in range(2):
        assert own.run(total, ("sum", "max"), batches, 0.5, seen.append) == {"sum": 8.0, "max": 5.0}
    assert seen == [0, 1, 2, "idle"] * 2
    assert (own.network.version, rates) == (11, [0.5] * 6)


def test_a_step_is_captured_once_and_anew_where_a_shape_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    captures = list[int]()

    def captured(work: Any, changed: Any, device: torch.device) -> Any:
        captures.append(len(changed))
        return work

    monkeypatch.setattr(device_steps, "captured", captured)
    own, _ = steps()
    own.captures = True
    for width, expected in ((2, 1), (2, 1), (3, 2)):
        found = own.run(total, ("sum", "max"), {"x": np.ones((4, width), np.float32)}, 0.5, lambda k: None)
        assert found == {"sum": float(width), "max": 1.0} and len(captures) == expected
