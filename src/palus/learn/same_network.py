"""Whether weights that were saved compute the same in a network with other settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from palus.config.idle import OF_IMAGES, OF_NUMBERS
from palus.config.network import NetworkSettings
from palus.errors import ModelError
from palus.nn.action_head import units_of
from palus.types import BehaviorSpec, Continuous

OF_FIRST_WEIGHTS = ("initialization", "initialization_gain", "initial_deviation")
ELSEWHERE = ("deterministic", "symmetric")
"""Read by who draws actions, and judged by the weights themselves."""


def refuse_another(saved: Mapping[str, Any], settings: NetworkSettings, spec: BehaviorSpec) -> None:
    """Raise ModelError, which names the first key, where what was saved with other settings would compute something
    else with these. saved: `settings` then, as JSON; keys that were not there yet are not compared, but for
    `range_end`, which was 0 then."""
    passed_over = {*OF_FIRST_WEIGHTS, *ELSEWHERE}
    if not any(o.is_image for o in spec.observations):
        passed_over |= {*OF_IMAGES}
    if spec.actions.is_discrete:
        passed_over |= {*OF_NUMBERS}
    then, numbers = {"range_end": 0.0, **saved}, [p for p in spec.actions.parts if isinstance(p, Continuous)]
    own = settings.changed(range_end=then["range_end"])
    if all(units_of(part, settings) == units_of(part, own) for part in numbers):
        passed_over |= {"range_end"}
    if not any(o.goal for o in spec.observations):
        passed_over |= {"goal_conditioning_type"}
    if not settings.normalize:
        passed_over |= {"normalize_names"}
    before, now = _flat(then), _flat(settings.model_dump(mode="json"))
    for key, value in now.items():
        if key not in passed_over and before.get(key, value) != value:
            here, there = (json.dumps(own).strip('"') for own in (value, before[key]))
            raise ModelError(f"network_settings.{key} is {here} here, and was {there} where the weights are from")


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Memory's keys beside the others, but for its sequences, which only learning reads."""
    memory = settings.get("memory") or {}
    own = {f"memory.{key}": value for key, value in memory.items() if key != "sequence_length"}
    return {**settings, "memory": bool(memory), **own}
