"""Soft actor-critic for discrete, continuous and hybrid actions.

Source: Haarnoja et al. 2018 (arXiv 1801.01290, a value network beside two Q networks; 1812.05905, learned entropy
coefficients), with ML-Agents' discrete form: a branch's expectation is taken over its choices, a joint action is worth
the mean over its branches, every branch has an entropy coefficient of its own and all numbers together have one.

Losses of a minibatch, s' what follows s, p a branch's probabilities, u the numbers drawn now, a = tanh(u):
y = r + gamma V_target(s') (r where it ended);   L_Qi = 1/2 mean (Qi(s, a_then) - y)^2;
v = min_i mean_b sum p Qi(s, a) - mean_b alpha_b sum p log p - alpha_c log pi(a|s);   L_V = 1/2 mean (V(s) - v)^2;
L_pi = mean [sum_b sum (alpha_b p log p - p Q1) + alpha_c log pi(a|s) - sum_b sum p Q1]; without branches Q1 itself;
L_alpha = -mean [mean_b log alpha_b (sum p log p + target_b) + log alpha_c (log pi(a|s) + target_c)], which takes the
logarithm where the paper has alpha (both vanish at the targets; the step is as long however small alpha has become),
target_b = 0.2 log(choices allowed), target_c = -numbers. Where there are several reward signals, V and Q have a number
for each, every y is its own signal's, L_Q and L_V are means over them, and Q1 in L_pi is the mean. All gradients are
taken at the same weights, then one Adam moves them all: element by element it is the same as one for each.

With memory, minibatches are sequences (`palus.learn.replay_buffer`), and actor and critics remember each for itself.
What Q remembers before a decision comes of the actions that were taken; only its own action is drawn now. V_target
remembers all that came before s'.

Deviations from ML-Agents 1.1.0, with reasons in docs/differences.md: the entropy of continuous actions is added to the
value in hybrid games too, what follows a cut-off decision is the episode's last observation, forbidden choices do not
count in entropy targets, the buffer forgets row by row, and entropy coefficients are saved.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from palus.config.trainer import SacBehavior
from palus.learn.learner import Learner, Part, means, numbers_of
from palus.learn.replay_buffer import ReplayBuffer
from palus.learn.returns import usable_decisions
from palus.learn.signals import Experience
from palus.nn.distributions import Categorical, Distribution, told
from palus.nn.graph import FORBIDDEN
from palus.nn.network import Critic, Inputs
from palus.nn.parameters import FlatParameters
from palus.nn.twin_critic import TwinCritic
from palus.rollout.rollout import Rollout
from palus.types import F32, I64, ActionSpec, Continuous, Discrete

TARGET_SHARE = 0.2
"""Of the largest entropy of a branch, that of its target."""

PART_ROWS = 256
"""Of a minibatch, the fewest for a thread: below, another thread costs more than it takes over (measured at 128: twice
the CPU time)."""


@dataclass(frozen=True)
class Acts:
    """What a policy does in R states, differentiable. log_p: of each branch, [R, choices]; numbers: [R, C] as the
    critics see them, None without continuous actions; log_density: [R], of all numbers together."""

    log_p: tuple[Tensor, ...]
    numbers: Tensor | None
    log_density: Tensor

    def expected(self, q: Tensor) -> Tensor:
        """sum p Q of each branch, [branches, R]; [1, R], Q itself, without any. q: [R, choices]."""
        if not self.log_p:
            return q.T
        own = torch.split(q, [log_p.shape[1] for log_p in self.log_p], 1)
        return torch.stack([(p.exp() * values).sum(1) for p, values in zip(self.log_p, own, strict=True)])

    def negentropies(self) -> Tensor:
        """sum p log p of each branch, then log pi of the numbers: [coefficients, R]."""
        rows = [(log_p.exp() * log_p).sum(1) for log_p in self.log_p]
        return torch.stack([*rows, self.log_density] if self.numbers is not None else rows)


def drawn(parameters: Tensor, noise: Tensor, spec: ActionSpec, squash: bool) -> Acts:
    """The policy's acts. parameters: [R, L]; noise: [R, C] standard normal, of the numbers.

    log pi(tanh u) = log N(u) - sum log(1 - tanh(u)^2); the last is 2 (log 2 - u - softplus(-2 u)), which never
    overflows. Source: Haarnoja et al. 2018 (arXiv 1801.01290), appendix C.
    """
    distribution, branches, numbers = Distribution(parameters, spec), [], []
    density, first = parameters.new_zeros(len(parameters)), 0
    for part in distribution.parts:
        if isinstance(part, Categorical):
            branches.append(part.log_p)
            continue
        u = part.mean + part.log_std.exp() * noise[:, first : first + part.mean.shape[1]]
        first += u.shape[1]
        density = density + part.log_probs(u).sum(1)
        if squash:
            density = density - 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u)).sum(1)
        numbers.append(torch.tanh(u) if squash else u)
    return Acts(tuple(branches), torch.cat(numbers, 1) if numbers else None, density)


def taken(q: Tensor, actions: Tensor, spec: ActionSpec) -> Tensor:
    """Q of joint actions that were taken, [R]: the mean over branches of the choices' values.

    q: [R, choices], or [R, 1] without branches; actions: [R, A] as stored.
    """
    if not spec.branches:
        return q[:, 0]
    columns = [c.start for part, c in zip(spec.parts, spec.column_slices, strict=True) if isinstance(part, Discrete)]
    firsts = torch.tensor(np.cumsum([0, *spec.branches[:-1]]), device=q.device)
    return q.gather(1, actions[:, columns].long() + firsts).mean(1)


def soft_values(acts: Acts, q1: Tensor, q2: Tensor, alpha: Tensor) -> Tensor:
    """v of the module's formulas, [R]. alpha: [coefficients], of branches first."""
    least = torch.minimum(acts.expected(q1).mean(0), acts.expected(q2).mean(0))
    costs, branches = alpha[:, None] * acts.negentropies(), len(acts.log_p)
    return least - (costs[:branches].mean(0) if branches else 0.0) - costs[branches:].sum(0)


def policy_losses(acts: Acts, q1: Tensor, alpha: Tensor) -> Tensor:
    """What is averaged to L_pi, [R]."""
    expected, hybrid = acts.expected(q1).sum(0), bool(acts.log_p) and acts.numbers is not None
    return (alpha[:, None] * acts.negentropies()).sum(0) - expected * (2.0 if hybrid else 1.0)


def entropy_slopes(acts: Acts) -> Tensor:
    """The gradient of L_alpha with respect to log alpha, row by row: [coefficients, R], to be averaged over rows."""
    negentropies = acts.negentropies()
    targets = [TARGET_SHARE * (log_p > 0.5 * FORBIDDEN).sum(1).float().log() for log_p in acts.log_p]
    weights = [1.0 / len(targets) for _ in targets]
    if acts.numbers is not None:
        targets.append(torch.full_like(acts.log_density, -float(acts.numbers.shape[1])))
        weights.append(1.0)
    return -negentropies.new_tensor(weights)[:, None] * (negentropies + torch.stack(targets))


class SAC(Learner):
    """Learner of one behavior from all that its buffer holds; every agent learns from its own reward plus its group's.

    buffer: the newest decisions; target: V's weights as they trail behind; learned_until: the trainer step up to which
    gradient steps have been made, one for `steps_per_update` of them, taught_until: the same of the reward signals;
    twins: the network's critics.
    """

    behavior: SacBehavior

    def complete(self) -> None:
        """See `Learner.complete`."""
        behavior, spec = self.behavior, self.spec
        length, size = behavior.sequence_length, self.network.state_size
        runs_on = any(signal.goes_on for signal in self.learned_signals.values())
        self.buffer = ReplayBuffer(spec, behavior.hyperparameters.buffer_size, length, size, runs_on)
        assert isinstance(self.network.critic, TwinCritic)
        self.twins = self.network.critic
        self.target_value = copy.deepcopy(self.twins.value).float()
        self.target = FlatParameters(self.target_value, self.network.weights.work.dtype)
        self._trail(1.0)
        self.learned_until = self.taught_until = float(self.behavior.hyperparameters.buffer_init_steps)
        self.numbers = sum(part.size for part in spec.actions.parts if isinstance(part, Continuous))

    def critic(self) -> Critic:
        """See `Learner.critic`."""
        return partial(TwinCritic, coefficient=self.behavior.hyperparameters.init_entcoef, streams=len(self.signals))

    @property
    def takes_rays(self) -> bool:
        """See `Learner.takes_rays`; the buffer holds observations as they are."""
        return False

    def _trail(self, tau: float) -> None:
        """target = tau V + (1 - tau) target."""
        masters = self.network.weights.masters
        newest = torch.cat([masters[f"critic.value.{name}"].flatten() for name in self.target.shapes])
        self.target.load(torch.lerp(self.target.master, newest, tau))

    def update(self, rollout: Rollout, step: int) -> dict[str, float]:
        """Take the rollout into the buffer, then as many gradient steps as trainer steps have made due."""
        h, usable = self.behavior.hyperparameters, usable_decisions(rollout)
        self.observe(rollout, usable)
        self.buffer.add(rollout, usable, self.extrinsic(rollout), self.replay(rollout, self.buffer.length)[1])
        now, found, taught = step + rollout.agent_steps, list[dict[str, float]](), list[dict[str, float]]()
        rate = self.scheduled("learning_rate", now, 1e-10)
        if self.buffer.size >= min(h.batch_size, self.buffer.capacity) and now >= h.buffer_init_steps:
            while now - self.learned_until > h.steps_per_update:
                found.append(self._step(rate) | self.imitate(now))
                self.learned_until += h.steps_per_update
            taught = self._teach_signals(now)
        if not found and not taught:
            return {}
        self.finish()
        return means(found) | means(taught) | {"Policy/Learning Rate": rate}

    def _teach_signals(self, now: int) -> list[dict[str, float]]:
        """The reward signals' gradient steps, one for `reward_signal_steps_per_update` trainer steps."""
        h, found = self.behavior.hyperparameters, list[dict[str, float]]()
        while self.learned_signals and now - self.taught_until > h.reward_signal_steps_per_update:
            rows = self.buffer.draw(h.batch_size, self.generator).ravel()
            rows = rows[self.buffer.counts[rows]]
            found.append(self.teach(self._decisions(rows)) if len(rows) else {})
            self.taught_until += h.reward_signal_steps_per_update
        return found

    def _decisions(self, rows: I64) -> Experience:
        """Rows of the buffer as reward signals see them; one that was cut off goes on."""
        buffer = self.buffer
        seen, after = ({k: x[rows] for k, x in part.items()} for part in (buffer.observations, buffer.following))
        actions = told(buffer.actions[rows], self.spec.actions, self.network.squash)
        ended = buffer.terminated[rows]
        known = ~ended if buffer.shown is None else ~ended | buffer.shown[rows]
        return Experience(seen, after, actions, ended, known)

    def _paid(self, rows: I64) -> F32:
        """What rows of the buffer are paid by the signals as they are now, [R, S]."""
        decisions = self._decisions(rows) if self.learned_signals else None
        streams = [
            self.buffer.rewards[rows] if signal is None or decisions is None else signal.rewards(decisions) * strength
            for signal, strength in zip(self.signals.values(), map(self.strength, self.signals), strict=True)
        ]
        return np.stack(streams, -1).astype(np.float32)

    def _step(self, rate: float) -> dict[str, float]:
        """One gradient step of everything on a minibatch; tag -> number."""
        h = self.behavior.hyperparameters
        rows = self.buffer.draw(h.batch_size, self.generator)
        noise = torch.randn((*rows.shape, self.numbers), generator=self.generator).to(self.place.device)
        paid = self._paid(rows.ravel()).reshape(*rows.shape, -1)
        # The entropies' weights, [branches, then one for all numbers], in float32 on every path.
        alpha = self.network.weights.masters["critic.log_coefficients"].exp()
        count = max(int(self.buffer.counts[rows].sum()), 1)
        pieces = np.array_split(
            np.arange(rows.shape[1]), max(1, min(self.parallel.threads, rows.size // PART_ROWS, rows.shape[1]))
        )
        parts = self.parallel.map(
            lambda piece: self._part(rows[:, piece], paid[:, piece], noise[:, piece], alpha, count), pieces
        )
        self.descend([part.gradient for part in parts], rate)
        self._trail(h.tau)
        found = {tag: sum(part.means[tag] for part in parts) for tag in parts[0].means}
        branches = len(self.spec.branches)
        if branches:
            found["Policy/Discrete Entropy Coeff"] = float(alpha[:branches].mean())
        if self.numbers:
            found["Policy/Continuous Entropy Coeff"] = float(alpha[-1])
        return found

    def _part(self, rows: I64, paid: F32, noise: Tensor, alpha: Tensor, count: int) -> Part:
        """What some rows [L, R] add to the gradients of all losses over a minibatch of `count` decisions that count.

        paid: [L, R, S].
        """
        network, critic, buffer, actions = self.network, self.twins, self.buffer, self.spec.actions
        tensor = self.place.tensor
        flat, keep = rows.ravel(), tensor(buffer.keep[rows])
        inputs = network.inputs(buffer.observations, flat)
        masks = None if buffer.masks is None else tensor(buffer.masks[flat])
        memory = tensor(buffer.memory[rows[0] // buffer.length])
        parameters, _, _ = network(inputs, memory, keep, masks)
        then = tensor(buffer.actions[flat])
        taken_now = self._numbers(then)
        empty = None if not network.state_size else memory.new_zeros(memory.shape)
        q1, q2 = (q.forward(inputs, taken_now, empty, keep) for q in (critic.q1, critic.q2))
        v, split = critic.value.forward(inputs, None, empty, keep), paid.shape[2]
        with torch.no_grad():
            y = self._targets(flat, paid.reshape(-1, split), inputs, keep)
        # From here on only of decisions that count, all of them where there is no memory.
        own: Tensor | slice = slice(None)
        noise, kept, before = noise.flatten(0, 1), keep.reshape(1, -1), list[Tensor | None]([None, None])
        if network.state_size:
            own = tensor(np.flatnonzero(buffer.counts[flat]))
            if self.numbers:
                remembered = (q.states(inputs, taken_now, keep)[:-1] for q in (critic.q1, critic.q2))
                before = [states.flatten(0, 1)[own] for states in remembered]
            parameters, then, q1, q2, v, y, noise = (x[own] for x in (parameters, then, q1, q2, v, y, noise))
            inputs, kept = {name: x[own] for name, x in inputs.items()}, kept[:, own]
        leaf = parameters.detach().requires_grad_()
        acts = drawn(leaf, noise, actions, network.squash)
        # Of the numbers drawn now; without any, Q sees nothing but the state, and its gradient is Q's own.
        now1, now2 = q1.detach(), q2
        if acts.numbers is not None:
            now1 = critic.q1.forward(inputs, acts.numbers, before[0], kept)
            with torch.no_grad():
                now2 = critic.q2.forward(inputs, acts.numbers, before[1], kept)
        with torch.no_grad():
            both = zip(now1.chunk(split, 1), now2.chunk(split, 1), strict=True)
            wanted = torch.stack([soft_values(acts, *q, alpha) for q in both], 1)
            slopes = entropy_slopes(acts).sum(1) / count
        policy_loss = policy_losses(acts, torch.stack(now1.chunk(split, 1)).mean(0), alpha).sum() / count
        (slope,) = torch.autograd.grad(policy_loss, leaf)
        errors = [torch.stack([taken(own, then, actions) for own in q.chunk(split, 1)], 1) - y for q in (q1, q2)]
        losses = [0.5 * error.square().sum() / (count * split) for error in (*errors, v - wanted)]
        gradient = network.weights.backward(
            [parameters, *losses, critic.log_coefficients],
            [slope, *(torch.ones_like(loss) for loss in losses), slopes.to(critic.log_coefficients.dtype)],
        )
        tags = ("Losses/Q1 Loss", "Losses/Q2 Loss", "Losses/Value Loss")
        found = {"Losses/Policy Loss": policy_loss}
        counted = tensor(paid.reshape(-1, split))[own]
        for s, (name, signal) in enumerate(self.signals.items()):
            found[f"Policy/{name.title()} Value"] = v[:, s].sum() / count
            if signal is not None:
                found[f"Policy/{name.title()} Reward"] = counted[:, s].sum() / count
        found |= dict(zip(tags, losses, strict=True))
        return Part(gradient, numbers_of(found))

    def _targets(self, rows: I64, paid: F32, inputs: Inputs, keep: Tensor) -> Tensor:
        """y of the module's formulas, [R, S]. paid: [R, S]; inputs: of the rows; keep: [L, R / L]."""
        buffer, target = self.buffer, self.target_value
        after = target.states(inputs, None, keep)[1:].flatten(0, 1) if self.network.state_size else None
        seen = self.network.inputs(buffer.following, rows)
        following = target.forward(seen, None, after, keep.new_ones(1, len(rows)))
        tensor = self.place.tensor
        goes_on, streams = tensor(~buffer.terminated[rows]), []
        for s, (name, signal) in enumerate(self.signals.items()):
            on = goes_on
            if signal is not None and signal.goes_on and buffer.renewed is not None:
                on = on | tensor(buffer.renewed[rows])
            streams.append(tensor(paid[:, s]) + self.gamma(name) * following[:, s] * on)
        return torch.stack(streams, 1)

    def _numbers(self, actions: Tensor) -> Tensor | None:
        """The continuous part of stored actions as the critics see it, [R, C]; None without."""
        if not self.numbers:
            return None
        parts = zip(self.spec.actions.parts, self.spec.actions.column_slices, strict=True)
        own = torch.cat([actions[:, columns] for part, columns in parts if isinstance(part, Continuous)], 1)
        return torch.tanh(own) if self.network.squash else own

    def begin_from(self, state: Mapping[str, Any]) -> None:
        """See `Learner.begin_from`; the pace is that of its own steps, and decisions of another run stay there."""
        pace = {"learned_until": self.learned_until, "taught_until": self.taught_until}
        own = {"buffer": self.buffer.state_dict(), **pace}
        super().begin_from({**state, **own})

    def take_over(self, donor: Learner) -> None:
        """See `Learner.take_over`; what the donor learned from comes along."""
        assert isinstance(donor, SAC)
        super().take_over(donor)
        self.buffer.load_state_dict(donor.buffer.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """See `Learner.state_dict`; with the buffer where `save_replay_buffer`."""
        own = {"target": self.target.master.cpu().numpy().copy(), "learned_until": self.learned_until}
        if self.learned_signals:
            own["taught_until"] = self.taught_until
        if self.behavior.hyperparameters.save_replay_buffer:
            own["buffer"] = self.buffer.state_dict()
        return super().state_dict() | own

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Learner.load_state_dict`."""
        super().load_state_dict(state)
        target: F32 = state["target"]
        if target.shape != tuple(self.target.master.shape) or not np.isfinite(target).all():
            raise ValueError(f"target network: {target.shape} numbers; expected {tuple(self.target.master.shape)}")
        self.target.load(torch.from_numpy(target))
        self.learned_until = float(state["learned_until"])
        if self.learned_signals:
            self.taught_until = float(state["taught_until"])
        if "buffer" in state:
            self.buffer.load_state_dict(state["buffer"])
