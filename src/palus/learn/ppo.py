"""Proximal policy optimisation on discrete branches.

Source: Schulman et al. 2017 (arXiv 1707.06347), with ML-Agents' details: probability ratio per action branch, loss =
policy + 0.5 value - beta entropy, advantages normalised over the whole buffer, one Adam over actor and critic, no
gradient clipping, remainder of a shuffled epoch dropped.

Deviations from ML-Agents 1.1.0, with reasons in docs/differences.md: values are computed in one batch after the
rollout, segments end with the rollout rather than at `time_horizon`. As there, the value loss is not clipped.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from palus.config import PpoBehavior
from palus.learn.adam import Adam
from palus.learn.learner import (
    EVALUATION_ROWS,
    Actor,
    DataParallel,
    Part,
    Schedules,
    UpdateStats,
    learner_state,
    load_learner_state,
)
from palus.learn.losses import clipped_surrogate, value_loss
from palus.learn.returns import gae, normalize
from palus.nn.mlp import MlpShape, actor_layers, actor_logits, body, critic_layers, critic_value
from palus.nn.parameters import FlatParameters, xavier_uniform
from palus.rollout.rollout import Rollout
from palus.types import F32, I64, BehaviorSpec


class PPO:
    """Learner of one behavior; every agent learns from its own reward plus its group's."""

    def __init__(
        self, behavior: PpoBehavior, spec: BehaviorSpec, dtype: torch.dtype, seed: int, threads: int = 1
    ) -> None:
        self.behavior, self.spec = behavior, spec
        network = behavior.network_settings
        self.shape = MlpShape(spec.observation_size, network.hidden_units, network.num_layers)
        self.shared_critic = behavior.hyperparameters.shared_critic
        self.generator = torch.Generator().manual_seed(seed)
        critic = {"critic_value": (1, network.hidden_units, xavier_uniform)}
        layers = actor_layers(self.shape, spec.branches) | (critic if self.shared_critic else critic_layers(self.shape))
        self.parameters = FlatParameters(layers, dtype=dtype, generator=self.generator)
        self.actor = Actor(self.parameters, self.shape, spec, network.normalize)
        self.optimizer = Adam(self.parameters)
        self.parallel = DataParallel(self.parameters, self.optimizer, threads)
        self.updates = 0

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x: [R, D] -> logits [R, sum of branches], values [R]."""
        tensors, num_layers = self.parameters.tensors, self.shape.num_layers
        if not self.shared_critic:
            return actor_logits(tensors, num_layers, x), critic_value(tensors, num_layers, x)
        hidden = body(tensors, "actor_", num_layers, x)
        logits = torch.nn.functional.linear(hidden, tensors["actor_heads_weight"], tensors["actor_heads_bias"])
        values = torch.nn.functional.linear(hidden, tensors["critic_value_weight"], tensors["critic_value_bias"])
        return logits, values.squeeze(-1)

    def values(self, observations: F32) -> F32:
        """observations: [R, D] -> critic estimates [R]."""
        tensors, num_layers = self.parameters.tensors, self.shape.num_layers
        out = np.empty(len(observations), np.float32)

        @torch.inference_mode()
        def evaluate(first: int) -> None:
            x = self.actor.inputs(torch.from_numpy(observations[first : first + EVALUATION_ROWS]))
            v = self._forward(x)[1] if self.shared_critic else critic_value(tensors, num_layers, x)
            out[first : first + len(x)] = v.float().numpy()

        self.parallel.map(evaluate, range(0, len(observations), EVALUATION_ROWS))
        return out

    def advantages(self, rollout: Rollout) -> tuple[F32, F32, F32]:
        """Old values, advantages and value targets, [T, B] each."""
        T, B, D = rollout.observations.shape
        values = self.values(rollout.observations.reshape(T * B, D)).reshape(T, B)
        next_values = np.empty_like(values)
        next_values[:-1] = values[1:]
        next_values[-1] = self.values(rollout.last_observations)
        next_values[rollout.terminated] = 0.0
        if len(rollout.final_observations):
            next_values[rollout.truncated] = self.values(rollout.final_observations)
        extrinsic = self.behavior.extrinsic
        rewards = (rollout.rewards + rollout.group_rewards) * extrinsic.strength
        ended = rollout.terminated | rollout.truncated
        lambd = self.behavior.hyperparameters.lambd
        advantages, targets = gae(
            rewards.astype(np.float32), values, next_values, ended, rollout.active, extrinsic.gamma, lambd
        )
        return values, advantages, targets

    def update(self, rollout: Rollout, step: int) -> UpdateStats | None:
        """Several epochs of shuffled minibatches over the rollout's active rows."""
        if not rollout.active.any():
            return None
        if self.actor.normalizer is not None:
            self.actor.normalizer.update(torch.from_numpy(rollout.observations[rollout.active]))
        h = self.behavior.hyperparameters
        now = Schedules.at(self.behavior, step)
        old_values, advantages, targets = (x.ravel() for x in self.advantages(rollout))
        rows = np.flatnonzero(rollout.active)
        advantages[rows] = normalize(advantages[rows])
        T, B, D = rollout.observations.shape
        observations = torch.from_numpy(rollout.observations.reshape(T * B, D))
        actions = rollout.actions.reshape(T * B, -1)
        log_probs = rollout.log_probs.reshape(T * B, -1)

        def part(index: I64, minibatch: I64) -> Part:
            """What some rows add to the gradient of L_pi + 0.5 L_V - beta entropy over a minibatch."""
            share = len(index) / len(minibatch)
            x = self.actor.inputs(observations[torch.from_numpy(index)])
            logits, values = self._forward(x)
            logit_gradient = np.empty(logits.shape, np.float32)
            policy_loss, _, kl, clipped = clipped_surrogate(
                logits.detach().float().numpy(), actions[index], log_probs[index], advantages[index],
                self.spec.branch_offsets, now.epsilon, now.beta, logit_gradient,
            )  # fmt: skip
            critic_loss, value_gradient = value_loss(values.detach().float().numpy(), targets[index], 0.5)
            gradients = [torch.from_numpy(g * np.float32(share)).to(x.dtype) for g in (logit_gradient, value_gradient)]
            found = self.parameters.backward([logits, values], gradients)
            return Part(found, tuple(share * mean for mean in (policy_loss, critic_loss, kl, clipped)))

        size = min(h.batch_size, len(rows))
        sums, count = np.zeros(4), 0
        for _ in range(h.num_epoch):
            order = rows[torch.randperm(len(rows), generator=self.generator).numpy()]
            for first in range(0, len(rows) - size + 1, size):
                policy_loss, *others = self.parallel.step(order[first : first + size], part, now.learning_rate)
                sums += (abs(policy_loss), *others)
                count += 1
        self.updates += 1
        self.parallel.refuse_divergence(self.updates)
        means = (sums / max(count, 1)).tolist()
        return UpdateStats(means[0], means[1], None, float(old_values[rows].mean()), None, means[2], means[3], now)

    def state_dict(self) -> dict[str, object]:
        """Weights, optimiser, normaliser, shuffling state."""
        return learner_state(self)

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """See `Learner.load_state_dict`."""
        load_learner_state(self, state)
