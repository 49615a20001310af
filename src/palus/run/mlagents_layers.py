"""Layers of ML-Agents' checkpoints under the names, and in the order and the units, of our networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from palus.config.network import NetworkSettings
from palus.nn.encoders import ENTITY_UNITS
from palus.nn.running import EPSILON
from palus.types import F32, ActionSpec, AnyArray, Continuous, Discrete, ObservationSpec

DRAWN = 3.0
"""Numbers of PPO and MA-POCA mean the game's range when divided by this."""
Arrays = dict[str, AnyArray]
Modules = Mapping[str, Mapping[str, AnyArray]]
"""`Policy`, `Optimizer:critic`, ... -> name -> numbers."""


class NetworkBody:
    """A network body of theirs, `prefix` before its names. acted: numbers of actions that it sees beside the rest."""

    def __init__(
        self,
        theirs: Mapping[str, AnyArray],
        prefix: str,
        observations: tuple[ObservationSpec, ...],
        settings: NetworkSettings,
        acted: int = 0,
    ) -> None:
        self.theirs, self.prefix, self.settings, self.observations = theirs, prefix, settings, observations
        self.lists = [o for o in observations if not (o.is_vector or o.is_image)]
        places, first = dict[str, range](), 0
        for o in observations:
            if o not in self.lists:
                width = o.size if o.is_vector else settings.image_units
                places[o.name], first = range(first, first + width), first + width
        entities = range(first, first + (ENTITY_UNITS if self.lists else 0))
        actions = range(entities.stop, entities.stop + acted)
        vectors = [k for o in observations if o.is_vector for k in places[o.name]]
        images = [k for o in observations if o.is_image for k in places[o.name]]
        self.seen = first
        self.others = [*vectors, *actions, *images]
        self.columns = [*self.others, *entities]
        """Of each column of ours, the one of theirs."""
        self.goal = [k for o in observations if o.goal for k in places.get(o.name, ())]

    def arrays(self, own: str) -> Arrays:
        """All of it, `own` before our names."""
        return self.encoders(own) | self._layers(f"{own}encoder.layers.") | self.memory(own)

    def encoders(self, own: str) -> Arrays:
        """Of images and of lists of entities."""
        found, encoder = Arrays(), f"{self.prefix}observation_encoder."
        for i, o in enumerate(self.observations):
            if o.is_image:
                found |= self._image(f"{encoder}processors.{i}.", f"{own}encoder.encoders.{o.name}.")
        if not self.lists:
            return found
        at = f"{own}encoder.attention."
        if self.others:
            weight = self.theirs[f"{encoder}x_self_encoder.seq_layers.0.weight"]
            beside = np.concatenate([weight, np.zeros((len(weight), max(self.columns) + 1), np.float32)], 1)
            found[f"{at}own.weight"] = beside[:, [k if k < self.seen else weight.shape[1] for k in self.others]]
            found[f"{at}own.bias"] = self.theirs[f"{encoder}x_self_encoder.seq_layers.0.bias"]
        for o in self.lists:
            theirs = f"{encoder}processors.{self.observations.index(o)}.self_ent_encoder.seq_layers.0."
            weight = self.theirs[f"{theirs}weight"]
            found[f"{at}entities.{o.name}.weight"] = np.roll(weight, o.shape[1], 1)  # their own vector stands first
            found[f"{at}entities.{o.name}.bias"] = self.theirs[f"{theirs}bias"]
        return found | attention(self.theirs, f"{encoder}rsa.", f"{at}attention.")

    def _image(self, theirs: str, own: str) -> Arrays:
        """Convolutions, then dense layers, each kind in the order in which both have them."""
        names = [name.removeprefix(theirs) for name in self.theirs if name.startswith(theirs)]
        kernels = [name for name in names if self.theirs[theirs + name].ndim == 4]
        dense = [name for name in names if self.theirs[theirs + name].ndim == 2]
        found = Arrays()
        for k, name in enumerate(dense):
            found |= pair(self.theirs, theirs + name, f"{own}mlp_layers.{2 * k}.weight")
        for name, place in zip(kernels, _conv_names(self.settings.vis_encode_type, len(kernels)), strict=True):
            found |= pair(self.theirs, theirs + name, f"{own}conv_head.{place}.weight")
        return found

    def _layers(self, own: str) -> Arrays:
        body, goals = f"{self.prefix}_body_endoder.", any(".hypernet." in name for name in self.theirs)
        found, last = Arrays(), 2 * (self.settings.num_layers - 1)
        plain = range(0, last, 2) if goals else range(0, last + 2, 2)
        for k in plain:
            name = f"{body}{'layers' if goals else 'seq_layers'}.{k}.weight"
            found |= pair(self.theirs, name, f"{own}{'layers.' if goals else ''}{k}.weight")
        first = f"{own}{'layers.' if goals else ''}0.weight"
        if first in found:
            found[first] = found[first][:, self.columns]
        if goals:
            made = f"{body}layers.{last}."
            for k, name in ((0, "embed.0"), (2, "embed.2"), (5, "matrix")):
                found |= pair(self.theirs, f"{made}hypernet.{k}.weight", f"{own}{name}.weight")
            found[f"{own}bias"] = self.theirs[f"{made}bias"]
            if not last:  # its rows are our columns, each with all units
                hidden = self.settings.hidden_units
                for kind in ("weight", "bias"):
                    rows = found[f"{own}matrix.{kind}"]
                    blocks = rows.reshape(-1, hidden, *rows.shape[1:])[self.columns]
                    found[f"{own}matrix.{kind}"] = blocks.reshape(rows.shape)
        return found

    def memory(self, own: str) -> Arrays:
        """Of its LSTM, if there is one."""
        theirs = f"{self.prefix}lstm.lstm."
        return {f"{own}core.core.{n.removeprefix(theirs)}": x for n, x in self.theirs.items() if n.startswith(theirs)}


def _conv_names(kind: str, count: int) -> list[str]:
    """Our names of an encoder's convolutions."""
    if kind != "resnet":
        return [str(2 * k) for k in range(count)]
    stage = ("{0}", "{2}.res_block_core.1", "{2}.res_block_core.3", "{3}.res_block_core.1", "{3}.res_block_core.3")
    return [name.format(*range(4 * s, 4 * s + 4)) for s in range(count // len(stage)) for name in stage]


def pair(theirs: Mapping[str, AnyArray], weight: str, own: str) -> Arrays:
    """A layer's weight and bias under our names."""
    return {name: theirs[weight.removesuffix("weight") + kind] for kind in ("weight", "bias")
            for name in [own.removesuffix("weight") + kind]}  # fmt: skip


def attention(theirs: Mapping[str, AnyArray], prefix: str, own: str) -> Arrays:
    """Its three projections are one here."""
    joined = {
        f"{own}query_key_value.{kind}": np.concatenate([theirs[f"{prefix}fc_{k}.{kind}"] for k in "qkv"])
        for kind in ("weight", "bias")
    }
    return joined | pair(theirs, f"{prefix}fc_out.weight", f"{own}out.weight")


def units(parts: Iterable[object], drawn: float = DRAWN) -> tuple[F32, F32]:
    """What a number of theirs is worth in each continuous action's units, and where its 0 lies: [numbers] each. drawn:
    theirs at the end of the game's range."""
    numbers = [part for part in parts if isinstance(part, Continuous)]
    middles = [np.full(part.size, part.squashed[0], np.float32) for part in numbers]
    halves = [np.full(part.size, part.squashed[1] / drawn, np.float32) for part in numbers]
    return np.concatenate([*halves, np.zeros(0, np.float32)]), np.concatenate([*middles, np.zeros(0, np.float32)])


def in_parts(actions: ActionSpec) -> list[int]:
    """Of every number of an action as our networks read it, part by part, the place where theirs do: all numbers, then
    all choices."""
    choice = sum(part.size for part in actions.parts if isinstance(part, Continuous))
    number, places = 0, list[int]()
    for part in actions.parts:
        if isinstance(part, Discrete):
            places += range(choice, choice + part.choices)
            choice += part.choices
        else:
            places += range(number, number + part.size)
            number += part.size
    return places


def reading_actions(
    weight: AnyArray, bias: AnyArray, first: int, actions: ActionSpec, drawn: float = DRAWN
) -> tuple[AnyArray, AnyArray]:
    """A layer that reads an action from column `first` on, as it reads ours. drawn: as of `units`."""
    unit, middle = units(actions.parts, drawn)
    numbers, places = slice(first, first + len(unit)), in_parts(actions)
    weight = weight.copy()
    weight[:, numbers] /= unit
    bias = bias - weight[:, numbers] @ middle
    order = [*range(first), *(first + k for k in places), *range(first + len(places), weight.shape[1])]
    return weight[:, order], bias


def moments(
    theirs: Mapping[str, AnyArray],
    prefix: str,
    observations: tuple[ObservationSpec, ...],
    ours: Mapping[str, AnyArray],
    own_prefix: str = "",
) -> Arrays:
    """Normalisers of vectors; theirs keeps the sum of squares and adds nothing to the variance. ours: those that there
    are, `own_prefix` before their names.

    Images, which are not normalised there, begin with what changes nothing, as firmly as the vectors' stand.
    """
    found = Arrays()
    steps = [float(x) for name, x in theirs.items() if name.endswith("normalizer.normalization_steps")]
    for i, o in enumerate(observations):
        own = f"{own_prefix}{o.name}."
        if f"{own}count" not in ours:
            continue
        mean, variance, count = np.zeros(o.shape), np.ones(o.shape), max(steps, default=1.0)
        if o.is_vector:
            name = f"{prefix}observation_encoder.processors.{i}.normalizer."
            count = float(theirs[f"{name}normalization_steps"])
            mean, variance = theirs[f"{name}running_mean"], theirs[f"{name}running_variance"] / count
        shape = ours[f"{own}running_mean"].shape
        found[f"{own}running_mean"] = np.asarray(mean, np.float64).reshape(shape)
        found[f"{own}running_var"] = np.maximum(np.asarray(variance, np.float64) - EPSILON, 0.0).reshape(shape)
        found[f"{own}count"] = np.array([count])
    return found
