"""The task that a locked process is given with its model, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from palus.arena.models.duelist_file import choices_of
from palus.types import ActionSpec, BehaviorSpec, Discrete, GameSpec, ObservationSpec

Contract = BehaviorSpec | GameSpec
"""What a model plays: the behavior of a batched game, or a sampled game with discrete actions."""


def describe_task(contract: Contract, examine_up_to_ms: float | None = None) -> dict[str, Any]:
    """To play by this contract. examine_up_to_ms: probe the model first, p99 of a batch of 4; None plays at once."""
    if isinstance(contract, BehaviorSpec):
        behavior = {"name": contract.name, "sizes": contract.observation_sizes, "branches": contract.branches}
        return {"behavior": behavior, "examine_up_to_ms": examine_up_to_ms}
    game = {
        "env_id": contract.env_id,
        "observations": [asdict(observation) for observation in contract.observations],
        "choices": choices_of(contract.actions),
    }
    return {"game": game, "examine_up_to_ms": examine_up_to_ms}


def read_task(task: dict[str, Any]) -> tuple[Contract, float | None]:
    """The inverse of `describe_task`, as far as a model is concerned."""
    contract = _game(task["game"]) if "game" in task else _behavior(task["behavior"])
    return contract, task["examine_up_to_ms"]


def _behavior(fields: dict[str, Any]) -> BehaviorSpec:
    return BehaviorSpec.of_vectors(fields["name"], tuple(fields["sizes"]), tuple(fields["branches"]))


def _game(fields: dict[str, Any]) -> GameSpec:
    observations = tuple(ObservationSpec(o["name"], tuple(o["shape"]), o["dtype"]) for o in fields["observations"])
    return GameSpec.alike(fields["env_id"], observations, ActionSpec(tuple(Discrete(n) for n in fields["choices"])))
