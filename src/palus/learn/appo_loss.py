"""APPO's loss over the valid decisions of one minibatch, as a pure function.

Source: Sample Factory 2.1.1. The network's outputs are few numbers per decision, so autograd through these formulas
costs nothing beside the network's own passes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from palus.config.appo import AppoHyperparameters
from palus.nn.distributions import Distribution
from palus.types import ActionSpec

RATIO_LIMIT = 20.0
"""Ratios are cut to [1 / 20, 20] before anything else."""
SYMMETRIC_KL_LIMIT = 30.0


@dataclass(frozen=True)
class Minibatch:
    """What the present outputs are compared with; n valid decisions, usable: [T, R] says where they lie.

    actions: [n, A]; parameters: [n, L] and log_probs: [n] of the acting policy; old_values, targets: [n] in the
    critic's units; advantages: [n], not normalised.
    """

    actions: Tensor
    parameters: Tensor
    log_probs: Tensor
    old_values: Tensor
    advantages: Tensor
    targets: Tensor
    usable: Tensor


def clipped_policy_loss(ratio: Tensor, advantages: Tensor, epsilon: float) -> Tensor:
    """-mean min(ratio A, clip(ratio, 1 / (1 + epsilon), 1 + epsilon) A). Source: Schulman et al. 2017, equation 7."""
    limited = ratio.clamp(1.0 / (1.0 + epsilon), 1.0 + epsilon)
    return -torch.minimum(ratio * advantages, limited * advantages).mean()


def clipped_value_loss(values: Tensor, old_values: Tensor, targets: Tensor, epsilon: float) -> Tensor:
    """mean max((V - R)^2, (V_clip - R)^2), V_clip within epsilon of the old value; without the usual 1/2."""
    near = old_values + (values - old_values).clamp(-epsilon, epsilon)
    return torch.maximum((values - targets).square(), (near - targets).square()).mean()


def loss(
    parameters: Tensor, values: Tensor, batch: Minibatch, actions: ActionSpec, h: AppoHyperparameters, beta: float
) -> tuple[Tensor, dict[str, float]]:
    """Total loss, and its parts and diagnostics by name.

    parameters: [T, R, L]; values: [T, R]; both by the present weights. beta: weight of the exploration loss.
    """
    now, old = Distribution(parameters[batch.usable], actions), Distribution(batch.parameters, actions)
    log_ratio = now.log_prob(batch.actions) - batch.log_probs
    ratio = log_ratio.exp().clamp(1.0 / RATIO_LIMIT, RATIO_LIMIT)
    advantages = batch.advantages - batch.advantages.mean()
    advantages = advantages / advantages.square().mean().sqrt().clamp(min=1e-7)
    policy_loss = clipped_policy_loss(ratio, advantages, h.epsilon)
    present = values[batch.usable]
    value_loss = h.value_coefficient * clipped_value_loss(present, batch.old_values, batch.targets, h.value_epsilon)
    entropy, kl = now.entropy().mean(), now.kl(old)
    if h.exploration_loss == "entropy":
        exploration = -beta * entropy
    else:
        exploration = beta * now.symmetric_kl().mean().clamp(max=SYMMETRIC_KL_LIMIT)
    kl_loss = h.kl_coefficient * kl.mean()
    total = policy_loss + value_loss + exploration + kl_loss
    outside = (ratio < 1.0 / (1.0 + h.epsilon)) | (ratio > 1.0 + h.epsilon)
    found = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "exploration_loss": exploration,
        "kl_loss": kl_loss,
        "kl": kl.mean(),
        "kl_max": kl.max(),
        "entropy": entropy,
        "value": present.mean(),
        "clipped": outside.float().mean(),
        "ratio_min": ratio.min(),
        "ratio_max": ratio.max(),
    }
    return total, {name: float(number.detach()) for name, number in found.items()}
