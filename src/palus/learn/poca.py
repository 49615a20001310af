"""MA-POCA: multi-agent posthumous credit assignment.

Source: Cohen et al. 2021 (arXiv 2111.05992): a centralised value over the agents present, a counterfactual baseline
that leaves out only the agent's own action, TD(lambda) targets for both, PPO's surrogate for the policy.

A group shares one return: r_t is the sum of the members' own rewards plus the group reward, and the return runs on
after a member has left. So its last action is credited with what the group achieves later, without absorbing states.
(ML-Agents stops the lambda-return where a member leaves and bootstraps there; docs/differences.md.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from palus.config import PocaBehavior
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
from palus.learn.returns import normalize, td_lambda
from palus.nn.attention import poca_critic_layers, value, value_and_baselines
from palus.nn.mlp import MlpShape, actor_layers, actor_logits
from palus.nn.parameters import FlatParameters
from palus.rollout.rollout import Rollout
from palus.types import F32, I32, I64, AnyArray, BehaviorSpec, Bool


@dataclass(frozen=True)
class GroupBatch:
    """A rollout seen as M = T x groups group steps of G agents.

    observations: [M, G, D]; actions, log_probs: [M, G, A]; present: [M, G].
    values: [M]; baselines, advantages: [M, G]; returns: [M].
    """

    observations: F32
    actions: I32
    log_probs: F32
    present: Bool
    values: F32
    baselines: F32
    advantages: F32
    returns: F32


class POCA:
    """Learner of one behavior whose agents belong to groups."""

    def __init__(
        self, behavior: PocaBehavior, spec: BehaviorSpec, dtype: torch.dtype, seed: int, threads: int = 1
    ) -> None:
        self.behavior, self.spec = behavior, spec
        network = behavior.network_settings
        self.shape = MlpShape(spec.observation_size, network.hidden_units, network.num_layers)
        self.generator = torch.Generator().manual_seed(seed)
        layers = actor_layers(self.shape, spec.branches) | poca_critic_layers(self.shape, sum(spec.branches))
        self.parameters = FlatParameters(layers, dtype=dtype, generator=self.generator)
        self.actor = Actor(self.parameters, self.shape, spec, network.normalize)
        self.optimizer = Adam(self.parameters)
        self.parallel = DataParallel(self.parameters, self.optimizer, threads)
        self.updates = 0
        self._identity = [torch.eye(n, dtype=dtype) for n in spec.branches]

    def one_hot(self, actions: I32) -> torch.Tensor:
        """actions: [..., A] -> [..., sum of branches]."""
        index = torch.from_numpy(actions.astype(np.int64))
        return torch.cat([eye[index[..., a]] for a, eye in enumerate(self._identity)], -1)

    def estimate(self, observations: F32, actions: I32 | None, present: Bool) -> tuple[F32, F32]:
        """Values [M] and baselines [M, G] (empty without actions) of group steps; arguments as in GroupBatch."""
        M, G, _ = observations.shape
        tensors, num_layers = self.parameters.tensors, self.shape.num_layers
        values, baselines = np.zeros(M, np.float32), np.zeros((M if actions is not None else 0, G), np.float32)

        @torch.inference_mode()
        def evaluate(first: int) -> None:
            part = slice(first, first + EVALUATION_ROWS // G)
            x = self.actor.inputs(torch.from_numpy(observations[part]))
            there = torch.from_numpy(present[part])
            if actions is None:
                values[part] = value(tensors, num_layers, x, there).float().numpy()
                return
            v, b = value_and_baselines(tensors, num_layers, x, self.one_hot(actions[part]), there)
            values[part], baselines[part] = v.float().numpy(), b.float().numpy()

        self.parallel.map(evaluate, range(0, M, EVALUATION_ROWS // G))
        return values, baselines

    def batch(self, rollout: Rollout) -> GroupBatch:
        """Values, baselines, returns and advantages of a rollout."""
        T, B, _ = rollout.observations.shape
        G = rollout.group_size

        def groups(x: AnyArray) -> AnyArray:
            return x.reshape(T * B // G, G, *x.shape[2:])

        observations, actions, present = groups(rollout.observations), groups(rollout.actions), groups(rollout.active)
        values, baselines = self.estimate(observations, actions, present)
        next_values, ended = self._next_values(rollout, values.reshape(T, B // G))
        extrinsic = self.behavior.extrinsic
        own = (rollout.rewards * rollout.active).reshape(T, B // G, G).sum(2)
        of_group = (rollout.group_rewards * rollout.active).reshape(T, B // G, G)
        shared = of_group.sum(2) / np.maximum(rollout.active.reshape(T, B // G, G).sum(2), 1)
        rewards = ((own + shared) * extrinsic.strength).astype(np.float32)
        lambd = self.behavior.hyperparameters.lambd
        returns = td_lambda(rewards, next_values, ended, extrinsic.gamma, lambd).reshape(-1)
        return GroupBatch(
            observations, actions, groups(rollout.log_probs), present, values, baselines,
            returns[:, None] - baselines, returns,
        )  # fmt: skip

    def _next_values(self, rollout: Rollout, values: F32) -> tuple[F32, Bool]:
        """V of the following group step and whether the group's episode ended, [T, groups] each.

        A member that is cut off while others go on leaves like one that is terminated: the group's return runs on.
        """
        T, B, D = rollout.observations.shape
        G = rollout.group_size
        ended_now = (rollout.terminated | rollout.truncated).reshape(T, B // G, G)
        active = rollout.active.reshape(T, B // G, G)
        # A group ends when nobody who took part in this step goes on.
        ended: Bool = np.logical_not((active & ~ended_now).any(2))
        following = np.empty_like(values)
        following[:-1] = values[1:]
        last = rollout.last_observations.reshape(B // G, G, D)
        following[-1] = self.estimate(last, None, rollout.last_active.reshape(B // G, G))[0]
        following[ended] = 0.0
        cut_off = rollout.truncated.reshape(T, B // G, G)
        bootstrapped = ended & cut_off.any(2)
        if bootstrapped.any():
            members = cut_off[bootstrapped]
            final = np.zeros((*members.shape, D), np.float32)
            final[members] = rollout.final_observations[np.repeat(bootstrapped, G, 1)[rollout.truncated]]
            following[bootstrapped] = self.estimate(final, None, members)[0]
        return following, ended

    def update(self, rollout: Rollout, step: int) -> UpdateStats | None:
        """Several epochs of shuffled minibatches of whole group steps (batch_size / G of them each)."""
        if not rollout.active.any():
            return None
        if self.actor.normalizer is not None:
            self.actor.normalizer.update(torch.from_numpy(rollout.observations[rollout.active]))
        h = self.behavior.hyperparameters
        now = Schedules.at(self.behavior, step)
        batch = self.batch(rollout)
        batch.advantages[batch.present] = normalize(batch.advantages[batch.present])
        rows = np.flatnonzero(batch.present.any(1))

        def part(index: I64, minibatch: I64) -> Part:
            return self._part(batch, index, minibatch, now)

        size = max(1, min(h.batch_size // rollout.group_size, len(rows)))
        sums, count = np.zeros(5), 0
        for _ in range(h.num_epoch):
            order = rows[torch.randperm(len(rows), generator=self.generator).numpy()]
            for first in range(0, len(rows) - size + 1, size):
                policy_loss, *others = self.parallel.step(order[first : first + size], part, now.learning_rate)
                sums += (abs(policy_loss), *others)
                count += 1
        self.updates += 1
        self.parallel.refuse_divergence(self.updates)
        policy, critic, baseline, kl, clipped = (sums / max(count, 1)).tolist()
        estimates = float(batch.values[rows].mean()), float(batch.baselines[batch.present].mean())
        return UpdateStats(policy, critic, baseline, estimates[0], estimates[1], kl, clipped, now)

    def _part(self, batch: GroupBatch, index: I64, minibatch: I64, now: Schedules) -> Part:
        """What some group steps add to the gradient of L_pi + 0.5 (L_V + 0.5 L_b) - beta entropy over a minibatch.

        L_V is a mean over group steps, the others are means over the agents present.
        """
        tensors, num_layers = self.parameters.tensors, self.shape.num_layers
        present, actions = batch.present[index], batch.actions[index]
        x = self.actor.inputs(torch.from_numpy(batch.observations)[torch.from_numpy(index)])
        everyone = bool(present.all())
        acting = x.flatten(0, 1) if everyone else x[torch.from_numpy(present)]
        logits = actor_logits(tensors, num_layers, acting)
        values, baselines = value_and_baselines(
            tensors, num_layers, x, self.one_hot(actions), torch.from_numpy(present)
        )
        logit_gradient = np.empty(logits.shape, np.float32)
        policy_loss, _, kl, clipped = clipped_surrogate(
            logits.detach().float().numpy(), actions[present], batch.log_probs[index][present],
            batch.advantages[index][present], self.spec.branch_offsets, now.epsilon, now.beta, logit_gradient,
        )  # fmt: skip
        returns = batch.returns[index]
        critic_loss, value_gradient = value_loss(values.detach().float().numpy(), returns, 0.5)
        targets = np.repeat(returns[:, None], present.shape[1], 1)[present]
        baseline_gradient = np.zeros(present.shape, np.float32)
        baseline_loss, baseline_gradient[present] = value_loss(
            baselines.detach().float().numpy()[present], targets, 0.25
        )
        of_steps = len(index) / len(minibatch)
        of_agents = float(present.sum() / batch.present[minibatch].sum())
        weighted = ((logit_gradient, of_agents), (value_gradient, of_steps), (baseline_gradient, of_agents))
        gradients = [torch.from_numpy(g * np.float32(share)).to(x.dtype) for g, share in weighted]
        found = self.parameters.backward([logits, values, baselines], gradients)
        means = (policy_loss, of_agents), (critic_loss, of_steps), (baseline_loss, of_agents)
        rates = (kl, of_agents), (clipped, of_agents)
        return Part(found, tuple(share * mean for mean, share in (*means, *rates)))

    def state_dict(self) -> dict[str, object]:
        """Weights, optimiser, normaliser, shuffling state."""
        return learner_state(self)

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """See `Learner.load_state_dict`."""
        load_learner_state(self, state)
