"""Floating-point operations of training, counted from the shapes of the layers. Pure functions.

Counted are the products of linear layers, 2 per weight and row: one pass forward, one for the weights' gradient, and
one for the input's gradient unless the input is an observation. Attention's products between agents, activations,
normalisation, losses, sampling and Adam are not counted: their time lowers the efficiency. Products with zeros are
counted, which layers of rays skip in fp32: that raises it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Shapes = Mapping[str, tuple[int, ...]]
"""`FlatParameters.shapes`: `<layer>.weight` -> (out, in), `<layer>.bias` -> (out,)."""

FED_BY_OBSERVATIONS = (
    "actor_encoder.layers.0",
    "critic_encoder.layers.0",
    "encoder.layers.0",
    "critic.observation",
    "critic.action",
)


@dataclass(frozen=True)
class Work:
    """What an update did, in group steps: one decision of a whole group. PPO's groups have one agent.

    trained: group steps in all minibatches of all epochs. estimated: those whose values (and baselines) were computed
    before. bootstrapped: what rollouts and matches that were cut off left behind; of these only the value is computed.
    """

    trained: int
    estimated: int
    bootstrapped: int


def acting_flop(shapes: Shapes) -> float:
    """The policy's forward pass for one agent."""
    return sum(2.0 * out * in_ for name, (out, in_) in _weights(shapes).items() if not name.startswith("critic"))


def estimate_flop(trainer: str, shapes: Shapes, group_size: int, *, value_only: bool = False) -> float:
    """The critic's forward pass for one group step: the value and, with MA-POCA, a baseline per agent."""
    return sum(
        2.0 * out * in_ * _rows(trainer, name, group_size, value_only)
        for name, (out, in_) in _weights(shapes).items()
        if name.startswith("critic")
    )


def training_flop(trainer: str, shapes: Shapes, group_size: int) -> float:
    """Forward and backward pass of actor and critic for one group step of a minibatch."""
    return sum(
        2.0 * out * in_ * _rows(trainer, name, group_size) * (2 if name in FED_BY_OBSERVATIONS else 3)
        for name, (out, in_) in _weights(shapes).items()
    )


def update_flop(trainer: str, shapes: Shapes, group_size: int, work: Work) -> float:
    """A whole update. group_size: 1 for PPO."""
    return (
        work.trained * training_flop(trainer, shapes, group_size)
        + work.estimated * estimate_flop(trainer, shapes, group_size)
        + work.bootstrapped * estimate_flop(trainer, shapes, group_size, value_only=True)
    )


def _weights(shapes: Shapes) -> dict[str, tuple[int, int]]:
    """Layer -> (out, in)."""
    return {k.removesuffix(".weight"): (v[0], v[1]) for k, v in shapes.items() if k.endswith(".weight")}


def _rows(trainer: str, layer: str, group_size: int, value_only: bool = False) -> int:
    """Rows that go through a layer for one group step of G agents. KeyError for a layer that nobody has counted yet.

    MA-POCA's critic embeds G observations and, for the baselines, G observations with actions; attention is computed in
    1 + G sets of G embeddings, each of which becomes one row of the body.
    """
    if trainer == "ppo":
        return 1
    if not layer.startswith("critic"):
        return group_size
    sets, embeddings = (1, group_size) if value_only else (1 + group_size, 2 * group_size)
    return {
        "observation": group_size,
        "action": 0 if value_only else group_size,
        "attention.query_key_value": embeddings,
        "attention.out": sets * group_size,
        "layers": sets,
        "head": sets,
    }[layer.removeprefix("critic.").rstrip(".0123456789")]
