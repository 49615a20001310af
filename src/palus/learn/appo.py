"""Asynchronous PPO: the learner of policies whose data may lag behind.

Source: Petrenko et al. 2020 (Sample Factory, arXiv 2006.11751) and release 2.1.1: one probability ratio per decision,
clipped to [1 / (1 + epsilon), 1 + epsilon]; clipped value loss without 1/2; advantages normalised per minibatch; means
over valid decisions. Deviations, with reasons in docs/differences.md: time-outs bootstrap from the episode's last
observation, V-trace evaluates the state after the last decision, linear schedules reach 0 at max_steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from palus.config.appo import AppoHyperparameters
from palus.config.trainer import AppoBehavior, Behavior
from palus.errors import ConfigError
from palus.learn.learner import Learner, means, numbers_of
from palus.learn.losses import clipped_policy_loss
from palus.learn.returns import kept_memory, usable_decisions
from palus.nn.distributions import Distribution
from palus.nn.running import CLIP, RunningMoments
from palus.rollout.rollout import Rollout
from palus.types import F32, I64, ActionSpec, Bool

RATIO_LIMIT = 20.0
"""Ratios are cut to [1 / 20, 20] before anything else."""
SYMMETRIC_KL_LIMIT = 30.0


@dataclass(frozen=True)
class Batch:
    """A rollout, prepared for learning. Arrays [T, B].

    keep: 0 where the state is zero before the decision; usable: learn from it; log_probs: of all columns together;
    old_values, targets: in the critic's units; rewards, next_values: in units of rewards.
    """

    rollout: Rollout
    keep: F32
    usable: Bool
    ended: Bool
    log_probs: F32
    rewards: F32
    next_values: F32
    old_values: F32
    advantages: F32
    targets: F32


@dataclass(frozen=True)
class Minibatch:
    """What the present outputs are compared with; n usable decisions, usable: [T, R] says where they lie.

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


@dataclass(frozen=True)
class Whole:
    """Of a whole minibatch: how many decisions are usable, mean and deviation of their advantages, and the mean
    symmetric KL of their distributions, where the loss has it."""

    count: int
    mean: float
    deviation: float
    symmetric_kl: float = 0.0


class APPO(Learner):
    """Learner of one policy whose rollouts are rows of one length, learned from as they are.

    Raises ConfigError when the settings do not fit the game.
    """

    behavior: AppoBehavior
    counts_frames: ClassVar[bool] = True

    def complete(self) -> None:
        """See `Learner.complete`."""
        h = self.behavior.hyperparameters
        if h.exploration_loss == "symmetric_kl" and not self.spec.actions.is_discrete:
            raise ConfigError(
                "exploration_loss symmetric_kl: the game has continuous actions, which no uniform distribution covers; "
                "use entropy"
            )
        self.network.returns = RunningMoments(1) if h.normalize_returns else None
        self.adapted_rate = h.learning_rate

    def adam(self) -> dict[str, float]:
        """See `Learner.adam`."""
        h = self.behavior.hyperparameters
        return {"beta1": h.adam_beta1, "beta2": h.adam_beta2, "epsilon": h.adam_epsilon}

    def learning_rate(self, step: int) -> float:
        """The step size at a trainer step."""
        adaptive = self.behavior.hyperparameters.adaptive_learning_rate != "off"
        return self.adapted_rate if adaptive else self.scheduled("learning_rate", step)

    def update(self, rollout: Rollout, step: int) -> dict[str, float]:
        """Several epochs over the rows of a rollout."""
        h = self.behavior.hyperparameters
        behind = self.network.version - rollout.versions
        usable = usable_decisions(rollout) & (behind < h.max_policy_lag)
        if not self.anybody(usable):
            return {}
        rows, strata = np.flatnonzero(usable.any(0)), self.strata(rollout)
        items = [rows[own] for own in strata.split(rows)]
        decisions = self.total([len(own) for own in items]) * len(usable)
        minibatches = max(1, round(decisions / h.batch_size))
        lags = behind[usable]
        batch = self.prepare(rollout, usable)
        found: list[dict[str, float]] = []
        for _ in range(h.num_epoch):
            order = strata.shuffled(items, self.generator) if h.shuffle else items
            first, dealt = len(found), list(strata.dealt(order, minibatches, (1, minibatches)))
            there = zip(*self.ranks.gather([sum(map(len, pieces)) for pieces in dealt]), strict=True)
            for pieces in (pieces for pieces, counts in zip(dealt, there, strict=True) if any(counts)):
                found.append(self._step(pieces, batch, step))
                if h.adaptive_learning_rate == "minibatch":
                    self._adapt(found[-1]["Policy/KL"])
            if h.adaptive_learning_rate == "epoch":
                self._adapt(means(found[first:])["Policy/KL"])
        self.finish()
        return means(found) | {
            "Policy/Learning Rate": self.learning_rate(step),
            "Policy/Lag Max": float(max(self.ranks.gather(int(lags.max(initial=0))))),
            "Policy/Valid Share": self.total([len(lags)]) / decisions,
            **self.pooled({"Policy/Lag": float(lags.mean())} if len(lags) else {}, len(lags)),
        }

    def _adapt(self, kl: float) -> None:
        """Rate / 1.5 above twice the target KL, x 1.5 below half of it, within the limits."""
        h = self.behavior.hyperparameters
        factor = 1 / 1.5 if kl > 2 * h.target_kl else 1.5 if kl < h.target_kl / 2 else 1.0
        self.adapted_rate = min(max(self.adapted_rate * factor, h.min_learning_rate), h.max_learning_rate)

    def rewards(self, rollout: Rollout, usable: Bool) -> F32:
        """As every learner's, clipped."""
        limit = self.behavior.hyperparameters.reward_clip
        return super().rewards(rollout, usable).clip(-limit, limit)

    def prepare(self, rollout: Rollout, usable: Bool) -> Batch:
        """Statistics, returns and advantages of a rollout."""
        h, network = self.behavior.hyperparameters, self.network
        final = self.finals(rollout)  # as the acting policy saw them, like its values
        rollout = self.resident(rollout)
        self.observe(rollout, usable)
        values = rollout.values if rollout.values is not None else self.replay(rollout, len(usable))[0][..., 0]
        ended, rewards = rollout.terminated | rollout.truncated, self.rewards(rollout, usable)[..., 0]
        following = self.following(rollout, values[..., None], final)[..., 0]
        if not h.bootstrap_truncated:
            following[ended] = 0.0
        gamma = self.behavior.extrinsic.gamma
        advantages, targets = self.kernels.gae(rewards, values, following, ended, usable, gamma, h.lambd)
        if network.returns is not None:
            values = _normalized(values, network.returns)
            strata = self.strata(rollout).split(np.nonzero(usable)[1])
            own = [targets[usable][rows].astype(np.float64) for rows in strata]
            told = self.ranks.gather([(x.mean(keepdims=True), x.var(keepdims=True), len(x)) for x in own if len(x)])
            for moments in (each for of_rank in told for each in of_rank):
                network.returns.update(*moments)
            targets = _normalized(targets, network.returns).clip(-CLIP, CLIP)
        log_probs = rollout.log_probs.sum(-1)
        return Batch(
            rollout, kept_memory(rollout), usable, ended, log_probs, rewards, following, values, advantages, targets
        )

    def _forward(self, rows: I64, batch: Batch) -> tuple[Tensor, Tensor]:
        """Parameters [T, R, L] and values [T, R] of some rows by the present weights."""
        T, B = batch.usable.shape
        states = self.place.tensor(batch.rollout.states[rows])
        index = np.arange(T)[:, None] * B + rows
        parameters, values, _ = self.forward(batch.rollout, index, states, batch.keep)
        assert values is not None
        return parameters.view(T, len(rows), -1), values.view(T, len(rows))

    def _step(self, strata: Sequence[I64], batch: Batch, step: int) -> dict[str, float]:
        """One gradient step on some rows of each stratum; tag -> part of its loss."""
        h, beta = self.behavior.hyperparameters, self.scheduled("beta", step)
        groups = [self.parallel.split(rows) if len(strata) == 1 else [rows] for rows in strata if len(rows)]
        pieces = [piece for group in groups for piece in group]
        outputs = self.parallel.map(lambda piece: self._forward(piece, batch), pieces)
        parts, behind = list[tuple[Tensor, Tensor, Minibatch]](), iter(outputs)
        # The loss is computed for a whole stratum at once: its means do not depend on the number of threads.
        for group in groups:
            own = [next(behind) for _ in group]
            parameters = torch.cat([p.detach() for p, _ in own], 1).requires_grad_()
            values = torch.cat([v.detach() for _, v in own], 1).requires_grad_()
            parts.append((parameters, values, self._minibatch(np.concatenate(group), batch, parameters, values)))
        whole = self._whole([(parameters, compared) for parameters, _, compared in parts])
        found, shares = list[dict[str, float]](), list[tuple[tuple[Tensor, Tensor], Tensor, Tensor]]()
        for group, (parameters, values, compared) in zip(groups, parts, strict=True):
            total, told = loss(parameters, values, compared, self.spec.actions, h, beta, whole)
            share = len(compared.actions) / whole.count
            found.append({tag: number * share for tag, number in told.items()})
            slopes = torch.autograd.grad(total * share, [parameters, values])
            cut = (torch.split(slope, [len(piece) for piece in group], 1) for slope in slopes)
            shares += zip(outputs[len(shares) : len(shares) + len(group)], *cut, strict=True)
        gradients = self.parallel.map(lambda share: self.network.weights.backward(share[0], share[1:]), shares)
        valid = whole.count / (self.total([len(own) for own in strata]) * len(batch.usable))
        norm = self.descend(gradients, valid * self.learning_rate(step), h.max_grad_norm)
        everywhere = [told for own in self.ranks.gather(found) for told in own]
        return {tag: sum(told[tag] for told in everywhere) for tag in everywhere[0]} | {"Policy/Gradient Norm": norm}

    def _whole(self, parts: Sequence[tuple[Tensor, Minibatch]]) -> Whole:
        """What the loss has to know of the whole minibatch, from the strata of all ranks."""
        advantages = [compared.advantages for _, compared in parts]
        count = int(self.total([len(own) for own in advantages]))
        mean = self.total([float(own.sum()) for own in advantages]) / count
        square = self.total([float((own - mean).square().sum()) for own in advantages]) / count
        symmetric = 0.0
        if self.behavior.hyperparameters.exploration_loss == "symmetric_kl":
            with torch.no_grad():
                now = [Distribution(parameters[own.usable], self.spec.actions) for parameters, own in parts]
                symmetric = self.total([float(own.symmetric_kl().sum()) for own in now]) / count
        return Whole(count, mean, float(torch.tensor(square).sqrt().clamp(min=1e-7)), symmetric)

    def _minibatch(self, rows: I64, batch: Batch, parameters: Tensor, values: Tensor) -> Minibatch:
        """What the loss compares with. GAE was done once for the rollout; V-trace looks at the present outputs."""
        tensor = self.place.tensor
        usable, actions = batch.usable[:, rows], tensor(batch.rollout.actions[:, rows])
        advantages, targets = batch.advantages[:, rows], batch.targets[:, rows]
        if self.behavior.hyperparameters.advantages == "vtrace":
            with torch.no_grad():
                now = Distribution(parameters.flatten(0, 1), self.spec.actions).log_prob(actions.flatten(0, 1))
            ratios = np.exp(now.view(usable.shape).cpu().numpy() - batch.log_probs[:, rows])
            advantages, targets = self._vtrace(rows, batch, ratios, values.detach().cpu().numpy())
        acting = (batch.rollout.parameters, batch.log_probs, batch.old_values)
        parameters_then, log_probs, old_values = (tensor(array[:, rows][usable]) for array in acting)
        wanted, aimed = tensor(advantages[usable]), tensor(targets[usable])
        mask = tensor(usable)
        return Minibatch(actions[mask], parameters_then, log_probs, old_values, wanted, aimed, mask)

    def _vtrace(self, rows: I64, batch: Batch, ratios: F32, values: F32) -> tuple[F32, F32]:
        """Advantages and targets [T, R] by the present policy's ratios and values."""
        following, inside = batch.next_values[:, rows].copy(), ~batch.ended[:-1, rows]
        following[:-1][inside] = values[1:][inside]
        h, gamma = self.behavior.hyperparameters, self.behavior.extrinsic.gamma
        ended, usable = batch.ended[:, rows], batch.usable[:, rows]
        return self.kernels.vtrace(
            ratios, batch.rewards[:, rows], values, following, ended, usable, gamma, h.vtrace_rho, h.vtrace_c
        )

    def tune(self, behavior: Behavior) -> None:
        """See `Learner.tune`."""
        assert isinstance(behavior, AppoBehavior)
        self.behavior, self.adapted_rate = behavior, behavior.hyperparameters.learning_rate

    def begin_from(self, state: Mapping[str, Any]) -> None:
        """See `Learner.begin_from`; an adaptive rate begins with its own settings'."""
        super().begin_from({**state, "learning_rate": self.behavior.hyperparameters.learning_rate})

    def take_over(self, donor: Learner) -> None:
        """See `Learner.take_over`; what this one has played so far is too old from now on."""
        super().take_over(donor)
        self.network.version += self.behavior.hyperparameters.max_policy_lag

    def state_dict(self) -> dict[str, Any]:
        """See `Learner.state_dict`."""
        return super().state_dict() | {"learning_rate": self.adapted_rate}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Learner.load_state_dict`."""
        super().load_state_dict(state)
        self.adapted_rate = float(state["learning_rate"])


def clipped_value_loss(values: Tensor, old_values: Tensor, targets: Tensor, epsilon: float) -> Tensor:
    """mean max((V - R)^2, (V_clip - R)^2), V_clip within epsilon of the old value; without the usual 1/2."""
    near = old_values + (values - old_values).clamp(-epsilon, epsilon)
    return torch.maximum((values - targets).square(), (near - targets).square()).mean()


def loss(
    parameters: Tensor,
    values: Tensor,
    batch: Minibatch,
    actions: ActionSpec,
    h: AppoHyperparameters,
    beta: float,
    whole: Whole,
) -> tuple[Tensor, dict[str, float]]:
    """Total loss, and by TensorBoard's tags its parts and what tells how far the policy moved.

    parameters: [T, R, L]; values: [T, R]; both by the present weights. beta: weight of the exploration loss. whole: of
    the minibatch that these decisions are a part of. These are few numbers per decision: autograd through them costs
    nothing beside the network's own passes.
    """
    now, old = Distribution(parameters[batch.usable], actions), Distribution(batch.parameters, actions)
    log_ratio = now.log_prob(batch.actions) - batch.log_probs
    ratio = log_ratio.exp().clamp(1.0 / RATIO_LIMIT, RATIO_LIMIT)
    advantages = (batch.advantages - whole.mean) / whole.deviation
    low, high = 1.0 / (1.0 + h.epsilon), 1.0 + h.epsilon
    policy_loss = clipped_policy_loss(ratio, advantages, low, high)
    present = values[batch.usable]
    value_loss = h.value_coefficient * clipped_value_loss(present, batch.old_values, batch.targets, h.value_epsilon)
    kl = now.kl(old).mean()
    if h.exploration_loss == "entropy":
        exploration = -beta * now.entropy().mean()
    else:
        within = whole.symmetric_kl <= SYMMETRIC_KL_LIMIT
        exploration = beta * (now.symmetric_kl().mean() if within else torch.tensor(SYMMETRIC_KL_LIMIT))
    kl_loss = h.kl_coefficient * kl
    found = {
        "Losses/Policy Loss": policy_loss,
        "Losses/Value Loss": value_loss,
        "Losses/Exploration Loss": exploration,
        "Losses/KL Loss": kl_loss,
        "Policy/Extrinsic Value Estimate": present.mean(),
        "Policy/KL": kl,
        "Policy/Clipped": ((ratio < low) | (ratio > high)).float().mean(),
    }
    total = policy_loss + value_loss + exploration + kl_loss
    return total, numbers_of(found)


def _normalized(values: F32, moments: RunningMoments) -> F32:
    normalized: F32 = ((values - moments.mean[0]) / moments.deviation[0]).astype(np.float32)
    return normalized
