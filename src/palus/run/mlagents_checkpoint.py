"""Checkpoints (`.pt`) that ML-Agents 1.1.0 itself wrote: their weights and normalisers, in the form of our networks.

The same layers are there, under other names, and some numbers in another order: there, encodings lie in the order of
the observations; here vectors come before images. Continuous actions are drawn in [-3, 3] there and divided by 3 on
their way into the game; here they are drawn in the game's units, so that means and deviations are scaled.
Optimisers are another file's: `mlagents_optimizer.py`.
Source: the layout of `torch.save` in ML-Agents 1.1.0, module by module.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palus.config.network import NetworkSettings
from palus.errors import CheckpointError
from palus.learn.learner import Learner
from palus.learn.sac import SAC
from palus.nn.encoders import ENTITY_UNITS
from palus.nn.network import OBSERVATION_PREFIX
from palus.nn.running import EPSILON
from palus.run.sf_checkpoint import array_of, read_tensors
from palus.types import F32, AnyArray, BehaviorSpec, Continuous, Discrete, ObservationSpec

DRAWN = 3.0
"""Numbers of PPO and MA-POCA mean the game's range when divided by this."""
Arrays = dict[str, AnyArray]
Modules = Mapping[str, Mapping[str, AnyArray]]
"""`Policy`, `Optimizer:critic`, ... -> name -> numbers."""
TABLE_BYTES = 1 << 24
"""As much of a checkpoint's table of contents is looked at."""
_MARK = b"_GlobalSteps__global_step"


@dataclass(frozen=True)
class MlAgentsCheckpoint:
    """modules: without optimisers. steps: trainer steps. optimizers: by name, as they are in the file."""

    modules: Modules
    steps: int
    optimizers: Mapping[str, Any]


def is_ml_agents(path: Path) -> bool:
    """Whether a file looks like a checkpoint of ML-Agents, by a name in it; nothing is unpacked."""
    try:
        with zipfile.ZipFile(path) as archive:
            table = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            with archive.open(table) as file:
                return _MARK in file.read(TABLE_BYTES)
    except Exception:  # not there, no archive, or a hostile one, which makes its readers raise almost anything
        return False


def read_ml_agents(path: Path) -> MlAgentsCheckpoint:
    """The checkpoint in a file. Nothing in it is imported or run.

    Raises CheckpointError when it is damaged, holds anything besides tensors and numbers, or is of something else.
    """
    content = read_tensors(path)
    if not isinstance(content, dict) or not isinstance(content.get("Policy"), dict) or "global_step" not in content:
        raise CheckpointError(f"{path}: no `Policy` and `global_step` in it; expected a checkpoint of ML-Agents 1.1")
    modules = {
        str(module): {str(name): array_of(x, path) for name, x in tensors.items() if isinstance(x, torch.Tensor)}
        for module, tensors in content.items()
        if isinstance(tensors, dict) and "param_groups" not in tensors
    }
    optimizers = {str(n): own for n, own in content.items() if isinstance(own, dict) and "param_groups" in own}
    steps = modules.get("global_step", {}).get("_GlobalSteps__global_step", np.zeros(1))
    return MlAgentsCheckpoint(modules, max(int(np.ravel(steps)[0]), 0), optimizers)


def learner_state(checkpoint: MlAgentsCheckpoint, learner: Learner) -> dict[str, Any]:
    """What `Learner.begin_from` takes: a learner's present state with the checkpoint's weights and normalisers.

    Raises KeyError or ValueError where it is of another trainer, network or game.
    """
    spec, network, state = learner.spec, learner.network, learner.state_dict()
    found = dict(network.arrays()) | weights_of(checkpoint.modules, learner, spec)
    found |= _moments(checkpoint.modules["Policy"], spec.observations, found)
    if isinstance(learner, SAC):
        settings = learner.behavior.network_settings
        target = _estimate(checkpoint.modules["Optimizer:target_network"], "", spec, settings, 0, "")
        state["target"] = np.concatenate([np.ravel(target[name]) for name in learner.target.shapes]).astype(np.float32)
    return state | {"network": found}


def weights_of(theirs: Modules, learner: Learner, spec: BehaviorSpec) -> Arrays:
    """The weights of a learner's network, without normalisers. Each number is one of theirs, or one stretched and moved
    into the units of the game's actions. Raises what `learner_state` raises."""
    settings, network = learner.behavior.network_settings, learner.network
    if settings.encoding != "joint":
        raise ValueError(f"network_settings.encoding {settings.encoding}; ML-Agents' networks are joint")
    found = _Body(theirs["Policy"], "", spec.observations, settings).arrays(network.sides[0])
    found |= _head(theirs["Policy"], spec, settings)
    if network.has_values:
        critic = theirs["Optimizer:critic"]
        if len(network.sides) > 1:
            found |= _Body(critic, "", spec.observations, settings).arrays(network.sides[1])
        return found | _values(critic, "", "critic_linear")
    if not isinstance(learner, SAC):
        return found | _group_critic(theirs["Optimizer:critic"], spec, settings)
    acted = sum(part.size for part in spec.actions.parts if isinstance(part, Continuous))
    found |= _estimate(theirs["Optimizer:value_network"], "", spec, settings, 0, "critic.value.")
    for q in ("q1", "q2"):
        found |= _estimate(theirs["Optimizer:q_network"], f"{q}_network.", spec, settings, acted, f"critic.{q}.")
    return found


class _Body:
    """A network body of theirs, `prefix` before its names. acted: continuous actions that it sees beside the rest."""

    def __init__(
        self,
        theirs: Mapping[str, AnyArray],
        prefix: str,
        observations: tuple[ObservationSpec, ...],
        settings: NetworkSettings,
        acted: int = 0,
    ) -> None:
        self.theirs, self.prefix, self.settings = theirs, f"{prefix}network_body.", settings
        self.observations, self.acted = observations, acted
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
        return found | _attention(self.theirs, f"{encoder}rsa.", f"{at}attention.")

    def _image(self, theirs: str, own: str) -> Arrays:
        """Convolutions, then dense layers, each kind in the order in which both have them."""
        names = [name.removeprefix(theirs) for name in self.theirs if name.startswith(theirs)]
        kernels = [name for name in names if self.theirs[theirs + name].ndim == 4]
        dense = [name for name in names if self.theirs[theirs + name].ndim == 2]
        found = Arrays()
        for k, name in enumerate(dense):
            found |= _pair(self.theirs, theirs + name, f"{own}mlp_layers.{2 * k}.weight")
        for name, place in zip(kernels, _conv_names(self.settings.vis_encode_type, len(kernels)), strict=True):
            found |= _pair(self.theirs, theirs + name, f"{own}conv_head.{place}.weight")
        return found

    def _layers(self, own: str) -> Arrays:
        body, goals = f"{self.prefix}_body_endoder.", any(".hypernet." in name for name in self.theirs)
        found, last = Arrays(), 2 * (self.settings.num_layers - 1)
        plain = range(0, last, 2) if goals else range(0, last + 2, 2)
        for k in plain:
            name = f"{body}{'layers' if goals else 'seq_layers'}.{k}.weight"
            found |= _pair(self.theirs, name, f"{own}{'layers.' if goals else ''}{k}.weight")
        first = f"{own}{'layers.' if goals else ''}0.weight"
        if first in found:
            found[first] = found[first][:, self.columns]
        if goals:
            made = f"{body}layers.{last}."
            for k, name in ((0, "embed.0"), (2, "embed.2"), (5, "matrix")):
                found |= _pair(self.theirs, f"{made}hypernet.{k}.weight", f"{own}{name}.weight")
            found[f"{own}bias"] = self.theirs[f"{made}bias"]
            if not last:  # its rows are our columns, each with all units
                units = self.settings.hidden_units
                for kind in ("weight", "bias"):
                    rows = found[f"{own}matrix.{kind}"]
                    blocks = rows.reshape(-1, units, *rows.shape[1:])[self.columns]
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


def _pair(theirs: Mapping[str, AnyArray], weight: str, own: str) -> Arrays:
    """A layer's weight and bias under our names."""
    return {name: theirs[weight.removesuffix("weight") + kind] for kind in ("weight", "bias")
            for name in [own.removesuffix("weight") + kind]}  # fmt: skip


def _attention(theirs: Mapping[str, AnyArray], prefix: str, own: str) -> Arrays:
    joined = {
        f"{own}query_key_value.{kind}": np.concatenate([theirs[f"{prefix}fc_{k}.{kind}"] for k in "qkv"])
        for kind in ("weight", "bias")
    }
    return joined | _pair(theirs, f"{prefix}fc_out.weight", f"{own}out.weight")


def _values(theirs: Mapping[str, AnyArray], prefix: str, own: str) -> Arrays:
    """One head for each reward, below each other."""
    heads = [
        name for name in theirs if name.startswith(f"{prefix}value_heads.value_heads.") and name.endswith("weight")
    ]
    rows = [_pair(theirs, name, f"{own}.weight") for name in heads]
    return {name: np.concatenate([own[name] for own in rows]) for name in rows[0]}


def _estimate(
    theirs: Mapping[str, AnyArray], prefix: str, spec: BehaviorSpec, settings: NetworkSettings, acted: int, own: str
) -> Arrays:
    return _Body(theirs, prefix, spec.observations, settings, acted).arrays(own) | _values(theirs, prefix, f"{own}head")


def _units(parts: Iterable[object]) -> tuple[F32, F32]:
    """What a number of theirs is worth in each continuous action's units, and where its 0 lies: [numbers] each."""
    numbers = [part for part in parts if isinstance(part, Continuous)]
    middles = [np.full(part.size, part.squashed[0], np.float32) for part in numbers]
    halves = [np.full(part.size, part.squashed[1] / DRAWN, np.float32) for part in numbers]
    return np.concatenate([*halves, np.zeros(0, np.float32)]), np.concatenate([*middles, np.zeros(0, np.float32)])


def _head(theirs: Mapping[str, AnyArray], spec: BehaviorSpec, settings: NetworkSettings) -> Arrays:
    """The numbers of the distribution, part by part."""
    unit, middle = _units(spec.actions.parts)
    if settings.squash:  # numbers before tanh
        unit, middle = np.ones_like(unit), np.zeros_like(middle)
    weights, biases, free, at, branch = [], [], [], 0, 0
    for part in spec.actions.parts:
        if isinstance(part, Discrete):
            name = f"action_model._discrete_distribution.branches.{branch}."
            weights.append(theirs[f"{name}weight"])
            biases.append(theirs[f"{name}bias"])
            branch += 1
            continue
        rows, name = slice(at, at + part.size), "action_model._continuous_distribution."
        at += part.size
        weights.append(theirs[f"{name}mu.weight"][rows] * unit[rows, None])
        biases.append(theirs[f"{name}mu.bias"][rows] * unit[rows] + middle[rows])
        if settings.adaptive_deviation:
            weights.append(theirs[f"{name}log_sigma.weight"][rows])
            biases.append(theirs[f"{name}log_sigma.bias"][rows] + np.log(unit[rows]))
        else:
            free.append(theirs[f"{name}log_sigma"][0, rows] + np.log(unit[rows]))
    own = "action_parameterization."
    found = {f"{own}distribution_linear.weight": np.concatenate(weights)}
    found[f"{own}distribution_linear.bias"] = np.concatenate(biases)
    return found | ({f"{own}learned_stddev": np.concatenate(free)} if free else {})


def _group_critic(theirs: Mapping[str, AnyArray], spec: BehaviorSpec, settings: NetworkSettings) -> Arrays:
    """MA-POCA's."""
    body, columns = _Body(theirs, "", spec.observations, settings), [0]
    entity = "network_body.{}.self_ent_encoder.seq_layers.0.weight"
    found = body.encoders("critic.") | _pair(theirs, entity.format("obs_encoder"), "critic.observation.weight")
    found |= _pair(theirs, entity.format("obs_action_encoder"), "critic.action.weight")
    found |= _attention(theirs, "network_body.self_attn.", "critic.attention.")
    for k in range(0, 2 * settings.num_layers, 2):
        found |= _pair(theirs, f"network_body.linear_encoder.seq_layers.{k}.weight", f"critic.layers.{k}.weight")
    found |= body.memory("critic.") | _values(theirs, "", "critic.head")
    # Actions, there: all numbers, then all choices; here part by part, numbers in the game's units.
    unit, middle = _units(spec.actions.parts)
    acted = len(body.columns)
    number, choice, columns = acted, acted + len(unit), list(body.columns)
    for part in spec.actions.parts:
        size = part.choices if isinstance(part, Discrete) else part.size
        first = choice if isinstance(part, Discrete) else number
        columns += range(first, first + size)
        choice, number = (choice + size, number) if isinstance(part, Discrete) else (choice, number + size)
    weight = found["critic.action.weight"].copy()
    weight[:, acted : acted + len(unit)] /= unit
    found["critic.action.bias"] = found["critic.action.bias"] - weight[:, acted : acted + len(unit)] @ middle
    found["critic.action.weight"] = weight[:, columns]
    found["critic.observation.weight"] = found["critic.observation.weight"][:, body.columns]
    return found


def _moments(theirs: Mapping[str, AnyArray], observations: tuple[ObservationSpec, ...], ours: Arrays) -> Arrays:
    """Normalisers of vectors; theirs keeps the sum of squares and adds nothing to the variance.

    Images, which are not normalised there, begin with what changes nothing, as firmly as the vectors' stand.
    """
    found = Arrays()
    steps = [float(x) for name, x in theirs.items() if name.endswith("normalizer.normalization_steps")]
    for i, o in enumerate(observations):
        own = f"{OBSERVATION_PREFIX}{o.name}."
        if f"{own}count" not in ours:
            continue
        mean, variance, count = np.zeros(o.shape), np.ones(o.shape), max(steps, default=1.0)
        if o.is_vector:
            name = f"network_body.observation_encoder.processors.{i}.normalizer."
            count = float(theirs[f"{name}normalization_steps"])
            mean, variance = theirs[f"{name}running_mean"], theirs[f"{name}running_variance"] / count
        shape = ours[f"{own}running_mean"].shape
        found[f"{own}running_mean"] = np.asarray(mean, np.float64).reshape(shape)
        found[f"{own}running_var"] = np.maximum(np.asarray(variance, np.float64) - EPSILON, 0.0).reshape(shape)
        found[f"{own}count"] = np.array([count])
    return found
