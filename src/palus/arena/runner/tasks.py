"""The task that a locked process is given with its model, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from palus.types import BehaviorSpec


def describe_task(behavior: BehaviorSpec, examine_up_to_ms: float | None = None) -> dict[str, Any]:
    """To play as this behavior. examine_up_to_ms: probe the model first, p99 of a batch of 4; None plays at once."""
    return {"behavior": asdict(behavior), "examine_up_to_ms": examine_up_to_ms}


def read_task(task: dict[str, Any]) -> tuple[BehaviorSpec, float | None]:
    """The inverse of `describe_task`."""
    fields = task["behavior"]
    behavior = BehaviorSpec(fields["name"], tuple(fields["observation_sizes"]), tuple(fields["branches"]))
    return behavior, task["examine_up_to_ms"]
