"""MA-POCA's centralised critic, evaluated once per group step instead of once per agent.

Source: Cohen et al. 2021 (arXiv 2111.05992) with ML-Agents' sizes and initialisation: entity encoders for "observation"
and "observation and action", residual self-attention with 4 heads over the agents present, a linear encoder, memory
where the policy has one, one feature for the number of agents, an output for each reward.

What a group step of G agents needs: the value V of all observations, and for every agent j the baseline b_j, where j
enters with its observation and its mates with observation and action. That is 1 + G sets of G entities, but only 2 G
distinct embeddings: each is embedded and projected to query, key and value once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor, nn

from palus.config.network import NetworkSettings
from palus.nn.cores import Core
from palus.nn.encoders import Apart, InputLayer, reader_of
from palus.nn.layers import Linear, fully_connected
from palus.nn.parameters import kaiming, normal, xavier_uniform
from palus.nn.small_attention import SelfAttention, attention_gain
from palus.trust import NOBODY, Trust
from palus.types import ActionSpec, BehaviorSpec, Discrete


class AttentionCritic(nn.Module):
    """Values and baselines of groups, whatever their agents see and do. streams, S: rewards that have a value each."""

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, trust: Trust = NOBODY, *, streams: int = 1
    ) -> None:
        super().__init__()
        h, self.actions = settings.hidden_units, spec.actions
        gain = attention_gain(h)
        acted = sum(part.choices if isinstance(part, Discrete) else part.size for part in spec.actions.parts)
        self.encoder = (Apart if settings.encoding == "apart" else InputLayer)(spec.observations, settings, trust)
        width = self.encoder.out_features
        reader = Linear if settings.encoding == "apart" else reader_of(spec.observations, settings)
        self.observation = reader(width, h, normal(gain))
        self.action = reader(width + acted, h, normal(gain))
        self.attention = SelfAttention(h)
        self.layers = fully_connected(h, [h] * settings.num_layers, settings.activation, kaiming(gain))
        self.core = Core(h, settings.memory)
        self.head = Linear(self.core.out_features + 1, streams, xavier_uniform)

    def forward(
        self,
        inputs: Mapping[str, Tensor],
        actions: Tensor | None,
        present: Tensor,
        states: Tensor | None = None,
        keep: Tensor | None = None,
        paused: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """V [M, S] and b [M, G, S] of M group steps; without actions V alone.

        inputs: of M G agents, the members of a group adjacent (`Network.inputs`); actions: [M, G, A] as stored;
        present: [M, G] bool. Baselines of absent agents, and values of steps without agents, are meaningless numbers,
        but numbers. Where there is memory, M are T steps of N groups, time first, and V and every baseline remember
        for themselves: states [N, 1 + G, floats] and keep [T, N, 1 + G] as of `Core.forward` ([., 1, .] for V alone);
        paused: [T, N, G] of the baselines.
        """
        x = self.pooled(inputs, actions, present)
        if states is not None and keep is not None:
            resting = None if paused is None else F.pad(paused, (1, 0)).flatten(1)
            remembered, _ = self.core.forward(x.flatten(0, 1), states.flatten(0, 1), keep.flatten(1), resting)
            x = remembered.view(*x.shape[:2], -1)
        count = 2.0 * present.sum(1, keepdim=True).to(x.dtype) / present.shape[1] - 1.0
        weight, of_count = self.head.weight[:, :-1], self.head.weight[:, -1]  # beside each other would be a copy of x
        heads = F.linear(x, weight, self.head.bias) + count[:, None] * of_count
        return heads[:, 0], None if actions is None else heads[:, 1:]

    def pooled(self, inputs: Mapping[str, Tensor], actions: Tensor | None, present: Tensor) -> Tensor:
        """What memory and head read, of V and of every baseline, without actions of V alone: [M, 1 + G, h]."""
        M, G = present.shape
        x = self.encoder(inputs).view(M, G, -1)
        parts, sets = [self.observation(x)], _sets(G, x.device)
        if actions is None:
            sets = sets[:1]
        else:
            acted = torch.cat([x, action_features(actions, self.actions, x.dtype)], -1)
            parts.append(self.action(acted))
        return self.layers.forward(self.attention(parts, sets, present))


def _sets(group_size: int, device: torch.device) -> Tensor:
    """[1 + G, G] indices into the 2 G embeddings: row 0 the value's set, row 1 + j the baseline's of agent j."""
    members = torch.arange(group_size, device=device)
    own = torch.eye(group_size, device=device) > 0
    return torch.cat([members[None], torch.where(own, members, group_size + members)])


def action_features(actions: Tensor, spec: ActionSpec, dtype: torch.dtype) -> Tensor:
    """[..., A] as stored -> one-hot where discrete, as it is where continuous, side by side."""
    features = []
    for part, columns in zip(spec.parts, spec.column_slices, strict=True):
        own = actions[..., columns]
        if isinstance(part, Discrete):
            own = F.one_hot(own[..., 0].long(), part.choices)
        features.append(own.to(dtype))
    return torch.cat(features, -1)
