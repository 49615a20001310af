"""Checkpoints (`.pt`) that ML-Agents 1.1.0 itself wrote: their weights and normalisers, in the form of our networks.

The same layers are there, under other names, and some numbers in another order: there, encodings lie in the order of
the observations; here vectors come before images. Continuous actions are drawn in [-3, 3] there and divided by 3 on
their way into the game; here they are drawn in the game's units, so that means and deviations are scaled.
Layers are `mlagents_layers.py`'s, optimisers `mlagents_optimizer.py`'s, reward signals `mlagents_signals.py`'s.
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
from palus.nn.action_head import units_of
from palus.nn.network import OBSERVATION_PREFIX
from palus.run.mlagents_layers import Arrays, Modules, NetworkBody, attention, moments, pair, reading_actions, units
from palus.run.tensors import array_of, read_tensors
from palus.types import AnyArray, BehaviorSpec, Continuous, Discrete

BODY = "network_body."
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
    found |= moments(checkpoint.modules["Policy"], BODY, spec.observations, found, OBSERVATION_PREFIX)
    if isinstance(learner, SAC):
        target = _estimate(checkpoint.modules["Optimizer:target_network"], "", learner, 0, "")
        state["target"] = np.concatenate([np.ravel(target[name]) for name in learner.target.shapes]).astype(np.float32)
    return state | {"network": found}


def weights_of(theirs: Modules, learner: Learner, spec: BehaviorSpec) -> Arrays:
    """The weights of a learner's network, without normalisers. Each number is one of theirs, or one stretched and moved
    into the units of the game's actions. Raises what `learner_state` raises."""
    settings, network = learner.behavior.network_settings, learner.network
    if settings.encoding != "joint":
        raise ValueError(f"network_settings.encoding {settings.encoding}; ML-Agents' networks are joint")
    found = NetworkBody(theirs["Policy"], BODY, spec.observations, settings).arrays(network.sides[0])
    found |= _head(theirs["Policy"], spec, settings)
    if network.has_values:
        critic = theirs["Optimizer:critic"]
        if len(network.sides) > 1:
            found |= NetworkBody(critic, BODY, spec.observations, settings).arrays(network.sides[1])
        return found | _values(critic, "", "critic_linear", learner.signals)
    if not isinstance(learner, SAC):
        return found | _group_critic(theirs["Optimizer:critic"], learner, spec)
    acted = sum(part.size for part in spec.actions.parts if isinstance(part, Continuous))
    found |= _estimate(theirs["Optimizer:value_network"], "", learner, 0, "critic.value.")
    for q in ("q1", "q2"):
        found |= _estimate(theirs["Optimizer:q_network"], f"{q}_network.", learner, acted, f"critic.{q}.")
    return found


def _values(theirs: Mapping[str, AnyArray], prefix: str, own: str, signals: Iterable[str]) -> Arrays:
    """One head for each reward, below each other in our order; there they lie in that of the run file."""
    heads = [pair(theirs, f"{prefix}value_heads.value_heads.{signal}.weight", f"{own}.weight") for signal in signals]
    return {name: np.concatenate([head[name] for head in heads]) for name in heads[0]}


def _estimate(theirs: Mapping[str, AnyArray], prefix: str, learner: Learner, acted: int, own: str) -> Arrays:
    """A network of SAC's. acted: numbers of actions that it sees."""
    observations, settings = learner.spec.observations, learner.behavior.network_settings
    body = NetworkBody(theirs, f"{prefix}{BODY}", observations, settings, acted)
    return body.arrays(own) | _values(theirs, prefix, f"{own}head", learner.signals)


def _head(theirs: Mapping[str, AnyArray], spec: BehaviorSpec, settings: NetworkSettings) -> Arrays:
    """The numbers of the distribution, part by part."""
    unit, middle = units(spec.actions.parts)
    if settings.squash:  # numbers before tanh
        unit, middle = np.ones_like(unit), np.zeros_like(middle)
    ours = [(part.size, *units_of(part, settings)) for part in spec.actions.parts if isinstance(part, Continuous)]
    zeros, worth = (np.array([own[k] for own in ours for _ in range(own[0])], np.float32) for k in (1, 2))
    unit, middle = unit / worth, (middle - zeros) / worth
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


def _group_critic(theirs: Mapping[str, AnyArray], learner: Learner, spec: BehaviorSpec) -> Arrays:
    """MA-POCA's."""
    settings = learner.behavior.network_settings
    body = NetworkBody(theirs, BODY, spec.observations, settings)
    entity = BODY + "{}.self_ent_encoder.seq_layers.0.weight"
    found = body.encoders("critic.") | pair(theirs, entity.format("obs_encoder"), "critic.observation.weight")
    found |= pair(theirs, entity.format("obs_action_encoder"), "critic.action.weight")
    found |= attention(theirs, f"{BODY}self_attn.", "critic.attention.")
    for k in range(0, 2 * settings.num_layers, 2):
        found |= pair(theirs, f"{BODY}linear_encoder.seq_layers.{k}.weight", f"critic.layers.{k}.weight")
    found |= body.memory("critic.") | _values(theirs, "", "critic.head", learner.signals)
    acted = len(body.columns)
    weight, bias = found["critic.action.weight"], found["critic.action.bias"]
    weight, found["critic.action.bias"] = reading_actions(weight, bias, acted, spec.actions)
    found["critic.action.weight"] = weight[:, [*body.columns, *range(acted, weight.shape[1])]]
    found["critic.observation.weight"] = found["critic.observation.weight"][:, body.columns]
    return found
