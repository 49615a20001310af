"""PPO's loss as it is printed, one line of torch for one of the paper, for autograd to take the gradient of."""

from typing import NamedTuple

import torch

from palus.nn.distributions import Distribution


class Surrogate(NamedTuple):
    loss: torch.Tensor
    entropy: torch.Tensor
    kl: torch.Tensor
    clipped: torch.Tensor


def surrogate_formula(parameters, actions, old_log_probs, advantages, spec, epsilon, shares=None):
    """What `palus.learn.losses.surrogate` computes, without dimensions. shares: [R], by which rows count."""
    shares = torch.full((len(parameters),), 1.0 / len(parameters)) if shares is None else shares

    def mean(numbers):
        return (shares * numbers.mean(1)).sum()

    now = Distribution(parameters, spec)
    log_ratio = now.log_probs(actions) - old_log_probs
    ratio, advantages = log_ratio.exp(), advantages[:, None]
    gain = torch.minimum(ratio * advantages, ratio.clamp(1.0 - epsilon, 1.0 + epsilon) * advantages)
    entropy = sum(own / part.columns for own, part in zip(now.entropies(), spec.parts, strict=True))
    outside = ((ratio - 1.0).abs() > epsilon).float()
    return Surrogate(-mean(gain), mean(entropy[:, None]), mean(ratio - 1.0 - log_ratio), mean(outside))
