"""MA-POCA's centralised critic, evaluated once per group step instead of once per agent.

Source: Cohen et al. 2021 (arXiv 2111.05992) with ML-Agents' sizes and initialisation: entity encoders for "observation"
and "observation and action", residual self-attention with 4 heads over the agents present, a linear encoder, one
feature for the number of agents, one output.

What a group step of G agents needs: the value V of all observations, and for every agent j the baseline b_j, where j
enters with its observation and its mates with observation and action. That is 1 + G sets of G entities, but only 2 G
distinct embeddings: each is embedded and projected to query, key and value once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from palus.nn.mlp import MlpShape, body, body_layers
from palus.nn.parameters import Init, normal, xavier_uniform
from palus.nn.small_attention import LAYER_NORM_EPSILON, attend, pool

HEADS = 4
_SMALL = 0.125


def poca_critic_layers(shape: MlpShape, action_size: int) -> dict[str, tuple[int, int, Init]]:
    """Layers of value and baseline. action_size: sum of the branches (actions enter as one-hot)."""
    h = shape.hidden_units
    attention = normal(math.sqrt(_SMALL / h))
    encoder = MlpShape(h, h, shape.num_layers)
    return {
        "critic_observation": (h, shape.observation_size, attention),
        "critic_action": (h, shape.observation_size + action_size, attention),
        "critic_query_key_value": (3 * h, h, attention),
        "critic_out": (h, h, attention),
        **body_layers("critic_", encoder, gain=math.sqrt(_SMALL / h)),
        "critic_head": (1, h + 1, xavier_uniform),
    }


@cache
def _sets(group_size: int) -> Tensor:
    """[1 + G, G] indices into the 2 G embeddings: row 0 the value's set, row 1 + j the baseline's of agent j."""
    rows = [list(range(group_size))]
    rows += [[i if i == j else group_size + i for i in range(group_size)] for j in range(group_size)]
    with torch.inference_mode(False):  # the first caller may be in inference mode, later ones need gradients
        return torch.tensor(rows)


def value_and_baselines(
    tensors: Mapping[str, Tensor], num_layers: int, observations: Tensor, actions: Tensor, present: Tensor
) -> tuple[Tensor, Tensor]:
    """V [M] and b [M, G] of M group steps.

    observations: [M, G, D]; actions: [M, G, K] one-hot; present: [M, G] bool.
    Baselines of absent agents, and values of steps without agents, are meaningless numbers, but numbers.
    """
    _M, G, _ = observations.shape
    seen = F.silu(_linear(tensors, "critic_observation", observations))
    acted = F.silu(_linear(tensors, "critic_action", torch.cat([observations, actions], -1)))
    heads = _evaluate(tensors, num_layers, torch.cat([seen, acted], 1), _sets(G), present)
    return heads[:, 0], heads[:, 1:]


def value(tensors: Mapping[str, Tensor], num_layers: int, observations: Tensor, present: Tensor) -> Tensor:
    """V [M] alone; arguments as in `value_and_baselines`."""
    seen = F.silu(_linear(tensors, "critic_observation", observations))
    return _evaluate(tensors, num_layers, seen, _sets(observations.shape[1])[:1], present)[:, 0]


def _linear(tensors: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.linear(x, tensors[f"{name}_weight"], tensors[f"{name}_bias"])


def _evaluate(
    tensors: Mapping[str, Tensor], num_layers: int, embeddings: Tensor, sets: Tensor, present: Tensor
) -> Tensor:
    """embeddings: [M, E, h]; sets: [S, G] indices into E; present: [M, G]. Returns [M, S]."""
    M, _, h = embeddings.shape
    G = sets.shape[1]
    x = F.layer_norm(embeddings, (h,), eps=LAYER_NORM_EPSILON)
    mixed = attend(_linear(tensors, "critic_query_key_value", x), sets, present, HEADS)
    pooled = pool(_linear(tensors, "critic_out", mixed), x, sets, present)
    hidden = body(tensors, "critic_", num_layers, pooled)
    count = 2.0 * present.sum(1, keepdim=True).to(x.dtype) / G - 1.0
    features = torch.cat([hidden, count[:, None].expand(M, len(sets), 1)], -1)
    return _linear(tensors, "critic_head", features).squeeze(-1)
