"""Behavioral cloning: gradient steps towards the actions of demonstrations, between those of a trainer.

L = mean over branches of -log p(expert's choice) + mean over numbers of (a - expert's)^2, where a is *drawn*: so the
deviation shrinks too. Numbers are compared as the game is told them, in units of half its range. The rate is the
trainer's initial one times `strength`, and falls to 1e-10 over `steps`. Source: ML-Agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from palus.config.trainer import Behavior, BehavioralCloning
from palus.learn.adam import Adam
from palus.learn.losses import linear_schedule
from palus.learn.sequences import Sequences
from palus.nn.distributions import Categorical, Distribution
from palus.nn.network import Network
from palus.types import I64, ActionSpec, Continuous
from palus.unity.demonstrations import read_demonstrations

LEAST_RATE = 1e-10
EPOCHS = 3


def cloning_loss(parameters: Tensor, noise: Tensor, actions: Tensor, spec: ActionSpec, squash: bool) -> Tensor:
    """L of the module. parameters: [R, L]; noise: [R, C] standard normal, of the numbers; actions: [R, A] as the game
    was told; squash: as in `palus.nn.distributions.told`."""
    choices, errors, first = list[Tensor](), list[Tensor](), 0
    distribution = Distribution(parameters, spec)
    for part, own, columns in zip(spec.parts, distribution.parts, spec.column_slices, strict=True):
        if isinstance(own, Categorical):
            choices.append(-own.log_probs(actions[:, columns]).mean())
            continue
        assert isinstance(part, Continuous)
        drawn = own.mean + own.log_std.exp() * noise[:, first : first + part.size]
        first += part.size
        middle, half = part.squashed
        wanted = (actions[:, columns] - middle) / half
        errors.append((torch.tanh(drawn) if squash else (drawn - middle) / half) - wanted)
    loss = parameters.new_zeros(())
    if choices:
        loss = loss + torch.stack(choices).mean()
    if errors:
        loss = loss + torch.cat(errors, 1).square().mean()
    return loss


class Cloning:
    """Demonstrations and the optimiser that follows them. generator: its draws.

    Raises DemonstrationError where `demo_path` holds nothing to learn from.
    """

    def __init__(self, settings: BehavioralCloning, network: Network, seed: int) -> None:
        self.settings, self.network = settings, network
        self.experts = read_demonstrations(Path(settings.demo_path), network.spec)
        self.optimizer = Adam(
            network.weights, place=network.place
        )  # of the critic's weights, whose gradient is 0, it moves none
        self.generator = torch.Generator().manual_seed(seed)
        self._numbers = sum(part.size for part in network.spec.actions.parts if isinstance(part, Continuous))
        self._keep = np.ones((len(self.experts), 1), np.float32)
        self._keep[1:, 0] = ~self.experts.ended[:-1]

    def rate(self, learning_rate: float, step: int) -> float:
        """The step size at a trainer step; 0 when it is over. learning_rate: the trainer's at the start."""
        rate, steps = learning_rate * self.settings.strength, self.settings.steps
        rate = linear_schedule(rate, LEAST_RATE, step, steps) if steps else rate
        return rate if rate > LEAST_RATE else 0.0

    def minibatches(self, behavior: Behavior) -> list[tuple[Sequences, I64]]:
        """One update's minibatches: whole sequences where there is memory, shuffled anew in each epoch."""
        settings, length = self.settings, behavior.sequence_length
        sequences = Sequences(np.ones((len(self.experts), 1), np.bool_), min(length, len(self.experts)))
        numbers = sequences.numbers
        size = max(min(settings.batch_size or behavior.hyperparameters.batch_size, len(self.experts)) // length, 1)
        count = max(len(numbers) // size, 1)
        if settings.samples_per_update:
            count = max(min(count, settings.samples_per_update // (size * length)), 1)
        found = []
        for _ in range(settings.num_epoch or EPOCHS):
            order = numbers[torch.randperm(len(numbers), generator=self.generator).numpy()]
            found += [(sequences, order[k * size : (k + 1) * size]) for k in range(count)]
        return found

    def part(self, sequences: Sequences, numbers: I64) -> tuple[float, tuple[Tensor, ...]]:
        """The loss of some sequences and its gradient, tensor by tensor; memory is empty before each."""
        network, experts = self.network, self.experts
        index, counts = sequences.decisions(numbers)
        tensor = network.place.tensor
        states = tensor(np.zeros((len(numbers), network.state_size), np.float32))
        keep = tensor(self._keep.ravel()[index])
        parameters, _, _ = network(network.inputs(experts.observations, index.ravel()), states, keep)
        parameters = parameters[tensor(counts.ravel())]
        noise = torch.randn((len(parameters), self._numbers), generator=self.generator).to(parameters.device)
        leaf = parameters.detach().requires_grad_()
        actions = tensor(experts.actions[index[counts]])
        loss = cloning_loss(leaf, noise, actions, network.spec.actions, network.squash)
        (slope,) = torch.autograd.grad(loss, leaf)
        return float(loss.detach()), network.weights.backward([parameters], [slope], partial=True)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        return {"optimizer": self.optimizer.state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. KeyError or ValueError when it is of another shape."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
