"""Asynchronous PPO on sampled games: the learner of one policy.

Source: Petrenko et al. 2020 (Sample Factory, arXiv 2006.11751) and release 2.1.1: one probability ratio per decision,
clipped to [1 / (1 + epsilon), 1 + epsilon]; clipped value loss without 1/2; advantages normalised per minibatch; means
over valid decisions. Deviations, with reasons in docs/differences.md: time-outs bootstrap from the episode's last
observation, V-trace evaluates the state after the last decision, linear schedules reach 0 at max_steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from palus.config.trainer import AppoBehavior
from palus.errors import ConfigError, DivergenceError
from palus.learn.adam import Adam
from palus.learn.appo_loss import Minibatch, loss
from palus.learn.learner import DataParallel
from palus.learn.losses import linear_schedule
from palus.learn.returns import following_values, gae, vtrace
from palus.nn.actor_critic import ActorCritic
from palus.nn.distributions import Distribution
from palus.nn.running import CLIP, RunningMoments
from palus.rollout.trajectories import Trajectories
from palus.trust import NOBODY, Trust
from palus.types import F32, I64, AnyArray, Bool, GameSpec


@dataclass(frozen=True)
class AppoStats:
    """One update. losses: means over its gradient steps, by name. lag: gradient steps behind, least, mean and most.

    samples: decisions learned from; valid: their share of the rows used. learning_rate: after the update.
    """

    samples: int
    valid: float
    gradient_steps: int
    learning_rate: float
    lag: tuple[float, float, float]
    losses: Mapping[str, float]


@dataclass(frozen=True)
class Batch:
    """A page, prepared for learning. Arrays [T, B] unless noted.

    observations: name -> [(T + 1) B, *shape]; keep: 0 where the state is zero before the decision; usable: learn from
    it; old_values, targets: in the critic's units; next_values: in units of rewards.
    """

    page: Trajectories
    observations: Mapping[str, AnyArray]
    keep: Tensor
    usable: Bool
    ended: Bool
    next_values: F32
    old_values: F32
    advantages: F32
    targets: F32


class APPO:
    """Learner of one policy. threads: parts of a minibatch that are computed side by side.

    Raises ConfigError when the settings do not fit the game.
    """

    def __init__(
        self,
        behavior: AppoBehavior,
        spec: GameSpec,
        dtype: torch.dtype,
        seed: int,
        threads: int = 1,
        *,
        trust: Trust = NOBODY,
    ) -> None:
        self.behavior, self.spec = behavior, spec
        self.hyper = h = behavior.hyperparameters
        if h.exploration_loss == "symmetric_kl" and not spec.actions.is_discrete:
            raise ConfigError(
                f"exploration_loss symmetric_kl: {spec.env_id} has continuous actions, which no uniform distribution "
                "covers; use entropy"
            )
        self.generator = torch.Generator().manual_seed(seed)
        self.policy = ActorCritic(
            spec, behavior.network_settings, self.generator, dtype, shared_critic=h.shared_critic, trust=trust
        )
        self.policy.returns = RunningMoments(1) if h.normalize_returns else None
        self.optimizer = Adam(self.policy.weights, h.adam_beta1, h.adam_beta2, h.adam_epsilon)
        self.parallel = DataParallel(self.policy.weights, self.optimizer, threads)
        self.adapted_rate = h.learning_rate

    @property
    def version(self) -> int:
        """Gradient steps so far: the unit of policy lag."""
        return self.policy.version

    def learning_rate(self, frames: int) -> float:
        """The step size after `frames` engine frames."""
        if self.hyper.adaptive_learning_rate != "off":
            return self.adapted_rate
        if self.hyper.learning_rate_schedule == "constant":
            return self.hyper.learning_rate
        return linear_schedule(self.hyper.learning_rate, 0.0, frames, self.behavior.max_steps)

    def beta(self, frames: int) -> float:
        """The weight of the exploration loss after `frames` engine frames."""
        if self.hyper.beta_schedule == "constant":
            return self.hyper.beta
        return linear_schedule(self.hyper.beta, 0.0, frames, self.behavior.max_steps)

    def update(self, page: Trajectories, frames: int) -> AppoStats:
        """Several epochs over a page. frames: engine frames before it, for the schedule. Raises DivergenceError."""
        h = self.hyper
        usable = usable_decisions(page, self.version, h.max_policy_lag)
        rows = np.flatnonzero(usable.any(0))
        if not len(rows):
            return AppoStats(0, 0.0, 0, self.learning_rate(frames), (0.0, 0.0, 0.0), {})
        lags = self.version - page.versions[usable]
        batch = self._prepare(page, usable)
        found: list[dict[str, float]] = []
        for _ in range(h.num_epoch):
            order = rows[torch.randperm(len(rows), generator=self.generator).numpy()] if h.shuffle else rows
            first = len(found)
            for part in np.array_split(order, max(1, round(len(rows) * len(usable) / h.batch_size))):
                found.append(self._step(part, batch, frames))
                if h.adaptive_learning_rate == "minibatch":
                    self._adapt(found[-1]["kl"])
            if h.adaptive_learning_rate == "epoch":
                self._adapt(float(np.mean([step["kl"] for step in found[first:]])))
        self.parallel.refuse_divergence(self.version)
        return AppoStats(
            samples=int(usable.sum()),
            valid=float(usable[:, rows].mean()),
            gradient_steps=len(found),
            learning_rate=self.learning_rate(frames),
            lag=(float(lags.min()), float(lags.mean()), float(lags.max())),
            losses={name: float(np.mean([step[name] for step in found])) for name in found[0]},
        )

    def _adapt(self, kl: float) -> None:
        """Rate / 1.5 above twice the target KL, x 1.5 below half of it, within the limits."""
        h = self.hyper
        factor = 1 / 1.5 if kl > 2 * h.target_kl else 1.5 if kl < h.target_kl / 2 else 1.0
        self.adapted_rate = min(max(self.adapted_rate * factor, h.min_learning_rate), h.max_learning_rate)

    def _prepare(self, page: Trajectories, usable: Bool) -> Batch:
        """Statistics, returns and advantages of a page."""
        T, B = page.rewards.shape
        h, policy = self.hyper, self.policy
        observations = {name: x.reshape((T + 1) * B, *x.shape[2:]) for name, x in page.observations.items()}
        with policy.lock:
            for name, scaler in policy.scalers.items():
                scaler.update(observations[name], np.flatnonzero(usable))
        last = {name: torch.from_numpy(x[T]) for name, x in page.observations.items()}
        last_values = policy.act(last, torch.from_numpy(page.last_states))[1].numpy()
        ended = page.terminated | page.truncated
        terminated = page.terminated if h.bootstrap_truncated else ended
        following = following_values(page.values, last_values, page.final_values, terminated, page.truncated)
        gamma = self.behavior.extrinsic.gamma
        advantages, targets = gae(page.rewards, page.values, following, ended, usable, gamma, h.lambd)
        old_values = page.values
        if policy.returns is not None:
            old_values = _normalized(page.values, policy.returns)
            with policy.lock:
                own = targets[usable].astype(np.float64)
                policy.returns.update(own.mean(keepdims=True), own.var(keepdims=True), len(own))
            targets = _normalized(targets, policy.returns).clip(-CLIP, CLIP)
        keep = np.ones((T, B), np.float32)
        keep[1:] = page.valid[:-1] & ~ended[:-1]
        return Batch(
            page, observations, torch.from_numpy(keep), usable, ended, following, old_values, advantages, targets
        )

    def _forward(self, rows: I64, batch: Batch) -> tuple[Tensor, Tensor]:
        """Parameters [T, R, L] and values [T, R] of some rows by the present weights."""
        T, B = batch.usable.shape
        index = (np.arange(T)[:, None] * B + rows).ravel()
        inputs = self.policy.inputs(batch.observations, index)
        states = torch.from_numpy(batch.page.states[rows])
        parameters, values, _ = self.policy(inputs, states, batch.keep[:, torch.from_numpy(rows)])
        return parameters.view(T, len(rows), -1), values.view(T, len(rows))

    def _step(self, rows: I64, batch: Batch, frames: int) -> dict[str, float]:
        """One gradient step on some rows; returns the parts of its loss by name."""
        pieces = [piece for piece in np.array_split(rows, self.parallel.threads) if len(piece)]
        outputs = self.parallel.map(lambda piece: self._forward(piece, batch), pieces)
        parameters = torch.cat([p.detach() for p, _ in outputs], 1).requires_grad_()
        values = torch.cat([v.detach() for _, v in outputs], 1).requires_grad_()
        # The loss is computed for the whole minibatch at once: its means do not depend on the number of threads.
        compared = self._minibatch(rows, batch, parameters, values)
        total, found = loss(parameters, values, compared, self.spec.actions, self.hyper, self.beta(frames))
        slopes = torch.autograd.grad(total, [parameters, values])
        sizes = [len(piece) for piece in pieces]
        shares = list(zip(outputs, *(torch.split(slope, sizes, 1) for slope in slopes), strict=True))
        gradients = self.parallel.map(lambda share: self.policy.weights.backward(share[0], share[1:]), shares)
        valid = float(batch.usable[:, rows].mean())
        return found | {"gradient_norm": self._move(gradients, valid * self.learning_rate(frames))}

    def _minibatch(self, rows: I64, batch: Batch, parameters: Tensor, values: Tensor) -> Minibatch:
        """What the loss compares with. GAE was done once for the page; V-trace looks at the present outputs."""
        usable, actions = batch.usable[:, rows], torch.from_numpy(batch.page.actions[:, rows])
        advantages, targets = batch.advantages[:, rows], batch.targets[:, rows]
        if self.hyper.advantages == "vtrace":
            with torch.no_grad():
                now = Distribution(parameters.flatten(0, 1), self.spec.actions).log_prob(actions.flatten(0, 1))
            ratios = np.exp(now.view(usable.shape).numpy() - batch.page.log_probs[:, rows])
            advantages, targets = self._vtrace(rows, batch, ratios, values.detach().numpy())
        acting = (batch.page.parameters, batch.page.log_probs, batch.old_values)
        parameters_then, log_probs, old_values = (torch.from_numpy(array[:, rows][usable]) for array in acting)
        wanted, aimed = torch.from_numpy(advantages[usable]), torch.from_numpy(targets[usable])
        mask = torch.from_numpy(usable)
        return Minibatch(actions[mask], parameters_then, log_probs, old_values, wanted, aimed, mask)

    def _vtrace(self, rows: I64, batch: Batch, ratios: F32, values: F32) -> tuple[F32, F32]:
        """Advantages and targets [T, R] by the present policy's ratios and values."""
        following, inside = batch.next_values[:, rows].copy(), ~batch.ended[:-1, rows]
        following[:-1][inside] = values[1:][inside]
        h, gamma = self.hyper, self.behavior.extrinsic.gamma
        ended, usable = batch.ended[:, rows], batch.usable[:, rows]
        rewards = batch.page.rewards[:, rows]
        return vtrace(ratios, rewards, values, following, ended, usable, gamma, h.vtrace_rho, h.vtrace_c)

    def _move(self, gradients: Sequence[tuple[Tensor, ...]], learning_rate: float) -> float:
        """Add up the threads' gradients, limit their norm, step. Returns the norm before the limit."""
        weights, shards = self.policy.weights, self.parallel.shards
        self.parallel.map(lambda shard: weights.set_gradient(gradients, shard), shards)
        norm = float(np.linalg.norm(weights.gradient.numpy()))
        if not np.isfinite(norm):
            raise DivergenceError(
                f"gradient step {self.version}: the gradient is not finite; lower learning_rate, or check that "
                "the game's observations and rewards are finite, then resume from the last checkpoint"
            )
        if 0 < self.hyper.max_grad_norm < norm:
            weights.gradient.mul_(self.hyper.max_grad_norm / norm)
        with self.policy.lock:
            self.optimizer.begin(learning_rate)
            self.parallel.map(self.optimizer.move, shards)
            self.policy.version += 1
        return norm

    def tune(self, behavior: AppoBehavior) -> None:
        """Learn on with other numbers; the network stays."""
        self.behavior, self.hyper = behavior, behavior.hyperparameters
        self.adapted_rate = self.hyper.learning_rate

    def take_over(self, donor: APPO) -> None:
        """Go on from another policy's weights and optimiser; what this one has played so far is too old from now on."""
        version = self.version + self.hyper.max_policy_lag + 1
        state = donor.state_dict()
        self.load_state_dict({**state, "generator": self.generator.get_state(), "version": version})

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        return {
            "policy": self.policy.arrays(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "learning_rate": self.adapted_rate,
            "version": self.version,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. KeyError, ValueError or ModelError when it is of another shape."""
        self.policy.load_arrays(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.adapted_rate, self.policy.version = float(state["learning_rate"]), int(state["version"])


def usable_decisions(page: Trajectories, version: int, max_policy_lag: int) -> Bool:
    """[T, B]: valid, not too old, and followed by something known: an end, a decision, or the page's last state."""
    known = np.ones_like(page.valid)
    known[:-1] = page.valid[1:] | page.terminated[:-1] | page.truncated[:-1]
    usable: Bool = page.valid & known & (version - page.versions < max_policy_lag)
    return usable


def _normalized(values: F32, moments: RunningMoments) -> F32:
    normalized: F32 = ((values - moments.mean[0]) / moments.deviation[0]).astype(np.float32)
    return normalized
