"""Proximal policy optimisation.

Source: Schulman et al. 2017 (arXiv 1707.06347), with ML-Agents' details: probability ratio per action column, loss =
policy + 0.5 value - beta entropy, advantages normalised over the whole buffer, one Adam over actor and critic, no
gradient clipping, remainder of a shuffled epoch dropped.

Deviations from ML-Agents 1.1.0, with reasons in docs/differences.md: values are computed in one batch after the
rollout, segments end with the rollout rather than at `time_horizon`. As there, the value loss is not clipped.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from palus.config.trainer import PpoBehavior
from palus.learn.device_steps import Descent, Held
from palus.learn.learner import Part, flat
from palus.learn.losses import surrogate, surrogate_tensors, value_loss, value_tensors
from palus.learn.on_policy import DECISIONS, Counts, OnPolicy
from palus.learn.returns import kept_memory, usable_decisions
from palus.learn.sequences import Sequences
from palus.rollout.rollout import Rollout
from palus.types import F32, I64


class PPO(OnPolicy):
    """Learner of one behavior; every agent learns from its own reward plus its group's."""

    behavior: PpoBehavior
    tags: ClassVar = ("Losses/Policy Loss", "Losses/Value Loss", "Policy/KL", "Policy/Clipped")

    def advantages(self, rollout: Rollout, rewards: F32, values: F32) -> tuple[F32, F32]:
        """Advantages [T, B], the mean over the signals' own, and value targets [T, B, S]. rewards, values: [T, B, S],
        of the decisions."""
        following, ended = self.following(rollout, values, self.finals(rollout)), rollout.terminated | rollout.truncated
        usable, lambd = usable_decisions(rollout), self.behavior.hyperparameters.lambd
        found = [
            self.kernels.gae(rewards[..., s], values[..., s], following[..., s], ended, usable, self.gamma(name), lambd)
            for s, name in enumerate(self.signals)
        ]
        advantages: F32 = np.mean([own for own, _ in found], 0)
        return advantages, np.stack([targets for _, targets in found], -1)

    def update(self, rollout: Rollout, step: int) -> dict[str, float]:
        """Several epochs of shuffled minibatches of decisions, in whole sequences where there is memory."""
        usable = usable_decisions(rollout)
        if not self.anybody(usable):
            return {}
        strata = self.strata(rollout)
        rollout = self.resident(rollout)
        self.observe(rollout, usable)
        h, now, length = self.behavior.hyperparameters, self.schedules(step), self.sequence_length(rollout)
        values, states = self.replay(rollout, length)
        rewards = self.rewards(rollout, usable)
        advantages, targets = self.advantages(rollout, rewards, values)
        self.normalize(advantages, usable, strata)
        sequences, keep = Sequences(usable, length), kept_memory(rollout)
        memory = torch.from_numpy(flat(states))

        def count(numbers: I64) -> tuple[int]:
            """Decisions that count in some sequences."""
            return (int(sequences.decisions(numbers)[1].sum()),)

        def part(numbers: I64, whole: Counts) -> Part:
            """What some sequences add to the gradient of L_pi + 0.5 L_V - beta entropy over a minibatch."""
            index, counts = sequences.decisions(numbers)
            parameters, values, _ = self.forward(rollout, index, memory[torch.from_numpy(numbers)], keep)
            assert values is not None
            own = index[counts]
            if len(own) < index.size:
                chosen = torch.from_numpy(counts.ravel())
                parameters, values = parameters[chosen], values[chosen]
            (policy_loss, _, kl, clipped), slope = surrogate(
                parameters, flat(rollout.actions)[own], flat(rollout.log_probs)[own], advantages.ravel()[own],
                self.spec.actions, now.epsilon, now.beta,
            )  # fmt: skip
            critic_loss, value_slope = value_loss(values, flat(targets)[own], 0.5)
            share = len(own) / whole[0]
            gradient = self.network.weights.backward([parameters, values], [slope * share, value_slope * share])
            means = share * policy_loss, share * critic_loss, share * kl, share * clipped
            return Part(gradient, dict(zip(self.tags, means, strict=True)))

        def study(minibatch: I64) -> dict[str, float]:
            index, counts = sequences.decisions(minibatch)
            return self.study(rollout, index[counts])

        size = h.batch_size // length
        if self.place.compiled:
            found = self.epochs(strata, sequences, size, part, count, now.learning_rate, study)
        else:
            acted = flat(rollout.actions), flat(rollout.log_probs)
            decisions = *acted, keep.ravel(), advantages.ravel(), flat(targets)
            found = self.device_epochs(rollout, sequences, size, decisions, {"memory": flat(states)}, now, study)
        found |= self.imitate(step)
        self.finish()
        estimates = {f"Policy/{n.title()} Value Estimate": float(values[usable, s].mean())
                     for s, n in enumerate(self.signals)} if usable.any() else {}  # fmt: skip
        return found | self.pooled(self.paid_tags(rewards, usable) | estimates, int(usable.sum())) | now.tags()

    def objective(self, held: Held) -> Descent:
        """L_pi + 0.5 L_V - beta entropy: see `OnPolicy.objective`."""
        index, places, shares = held["index"], held["index"].flatten(), held["shares"].flatten()
        A, S = self.spec.actions.columns, self.network.streams
        actions, log_probs, keep, advantages, targets = torch.split(held[DECISIONS][places], [A, A, 1, 1, S], 1)
        inputs, masks = self.inputs_of(held, places)
        memory = held["memory"][held["numbers"]]
        parameters, values, _ = self.network(inputs, memory, keep.view(index.shape), masks)
        found, slope = surrogate_tensors(
            parameters, actions, log_probs, advantages.squeeze(1),
            self.spec.actions, held["epsilon"], held["beta"], shares,
        )  # fmt: skip
        critic_loss, value_slope = value_tensors(values, targets, shares, 0.5)
        return Descent((parameters, values), (slope, value_slope), (found[:1].abs(), critic_loss, found[1:]))
