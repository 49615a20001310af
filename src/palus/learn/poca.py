"""MA-POCA: multi-agent posthumous credit assignment.

Source: Cohen et al. 2021 (arXiv 2111.05992): a centralised value over the agents present, a counterfactual baseline
that leaves out only the agent's own action, TD(lambda) targets for both, PPO's surrogate for the policy.

A group shares one return: r_t is the sum of the members' own rewards plus the group reward, and the return runs on
after a member has left. So its last action is credited with what the group achieves later, without absorbing states.
(ML-Agents stops the lambda-return where a member leaves and bootstraps there; docs/differences.md.)

With memory the policy's is each agent's own. The critic's value remembers for the group, as long as somebody of it goes
on, every baseline for its agent; both begin each rollout with an empty memory. An agent's stays as it is in steps
of its group in which it does not decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from palus.config.trainer import PocaBehavior
from palus.learn.device_steps import Descent, Held
from palus.learn.learner import Part, flat
from palus.learn.losses import surrogate, surrogate_tensors, value_loss, value_tensors
from palus.learn.on_policy import DECISIONS, Counts, OnPolicy
from palus.learn.returns import kept_memory, next_episode_values, usable_decisions
from palus.learn.sequences import Sequences
from palus.nn.attention import AttentionCritic
from palus.nn.network import Critic
from palus.nn.preprocessing import Rows
from palus.rollout.rollout import Rollout
from palus.types import F32, I64, Bool


@dataclass(frozen=True)
class GroupMemory:
    """What a critic remembers in a rollout, of the value and of every baseline.

    states: [T + 1, groups, 1 + G, floats] before each step and after the last; keep: [T + 1, groups, 1 + G], 0 where
    they are empty nevertheless, because an episode ended or nobody was there, else 1.
    """

    states: F32
    keep: F32

    def before(self, steps: slice, heads: int) -> F32:
        """[steps groups, heads, floats] at some steps. heads: 1 for the value alone."""
        return flat(self.states[steps, :, :heads] * self.keep[steps, :, :heads, None])

    def arrays(self, length: int) -> dict[str, F32]:
        """What learning begins sequences with, [sequences groups, 1 + G, floats], and `keep` of all steps,
        [T groups, 1 + G]."""
        return {"critic_memory": flat(self.states[:-1:length]), "critic_keep": flat(self.keep[:-1])}


@dataclass(frozen=True)
class GroupBatch:
    """A rollout seen as M = T x groups group steps of G agents.

    actions: [M, G, A]; present: [M, G]; values, returns: [M, S], of S reward signals; baselines: [M, G, S];
    advantages: [M, G], the mean over signals. paid: TensorBoard tag -> number. memory: the critic's, where it has one.
    """

    actions: F32
    present: Bool
    values: F32
    baselines: F32
    advantages: F32
    returns: F32
    paid: Mapping[str, float]
    memory: GroupMemory | None


class POCA(OnPolicy):
    """Learner of one behavior whose agents belong to groups."""

    behavior: PocaBehavior
    splits_rewards: ClassVar[bool] = True
    tags: ClassVar = (
        "Losses/Policy Loss",
        "Losses/Value Loss",
        "Losses/Baseline Loss",
        "Policy/KL",
        "Policy/Clipped",
    )

    def critic(self) -> Critic:
        """See `Learner.critic`."""
        return partial(AttentionCritic, streams=len(self.signals))

    def group_estimates(
        self,
        observations: Mapping[str, Rows],
        actions: F32 | None,
        present: Bool,
        states: F32 | None = None,
        pieces: Sequence[slice | I64] | None = None,
    ) -> tuple[F32, F32]:
        """Values [M, S] and baselines [M, G, S] (empty without actions) of group steps.

        observations: name -> [M G, *shape], the members of a group adjacent; actions, present: as in GroupBatch;
        states: [M, 1 + G, floats] before each, [M, 1, floats] without actions; None without memory. pieces: the group
        steps of each pass, by default as they come.
        """
        M, G = present.shape
        S, known, at_once = len(self.signals), M if actions is not None else 0, self.network.rows_at_once // G
        values, baselines = np.zeros((M, S), np.float32), np.zeros((known, G, S), np.float32)

        @torch.no_grad()
        def evaluate(part: slice | I64) -> None:
            steps = np.arange(M)[part]
            there = self.place.tensor(present[part])
            acted = self.place.tensor(actions[part]) if actions is not None else None
            inputs = self.network.inputs(observations, (steps[:, None] * G + np.arange(G)).ravel())
            memory = tuple[Tensor, ...]()
            if states is not None:  # of a step that begins with them
                before = self.place.tensor(states[part])
                memory = before, before.new_ones(1, *before.shape[:2])
            v, b = self.network.critic(inputs, acted, there, *memory)
            values[part] = v.float().cpu().numpy()
            if b is not None:
                baselines[part] = b.float().cpu().numpy()

        cut = [slice(first, first + at_once) for first in range(0, M, at_once)]
        self.parallel.map(evaluate, cut if pieces is None else pieces)
        return values, baselines

    def remembered(self, rollout: Rollout) -> GroupMemory | None:
        """The critic's memory in a rollout, with the present weights and from an empty one on; None without memory."""
        critic, (T, B), G = self.network.critic, rollout.active.shape, rollout.group_size
        assert isinstance(critic, AttentionCritic)
        if not critic.core.layers:
            return None
        M, N, at_once = T * B // G, B // G, self.network.rows_at_once // G
        goes_on = rollout.goes_on.reshape(T, N, G)
        keep = np.ones((T + 1, N, 1 + G), np.float32)
        keep[1:, :, 0], keep[1:, :, 1:] = goes_on.any(2), goes_on
        seen = {name: flat(x[:-1]) for name, x in rollout.seen.items()}
        actions, present = rollout.actions.reshape(M, G, -1), rollout.active.reshape(M, G)

        @torch.no_grad()
        def pool(first: int) -> Tensor:
            part = slice(first, min(first + at_once, M))
            inputs = self.network.inputs(seen, np.arange(part.start * G, part.stop * G))
            there = self.place.tensor(present[part])
            return critic.pooled(inputs, self.place.tensor(actions[part]), there)

        read = torch.cat(self.parallel.map(pool, range(0, M, at_once)))
        paused = None
        if rollout.paused is not None:  # never of the value
            paused = self.place.tensor(np.pad(rollout.paused.reshape(T, N, G), ((0, 0), (0, 0), (1, 0)))).flatten(1)
        states = critic.core.states(read.flatten(0, 1), self.place.tensor(keep[:-1]).flatten(1), paused)
        return GroupMemory(states.view(T + 1, N, 1 + G, -1).cpu().numpy(), keep)

    def batch(self, rollout: Rollout) -> GroupBatch:
        """Values, baselines, returns and advantages of a rollout."""
        T, B = rollout.active.shape
        G = rollout.group_size

        active, actions = rollout.active.reshape(T, B // G, G), rollout.actions.reshape(-1, G, rollout.actions.shape[2])
        seen = {name: flat(x[:-1]) for name, x in rollout.seen.items()}
        memory = self.remembered(rollout)
        before = memory.before(slice(T), 1 + G) if memory is not None else None
        pieces = self.strata(rollout).pieces(np.tile(np.arange(B // G), T), G)
        values, baselines = self.group_estimates(seen, actions, flat(active), before, pieces)
        next_values, ended = self._next_values(rollout, values.reshape(T, B // G, -1), memory)
        rewards = self.rewards(rollout, usable_decisions(rollout))
        # A step that is followed by nothing known is not learned from, and the return of the one before stops there.
        known = np.ones_like(ended)
        known[:-1] = active[1:].any(2) | ended[:-1]
        ended[:-1] |= ~known[1:]
        lambd = self.behavior.hyperparameters.lambd
        streams = [
            self.kernels.td_lambda(rewards[..., s], next_values[..., s], ended, self.gamma(name), lambd).ravel()
            for s, name in enumerate(self.signals)
        ]
        returns = np.stack(streams, -1)
        present = flat(active & known[:, :, None])
        advantages = (returns[:, None] - baselines).mean(-1)
        paid = self.paid_tags(flat(rewards), np.asarray(present.any(1)))
        return GroupBatch(actions, present, values, baselines, advantages, returns, paid, memory)

    def rewards(self, rollout: Rollout, usable: Bool) -> F32:
        """What the groups are paid, [T, groups, S]: by each signal what all members are, by the game also what the
        group is, once; each times its strength.

        Every member is told what its group was paid since its own latest decision, so the mean is over those, too, who
        wait since a decision in the rollout. Who ended was told until then alone: for it counts what those were told
        who go on, or ended last, and while it waits it is of the mean no more.
        """
        (T, B), G = rollout.active.shape, rollout.group_size
        shape, streams = (T, B // G, G), list[F32]()
        active = told = rollout.active.reshape(shape)
        stays = active if rollout.left is None else active & ~rollout.left.reshape(shape)
        of_group = rollout.group_rewards.reshape(shape) * active
        staying = stays.sum(2, keepdims=True, dtype=np.float32)
        of_stays = (of_group * stays).sum(2, keepdims=True) / np.maximum(staying, np.float32(1))
        stood_for = active & ~stays & (staying > 0)
        if rollout.paused is not None:
            latest = np.maximum.accumulate(np.where(active, np.arange(T)[:, None, None], 0))
            counts = np.take_along_axis(active & ~stood_for, latest, 0)
            told = active | rollout.paused.reshape(shape) & counts
        of_group = np.where(stood_for, of_stays, of_group).sum(2) / np.maximum(told.sum(2), 1)
        for name, signal in self.signals.items():
            if signal is None:
                own = (rollout.rewards.reshape(shape) * active).sum(2)
                paid = (own + of_group) * self.behavior.extrinsic.strength
            else:
                paid = self.pay(signal, rollout, usable).reshape(shape).sum(2) * self.strength(name)
            streams.append(paid.astype(np.float32))
        return np.stack(streams, -1)

    def _next_values(self, rollout: Rollout, values: F32, memory: GroupMemory | None) -> tuple[F32, Bool]:
        """V of the following group step, [T, groups, S], and whether the group's episode ended, [T, groups].

        A member that is cut off while others go on leaves like one that is terminated: the group's return runs on.
        """
        T, B = rollout.active.shape
        G = rollout.group_size
        shape = T, B // G, G
        runs_on = np.array([signal is not None and signal.goes_on for signal in self.signals.values()])
        cut_off = rollout.truncated.reshape(shape)
        seen_last = cut_off
        if rollout.shown is not None and runs_on.any():
            seen_last = np.where(cut_off.any(2, keepdims=True), cut_off, rollout.shown.reshape(shape))
        ended: Bool = np.logical_not(rollout.goes_on.reshape(shape).any(2))
        following = np.empty_like(values)
        following[:-1] = values[1:]
        last = {name: x[-1] for name, x in rollout.seen.items()}
        before = memory.before(slice(T, None), 1) if memory is not None else None
        there, pieces = rollout.last_active.reshape(B // G, G), self.strata(rollout).pieces(np.arange(B // G), G)
        following[-1] = self.group_estimates(last, None, there, before, pieces)[0]
        decides: Bool = np.any(rollout.decides_next.reshape(shape), 2)
        on = np.where(runs_on, next_episode_values(following, decides), np.float32(0))
        following[ended] = on[ended]
        bootstrapped = ended & seen_last.any(2)
        if bootstrapped.any():
            members = seen_last[bootstrapped]
            used = (np.repeat(bootstrapped, G, 1) & seen_last.reshape(T, B))[rollout.concluded]
            final = {}
            for name, x in rollout.final_observations.items():
                final[name] = np.zeros((members.size, *x.shape[1:]), x.dtype)
                final[name][members.ravel()] = x[used]
            # What a group remembered that was cut off; `keep` is of its next episode.
            after = memory.states[1:, :, :1][bootstrapped] if memory is not None else None
            pieces = self.strata(rollout).pieces(np.nonzero(bootstrapped)[1], G)
            found = self.group_estimates(final, None, members, after, pieces)[0]
            lasting = runs_on | cut_off[bootstrapped].any(1, keepdims=True)
            following[bootstrapped] = np.where(lasting, found, np.float32(0))
        return following, ended

    def update(self, rollout: Rollout, step: int) -> dict[str, float]:
        """Several epochs of shuffled minibatches of whole group steps: batch_size / G of them, in sequences."""
        if not self.anybody(rollout.active):
            return {}
        strata = self.strata(rollout)
        rollout = self.resident(rollout)
        self.observe(rollout, rollout.active)
        h, now, length = self.behavior.hyperparameters, self.schedules(step), self.sequence_length(rollout)
        batch, G = self.batch(rollout), rollout.group_size
        present, returns = batch.present, batch.returns
        advantages = batch.advantages.reshape(rollout.active.shape)
        self.normalize(advantages, present.reshape(advantages.shape), strata)
        sequences = Sequences(present.any(1).reshape(len(advantages), -1), length)
        states, keep = self.replay(rollout, length)[1], kept_memory(rollout)
        K, B, S = states.shape
        memory = torch.from_numpy(states.reshape(K * B // G, G, S))
        recalled = batch.memory.arrays(length) if batch.memory is not None else {}
        seen = {name: flat(x) for name, x in rollout.observations.items()}

        def count(numbers: I64) -> tuple[int, int]:
            """Group steps that count in some sequences, and agents present in them."""
            index, counts = sequences.decisions(numbers)
            return int(counts.sum()), int(present[index[counts]].sum())

        def part(numbers: I64, whole: Counts) -> Part:
            """What some sequences add to the gradient of L_pi + 0.5 (L_V + 0.5 L_b) - beta entropy over a minibatch.

            L_V is a mean over group steps, the others are means over the agents present.
            """
            steps, counts = sequences.decisions(numbers)
            agents = steps[:, :, None] * G + np.arange(G)
            acting = counts[:, :, None] & present[steps]
            own, rows = steps[counts], agents[acting]
            index = agents.reshape(length, -1) if S else rows[None]
            parameters = self.forward(rollout, index, memory[torch.from_numpy(numbers)].flatten(0, 1), keep)[0]
            if S:
                parameters = parameters[torch.from_numpy(acting.ravel())]
            places, carried = own, tuple[Tensor, ...]()
            if recalled:  # memory runs over the decisions of a sequence that do not count, too
                places, before = steps.ravel(), torch.from_numpy(recalled["critic_memory"][numbers])
                carried = before, torch.from_numpy(recalled["critic_keep"][steps])
                if rollout.paused is not None:
                    carried = *carried, torch.from_numpy(rollout.paused.ravel()[agents])
            inputs = self.network.inputs(seen, (places[:, None] * G + np.arange(G)).ravel())
            acted, there = torch.from_numpy(batch.actions[places]), torch.from_numpy(present[places])
            values, baselines = self.network.critic(inputs, acted, there, *carried)
            if recalled:
                chosen = torch.from_numpy(counts.ravel())
                values, baselines, there = values[chosen], baselines[chosen], there[chosen]
            values, baselines = values.float(), baselines.float()[there]
            (policy_loss, _, kl, clipped), slope = surrogate(
                parameters, flat(rollout.actions)[rows], flat(rollout.log_probs)[rows], advantages.ravel()[rows],
                self.spec.actions, now.epsilon, now.beta,
            )  # fmt: skip
            critic_loss, value_slope = value_loss(values, returns[own], 0.5)
            baseline_loss, baseline_slope = value_loss(baselines, returns[rows // G], 0.25)
            of_steps, of_agents = len(own) / whole[0], len(rows) / whole[1]
            gradient = self.network.weights.backward(
                [parameters, values, baselines],
                [slope * of_agents, value_slope * of_steps, baseline_slope * of_agents],
            )
            losses = of_agents * policy_loss, of_steps * critic_loss, of_agents * baseline_loss
            means = *losses, of_agents * kl, of_agents * clipped
            return Part(gradient, dict(zip(self.tags, means, strict=True)))

        usable = usable_decisions(rollout).ravel()

        def study(minibatch: I64) -> dict[str, float]:
            steps, counts = sequences.decisions(minibatch)
            rows = (steps[counts][:, None] * G + np.arange(G)).ravel()
            return self.study(rollout, rows[usable[rows]])

        size = h.batch_size // G // length
        if self.place.compiled:
            found = self.epochs(strata, sequences, size, part, count, now.learning_rate, study)
        else:
            decisions = flat(rollout.actions), flat(rollout.log_probs), keep.ravel(), advantages.ravel()
            arrays = {"memory": states.reshape(K * B // G, G, S), "returns": returns, "present": present, **recalled}
            if S and (rollout.paused is not None or "paused" in self.device_steps.held):
                paused = np.zeros_like(rollout.active) if rollout.paused is None else rollout.paused
                arrays["paused"] = paused.reshape(-1, G)
            found = self.device_epochs(rollout, sequences, size, decisions, arrays, now, study)
        found |= self.imitate(step)
        self.finish()
        estimates = dict(batch.paid)
        for s, name in enumerate(self.signals) if present.any() else ():
            estimates[f"Policy/{name.title()} Value Estimate"] = float(batch.values[present.any(1), s].mean())
            estimates[f"Policy/{name.title()} Baseline Estimate"] = float(batch.baselines[present, s].mean())
        return found | self.pooled(estimates, int(present.sum())) | now.tags()

    def objective(self, held: Held) -> Descent:
        """L_pi + 0.5 (L_V + 0.5 L_b) - beta entropy: see `OnPolicy.objective`. Every agent of a group step is computed
        with, and counts where it is present."""
        steps, present = held["index"], held["present"]
        own, there, G = steps.flatten(), present[steps.flatten()], present.shape[1]
        agents = steps[:, :, None] * G + torch.arange(G, device=steps.device)
        places, length = agents.flatten(), len(steps)
        A, (inputs, masks) = self.spec.actions.columns, self.inputs_of(held, places)
        actions, log_probs, keep, advantages = torch.split(held[DECISIONS][places], [A, A, 1, 1], 1)
        memory = held["memory"][held["numbers"]].flatten(0, 1)
        paused = held["paused"][steps] if "paused" in held else None
        resting = None if paused is None else paused.flatten(1)
        parameters, _, _ = self.network(inputs, memory, keep.view(length, -1), masks, paused=resting)
        acted, carried = actions.view(len(own), G, A), tuple[Tensor, ...]()
        if "critic_memory" in held:
            carried = held["critic_memory"][held["numbers"]], held["critic_keep"][steps]
        values, baselines = self.network.critic(inputs, acted, there, *carried, paused=paused)
        of_steps = held["shares"].flatten()
        acting = ((held["shares"] > 0)[:, :, None] & present[steps]).flatten()
        of_agents = acting / acting.sum()
        found, slope = surrogate_tensors(
            parameters, actions, log_probs, advantages.squeeze(1),
            self.spec.actions, held["epsilon"], held["beta"], of_agents,
        )  # fmt: skip
        values, baselines, targets = values.float(), baselines.float().flatten(0, 1), held["returns"][own]
        critic_loss, value_slope = value_tensors(values, targets, of_steps, 0.5)
        baseline_loss, baseline_slope = value_tensors(baselines, targets.repeat_interleave(G, 0), of_agents, 0.25)
        outputs, slopes = (parameters, values, baselines), (slope, value_slope, baseline_slope)
        return Descent(outputs, slopes, (found[:1].abs(), critic_loss, baseline_loss, found[1:]))
