"""What all learners share: network and optimiser, what the present weights say, gradient steps on several threads.

A learner turns a `Rollout` into an update; `palus.train` holds on to nothing else of an algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from palus.config.trainer import Behavior
from palus.errors import DivergenceError
from palus.learn.adam import Adam
from palus.learn.cloning import Cloning
from palus.learn.device_steps import DeviceSteps
from palus.learn.kernels import kernels_of
from palus.learn.losses import linear_schedule
from palus.learn.ranks import ALONE, Ranks
from palus.learn.returns import following_values, kept_memory, next_episode_values
from palus.learn.same_network import refuse_another
from palus.learn.signals import Experience, LearnedReward, decisions_of, make_signals
from palus.learn.strata import Strata
from palus.nn.int8 import CALIBRATED_ROWS
from palus.nn.network import RETURN_PREFIX, Critic, Network
from palus.nn.parameters import FlatParameters
from palus.nn.place import CACHED_ROWS, CPU, Placement
from palus.nn.preprocessing import Rows
from palus.rollout.rollout import Rollout
from palus.trust import NOBODY, Trust
from palus.types import F32, I64, AnyArray, BehaviorSpec, Bool

T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A", AnyArray, Tensor)
SEEN = "seen "
"""Before an observation's name among what `DeviceSteps` hold."""


@dataclass(frozen=True)
class Part:
    """What one thread found for its part of a minibatch: the gradient, tensor by tensor, and what it adds to means.

    means: TensorBoard tag -> number.
    """

    gradient: tuple[Tensor, ...]
    means: Mapping[str, float]


class Learner:
    """One algorithm at work on one policy. threads: parts of a minibatch that are computed side by side. place: where
    its network lies; reward signals' are small, and stay on the CPU. ranks: the processes that learn it together, each
    from its own matches.

    signals: the rewards it learns from, S of them, each with a value stream of its own (`make_signals`); cloning: what
    it imitates beside them.

    counts_frames: whether its steps are engine frames, not decisions. splits_rewards: whether what groups are paid
    is told apart from what agents are.
    """

    behavior: Behavior
    counts_frames: ClassVar[bool] = False
    splits_rewards: ClassVar[bool] = False

    def __init__(
        self,
        behavior: Behavior,
        spec: BehaviorSpec,
        dtype: torch.dtype,
        seed: int,
        threads: int = 1,
        *,
        trust: Trust = NOBODY,
        place: Placement = CPU,
        ranks: Ranks = ALONE,
    ) -> None:
        self.behavior, self.spec, self.place, self.kernels = behavior, spec, place, kernels_of(place)
        self.ranks = ranks
        self.generator = torch.Generator().manual_seed(seed)
        settings = behavior.network_settings
        self.signals = make_signals(behavior, spec, seed, trust)
        streams, critic = len(self.signals), self.critic()
        self.network = Network(
            spec, settings, self.generator, dtype, critic=critic, streams=streams, trust=trust, place=place
        )
        if settings.symmetric:
            self.network.weights.tie(self.network.images())
        self.optimizer = Adam(self.network.weights, **self.adam(), place=place)
        self.parallel = DataParallel(self.network.weights, self.optimizer, threads if place.compiled else 1)
        self.device_steps = DeviceSteps(self.network, self.optimizer)
        cloned = behavior.behavioral_cloning
        self.cloning = Cloning(cloned, self.network, seed) if cloned is not None else None
        self.updates = 0
        self.complete()

    def complete(self) -> None:
        """What an algorithm has beside all that, made when the rest is there. Raises ConfigError."""

    def critic(self) -> Critic:
        """Which critic the network has."""
        return "shared" if getattr(self.behavior.hyperparameters, "shared_critic", False) else "separate"

    def adam(self) -> dict[str, float]:
        """Options of the optimiser that are not its defaults."""
        return {}

    def update(self, rollout: Rollout, step: int) -> dict[str, float]:
        """One update; TensorBoard tag -> number, nothing where nobody was active. step: trainer steps before it.

        Raises DivergenceError.
        """
        raise NotImplementedError

    def scheduled(self, key: str, step: int, minimum: float = 0.0) -> float:
        """A hyperparameter at a trainer step: constant, or falling to `minimum` at max_steps."""
        h = self.behavior.hyperparameters
        value: float = getattr(h, key)
        constant = getattr(h, f"{key}_schedule") == "constant"
        return value if constant else linear_schedule(value, minimum, step, self.behavior.max_steps)

    def steps_in(self, agent_steps: int, frameskip: int) -> int:
        """Trainer steps of so many decisions. frameskip: engine frames of a decision."""
        return agent_steps * (frameskip if self.counts_frames else 1)

    # -- what is the same for all ranks -----------------------------------------------------------------------------

    def strata(self, rollout: Rollout) -> Strata:
        """The parts of a rollout that its threads learn from; one, on a device."""
        return Strata.of(rollout, self.parallel.threads if self.place.compiled else 1, self.ranks)

    def total(self, numbers: Sequence[float]) -> float:
        """The sum of one number for each stratum of this rank, and of those of the others, in their order."""
        return sum(number for own in self.ranks.gather([*numbers]) for number in own)

    def anybody(self, usable: Bool) -> bool:
        """Whether there is a decision to learn from, in any rank."""
        return any(self.ranks.gather(bool(usable.any())))

    def pooled(self, found: Mapping[str, float], weight: int) -> dict[str, float]:
        """Means of this rank as means of all. weight: decisions that they are taken over."""
        if self.ranks.size == 1:
            return dict(found)
        told = [own for own in self.ranks.gather((dict(found), weight)) if own[1]]
        count = sum(own for _, own in told)
        return {tag: sum(own[tag] * n for own, n in told) / count for tag in told[0][0]} if told else {}

    # -- what the present weights say -------------------------------------------------------------------------------

    def observe(self, rollout: Rollout, usable: Bool) -> None:
        """Take a rollout into the running statistics of observations; pictures where they are resident."""
        rows, columns = np.flatnonzero(usable), np.nonzero(usable)[1]
        for signal in self.learned_signals.values():
            signal.observe({name: flat(x) for name, x in rollout.observations.items()}, rows)
        strata = [rows[own] for own in self.strata(rollout).split(columns)]
        for name, scaler in self.network.scalers.items():
            if scaler.moments is not None:
                seen = flat(rollout.observations[name])
                if seen.dtype == np.uint8:
                    seen = flat(rollout.seen[name])
                told = self.ranks.gather([scaler.moments_of(seen, own) for own in strata])
                scaler.take([batch for own in told for batch in own])

    def resident(self, rollout: Rollout) -> Rollout:
        """The rollout with its observations on the learner's device, where it has one: they are moved there once."""
        if self.place.compiled:
            return rollout
        held = self.device_steps.hold({SEEN + name: x for name, x in rollout.observations.items()})
        return replace(rollout, resident={name: held[SEEN + name] for name in rollout.observations})

    def calibrate(self, rollout: Rollout) -> None:
        """Let pictures that are encoded in int8 while acting be so by the present weights and this rollout's range."""
        int8, active = self.network.int8, np.flatnonzero(rollout.active)
        if int8 is not None and len(active):
            rows = active[np.linspace(0, len(active) - 1, CALIBRATED_ROWS).astype(np.int64)]
            inputs = self.network.inputs({name: flat(x) for name, x in rollout.observations.items()}, rows)
            int8.calibrate(inputs)

    @property
    def takes_rays(self) -> bool:
        """Whether rollouts may hold rays in compact form: its network takes them, and nobody else reads them."""
        statistics = any(scaler.moments is not None for scaler in self.network.scalers.values())
        takes = self.network.takes_rays or not self.place.compiled
        return takes and not (statistics or self.learned_signals)

    def estimate(
        self, observations: Mapping[str, Rows], states: F32, pieces: Sequence[slice | I64] | None = None
    ) -> F32:
        """The critic's values [R, S]. observations: name -> [R, *shape]; states: [R, floats of memory]; pieces: as
        `Network.values` takes them."""
        return self.network.values(observations, states, self.parallel.map, pieces)

    def replay(self, rollout: Rollout, length: int) -> tuple[F32, F32]:
        """The critic's values [T, B, S] of all decisions, and the memory [K, B, floats] before every `length`-th.

        Where there is memory, in one pass over the rollout. Values are zeros where the network has none.
        """
        T, B = rollout.active.shape
        strata = self.strata(rollout)
        values = np.zeros((T, B, self.network.streams), np.float32)
        states = np.zeros((-(-T // length), B, self.network.state_size), np.float32)
        if not self.network.state_size:
            if self.network.has_values:
                seen = {name: flat(x[:-1]) for name, x in rollout.seen.items()}
                pieces = strata.pieces(np.tile(np.arange(B), T))
                values = self.estimate(seen, np.zeros((T * B, 0), np.float32), pieces).reshape(values.shape)
            return values, states
        keep = kept_memory(rollout)

        @torch.no_grad()
        def play(rows: I64) -> None:
            state = self.place.tensor(rollout.states[rows])
            for k, first in enumerate(range(0, T, length)):
                states[k, rows] = state.cpu().numpy()
                steps = np.arange(first, min(first + length, T))[:, None]
                _, found, state = self.forward(rollout, steps * B + rows, state, keep)
                if found is not None:
                    found = self.network.denormalize(found).cpu()
                    values[steps, rows] = found.numpy().reshape(len(steps), len(rows), -1)

        columns = strata.split(np.arange(B))
        cut = (np.array_split(own, -(-len(own) * length // self.network.rows_at_once)) for own in columns if len(own))
        self.parallel.map(play, [rows for own in cut for rows in own])
        return values, states

    def forward(self, rollout: Rollout, index: I64, states: Tensor, keep: F32) -> tuple[Tensor, Tensor | None, Tensor]:
        """`Network.forward` on some decisions. index: [L, R] numbers t B + b; states: [R, S]; keep: [T, B]."""
        places = index.ravel()
        inputs = self.network.inputs({name: flat(x) for name, x in rollout.seen.items()}, places)
        masks = None if rollout.masks is None else self.place.tensor(flat(rollout.masks)[places])
        found: tuple[Tensor, Tensor | None, Tensor]
        paused = None if rollout.paused is None else self.place.tensor(rollout.paused.ravel()[index])
        found = self.network(inputs, states, self.place.tensor(keep.ravel()[index]), masks, paused=paused)
        return found

    def gamma(self, name: str) -> float:
        """The discount of a reward signal."""
        return float((getattr(self.behavior.reward_signals, name) or self.behavior.extrinsic).gamma)

    def strength(self, name: str) -> float:
        """The factor on a reward signal."""
        return float((getattr(self.behavior.reward_signals, name) or self.behavior.extrinsic).strength)

    def rewards(self, rollout: Rollout, usable: Bool) -> F32:
        """What the agents are paid, [T, B, S]: by the game, their own rewards and their groups'; by signals of the
        usable decisions; each times its strength."""
        streams: list[F32] = []
        for name, signal in self.signals.items():
            own = self.extrinsic(rollout) if signal is None else self.pay(signal, rollout, usable) * self.strength(name)
            streams.append(own.astype(np.float32))
        return np.stack(streams, -1)

    def extrinsic(self, rollout: Rollout) -> F32:
        """What the game pays the agents, [T, B]: their own rewards and their groups', times its strength."""
        paid: F32 = ((rollout.rewards + rollout.group_rewards) * self.behavior.extrinsic.strength).astype(np.float32)
        return paid

    def pay(self, signal: LearnedReward, rollout: Rollout, usable: Bool) -> F32:
        """What a signal pays, [T, B], before its strength; 0 for decisions that are not usable."""
        paid, index = np.zeros(usable.size, np.float32), np.flatnonzero(usable)
        for part in np.array_split(index, -(-len(index) // CACHED_ROWS) or 1):
            paid[part] = signal.rewards(decisions_of(rollout, part, self.spec.actions, self.network.squash))
        return paid.reshape(usable.shape)

    def paid_tags(self, rewards: F32, usable: Bool) -> dict[str, float]:
        """The mean of what a decision was paid by each signal. rewards: [T, B, S]."""
        names = enumerate(self.signals.items())
        return {f"Policy/{n.title()} Reward": float(rewards[usable, s].mean()) for s, (n, own) in names if own}

    def study(self, rollout: Rollout, index: I64) -> dict[str, float]:
        """Let the signals learn from a minibatch: decisions by their numbers t B + b."""
        if not self.learned_signals or not len(index):
            return {}
        return self.teach(decisions_of(rollout, index, self.spec.actions, self.network.squash))

    def teach(self, decisions: Experience) -> dict[str, float]:
        """One gradient step of every signal that learns; tag -> number."""
        found: dict[str, float] = {}
        for signal in self.learned_signals.values():
            found |= signal.learn(decisions)
        return found

    def imitate(self, step: int) -> dict[str, float]:
        """The gradient steps of behavioral cloning that go with an update, where there is any; tag -> number."""
        if self.cloning is None:
            return {}
        rate = self.cloning.rate(self.behavior.hyperparameters.learning_rate, step)
        losses = list[float]()
        for sequences, numbers in self.cloning.minibatches(self.behavior) if rate else ():
            loss, gradient = self.cloning.part(sequences, numbers)
            self.descend([gradient], rate, optimizer=self.cloning.optimizer, shared=False)
            losses.append(loss)
        return {"Losses/Pretraining Loss": float(np.mean(losses)) if losses else 0.0}

    @property
    def learned_signals(self) -> dict[str, LearnedReward]:
        """By name, all signals but the game's own reward."""
        return {name: signal for name, signal in self.signals.items() if signal is not None}

    def finals(self, rollout: Rollout) -> F32:
        """The values [K, S] of episodes' last observations."""
        pieces = self.strata(rollout).pieces(np.nonzero(rollout.concluded)[1])
        return self.estimate(rollout.final_observations, rollout.final_states, pieces)

    def following(self, rollout: Rollout, values: F32, final: F32) -> F32:
        """The value [T, B, S] of what follows each decision. values: of the decisions, [T, B, S]; final: as in
        `finals`."""
        pieces = self.strata(rollout).pieces(np.arange(rollout.active.shape[1]))
        last = self.estimate({name: x[-1] for name, x in rollout.seen.items()}, rollout.last_states, pieces)
        after = following_values(values, last, final, rollout.concluded)
        found = np.where(rollout.terminated[..., None], np.float32(0), after)
        for s, signal in enumerate(self.signals.values()):
            if signal is not None and signal.goes_on:
                on = next_episode_values(after[..., s], rollout.followed)
                found[rollout.terminated, s] = on[rollout.terminated]
        return found

    # -- gradient steps ---------------------------------------------------------------------------------------------

    def descend(
        self,
        gradients: Sequence[tuple[Tensor, ...]],
        rate: float,
        max_norm: float = 0.0,
        optimizer: Adam | None = None,
        shared: bool = True,
    ) -> float:
        """Add up the gradients of all threads and ranks, limit their norm (0: no limit), step. Returns the norm before
        the limit.

        optimizer: another one than the learner's own. shared: without, every rank has computed the whole gradient.
        """
        norm = self.parallel.gather(gradients, self.ranks if shared else ALONE)
        if not np.isfinite(norm):
            raise self.divergence()
        if 0 < max_norm < norm:
            self.network.weights.gradient.mul_(max_norm / norm)
        self.parallel.step(rate, optimizer)
        self.network.version += 1
        return norm

    def finish(self) -> None:
        """End an update. Raises DivergenceError where a number is not finite: checkpoints on disk stay good."""
        self.updates += 1
        numbers = self.network.weights.master, self.optimizer.square
        if not all(np.isfinite(float(tensor.sum())) for tensor in numbers):  # one pass; isfinite().all() costs ten
            raise self.divergence()

    def divergence(self) -> DivergenceError:
        return DivergenceError(
            f"gradient step {self.network.version}: weights or gradients are not finite; lower learning_rate, or check "
            "that the game's observations and rewards are finite, then resume from the last checkpoint"
        )

    # -- populations and checkpoints --------------------------------------------------------------------------------

    def tune(self, behavior: Behavior) -> None:
        """Learn on with other numbers; the network stays."""
        self.behavior = behavior

    def take_over(self, donor: Learner) -> None:
        """Go on from another learner's weights and optimiser, as a version of its own."""
        self.begin_from(donor.state_dict())

    def begin_from(self, state: Mapping[str, Any]) -> None:
        """The same, from another learner's `state_dict`; what that lacks of cloning and signals stays as it is.

        Raises what `load_state_dict` raises."""
        own = {"generator": self.generator.get_state(), "version": self.network.version + 1, "updates": self.updates}
        present = self._beside()
        signals = {"signals": present.get("signals", {}) | state.get("signals", {})}
        self.load_state_dict({**present, **state, **signals, **own})

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        return {
            "network": self.network.arrays(),
            "network_settings": self.network.settings.model_dump(mode="json"),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "version": self.network.version,
            "updates": self.updates,
            **({"int8": self.network.int8.ranges} if self.network.int8 is not None else {}),
            **self._beside(),
        }

    def _beside(self) -> dict[str, Any]:
        """Of `state_dict`, what there is beside network and optimiser."""
        learned = {name: signal.state_dict() for name, signal in self.learned_signals.items()}
        return {
            **({"signals": learned} if learned else {}),
            **({"cloning": self.cloning.state_dict()} if self.cloning is not None else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. KeyError, ValueError or ModelError when it is of another shape."""
        if "network_settings" in state:  # not in those of older versions, nor of ML-Agents
            refuse_another(state["network_settings"], self.network.settings, self.spec)
        known = state.get("signals", {})
        lacking = [f"reward_signals.{name}" for name in self.learned_signals if name not in known]
        if self.cloning is not None and "cloning" not in state:
            lacking.append("behavioral_cloning")
        if lacking:
            raise ValueError(f"it knows nothing of {' and '.join(lacking)}, which the run file has")
        kinds, normalized = ("plain", "normalised"), RETURN_PREFIX + "running_mean" in state["network"]
        if normalized != (self.network.returns is not None):
            raise ValueError(
                f"the critic learned {kinds[normalized]} returns where the weights are from, and learns "
                f"{kinds[not normalized]} ones here: hyperparameters.normalize_returns of appo"
            )
        self.network.load_arrays(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        if self.network.int8 is not None:
            self.network.int8.begin_with(state.get("int8", {}))
        for name, signal in self.learned_signals.items():
            signal.load_state_dict(state["signals"][name])
        if self.cloning is not None:
            self.cloning.load_state_dict(state["cloning"])
        self.network.version, self.updates = int(state["version"]), int(state["updates"])


class DataParallel:
    """Gradient steps on several threads: each takes a part of the minibatch, then a shard of the weights.

    Parts run their operators on one thread each: for networks of this size that scales where threads inside the
    operators do not (measured on 2 cores: 0.9 x for PPO). torch's own thread count has to be 1. Gradients are summed in
    a fixed order, so as many threads, in one process or in several, give the same bits.
    """

    def __init__(self, weights: FlatParameters, optimizer: Adam, threads: int) -> None:
        self.weights, self.optimizer, self.threads = weights, optimizer, threads
        self.shards = weights.shards(threads)
        # OpenMP counts threads per calling thread: without this, every operator here would ask for all cores.
        self._pool = ThreadPoolExecutor(threads - 1, "learner", torch.set_num_threads, (1,)) if threads > 1 else None

    def map(self, work: Callable[[T], U], items: Sequence[T]) -> list[U]:
        """[work(item) for item in items], the items spread over the threads."""
        if self._pool is None:
            return [work(item) for item in items]
        own = slice(0, None, self.threads)
        waiting = [None if i % self.threads == 0 else self._pool.submit(work, item) for i, item in enumerate(items)]
        mine = iter([work(item) for item in items[own]])
        return [next(mine) if future is None else future.result() for future in waiting]

    def split(self, items: I64) -> list[I64]:
        """A minibatch as one part for each thread, as far as there are items."""
        return [piece for piece in np.array_split(items, self.threads) if len(piece)]

    def gather(self, gradients: Sequence[tuple[Tensor, ...]], ranks: Ranks = ALONE) -> float:
        """Add up what `FlatParameters.backward` gave for the parts of a minibatch, here and in other ranks; returns the
        sum's norm."""
        self.map(lambda shard: self.weights.set_gradient(gradients, shard), self.shards)
        ranks.sum(self.weights.gradient)
        self.weights.fold_gradient()
        return self.weights.norm

    def step(self, rate: float, optimizer: Adam | None = None) -> None:
        """Move the weights along the gathered gradient. optimizer: another one than its own."""
        optimizer = optimizer or self.optimizer
        optimizer.begin(rate)
        self.map(optimizer.move, self.shards)


def flat(x: A) -> A:
    """[T, B, ...] -> [T B, ...], a view."""
    return x.reshape(len(x) * x.shape[1], *x.shape[2:])


def numbers_of(found: Mapping[str, Tensor]) -> dict[str, float]:
    """Scalars as plain numbers, all of them waited for at once."""
    return dict(zip(found, torch.stack([number.detach() for number in found.values()]).tolist(), strict=True))


def means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Tag by tag over gradient steps."""
    tags = dict.fromkeys(tag for step in found for tag in step)
    return {tag: float(np.mean([step[tag] for step in found if tag in step])) for tag in tags}
