"""What the reward signals that learn have in common: what they see of a decision, what their networks read and learn.

Their networks are small, have optimisers of their own and learn by torch's automatic differentiation, in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from palus.config.network import NetworkSettings, SignalNetworkSettings
from palus.errors import DivergenceError
from palus.learn.adam import Adam
from palus.nn.attention import action_features
from palus.nn.distributions import told
from palus.nn.layers import Linear
from palus.nn.parameters import FlatParameters
from palus.nn.place import CPU
from palus.nn.preprocessing import Preprocessor
from palus.rollout.rollout import Rollout
from palus.types import F32, I64, ActionSpec, AnyArray, BehaviorSpec, Bool, Discrete

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Experience:
    """R decisions as reward signals see them.

    observations, following: name -> [R, *shape], before and after, as the game gave them; actions: [R, A] as the game
    was told; ended: [R], the episode ended with it; known: [R], `following` is what came of it: not after an end by
    the rules whose last observation the game does not tell.
    """

    observations: Mapping[str, AnyArray]
    following: Mapping[str, AnyArray]
    actions: F32
    ended: Bool
    known: Bool

    def __len__(self) -> int:
        return len(self.actions)

    def chosen(self, rows: Bool) -> Experience:
        """Some of them."""
        if rows.all():
            return self
        seen, after = ({k: x[rows] for k, x in part.items()} for part in (self.observations, self.following))
        return Experience(seen, after, self.actions[rows], self.ended[rows], self.known[rows])


def decisions_of(rollout: Rollout, index: I64, actions: ActionSpec, squash: bool) -> Experience:
    """Experience of a rollout by their numbers t B + b. squash: as in `palus.nn.distributions.told`."""
    t, b = np.divmod(index, rollout.active.shape[1])
    last = rollout.until[t, b]
    return Experience(
        {name: seen[t, b] for name, seen in rollout.observations.items()},
        rollout.following(last, b),
        told(rollout.actions[t, b], actions, squash),
        rollout.ended[last, b],
        ~rollout.terminated[last, b] | rollout.concluded[last, b],
    )


class LearnedReward(Protocol):
    """Pays for decisions, and learns from them what to pay for.

    goes_on: its return runs on over an end by the rules: with the last observation, where it is known, else into the
    agent's next episode.
    """

    goes_on: ClassVar[bool]

    def observe(self, observations: Mapping[str, AnyArray], rows: I64) -> None:
        """Take some rows into the running statistics of observations. observations: name -> [N, *shape]."""

    def rewards(self, decisions: Experience) -> F32:
        """What decisions are paid, [R], before the signal's strength."""

    def learn(self, decisions: Experience) -> dict[str, float]:
        """One gradient step on a minibatch; TensorBoard tag -> number. Raises DivergenceError."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. KeyError, ValueError or ModelError when it is of another shape."""


def view_of(spec: BehaviorSpec, settings: NetworkSettings) -> Preprocessor:
    """What a signal's networks read of observations: vectors joined, each normalised where the settings say so."""
    vectors = [o.name for o in spec.observations if o.is_vector]
    return Preprocessor(spec.observations, settings, vectors, torch.float32, CPU)


class Trained:
    """The weights of a signal's network and their optimiser."""

    def __init__(self, module: nn.Module, rate: float = 0.0) -> None:
        """rate: of the steps; 0 for weights that stay."""
        self.weights, self.rate = FlatParameters(module, torch.float32), rate
        self.optimizer = Adam(self.weights)

    def descend(self, loss: Tensor) -> None:
        """One step down the gradient of a loss. Raises DivergenceError where it is not finite."""
        self.weights.set_gradient([self.weights.backward([loss], [torch.ones(())])])
        if not torch.isfinite(self.weights.gradient).all():
            raise DivergenceError(
                "a reward signal's gradient is not finite; lower its learning_rate, or check that the game's "
                "observations are finite, then resume from the last checkpoint"
            )
        self.optimizer.begin(self.rate)
        for shard in self.weights.shards(1):
            self.optimizer.move(shard)

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser."""
        return {"weights": self.weights.master.numpy().copy(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. KeyError or ValueError when it is of another shape."""
        weights: F32 = state["weights"]
        if weights.shape != tuple(self.weights.master.shape) or not np.isfinite(weights).all():
            raise ValueError(f"reward signal: {weights.shape} weights; expected {tuple(self.weights.master.shape)}")
        self.weights.load(torch.from_numpy(weights))
        self.optimizer.load_state_dict(state["optimizer"])


def made(make: Callable[[], M], generator: torch.Generator) -> M:
    """A module with first weights: linear layers by their own rule, all others by torch's, from a generator's draws."""
    with torch.random.fork_rng(devices=[]):  # torch's own initialisers take no generator
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        module = make()
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, Linear):
                layer.init(layer.weight, generator)
                layer.bias.zero_()
    return module


def network_of(settings: SignalNetworkSettings) -> NetworkSettings:
    """A signal's network as the settings of an encoder; it has no memory."""
    return NetworkSettings(
        normalize=settings.normalize,
        hidden_units=settings.hidden_units,
        num_layers=settings.num_layers,
        vis_encode_type=settings.vis_encode_type,
        goal_conditioning_type=settings.goal_conditioning_type,
    )


def width_of(actions: ActionSpec) -> int:
    """Numbers that `features` makes of an action."""
    return sum(part.choices if isinstance(part, Discrete) else part.size for part in actions.parts)


def features(actions: F32, spec: ActionSpec) -> Tensor:
    """Actions as networks read them, [R, A] -> [R, width_of]: one-hot where discrete, else as the game was told."""
    return action_features(torch.from_numpy(actions), spec, torch.float32)
