"""Adam's moments of ML-Agents' checkpoints, in the order of our weights.

torch saves them by number: an optimiser counts the parameters of its modules in the order in which these hold them,
which is that of a module's saved state without its buffers. PPO's and MA-POCA's holds the actor, then the critic where
it is another network; SAC has one for the actor, one for both Qs and V, one for the entropy coefficients, and steps all
of them at once, as our one does.
Source: ML-Agents 1.1.0, `TorchPPOOptimizer`, `TorchPOCAOptimizer`, `TorchSACOptimizer`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from palus.errors import CheckpointError
from palus.learn.learner import Learner
from palus.learn.sac import SAC
from palus.run.mlagents_checkpoint import MlAgentsCheckpoint, weights_of
from palus.run.mlagents_layers import Arrays, Modules
from palus.run.tensors import array_of
from palus.types import ActionSpec, AnyArray, Continuous

MISFITS = (AttributeError, CheckpointError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What `optimizer_state` raises."""
_NO_PARAMETER = re.compile(r".*normalizer\.|(.*\.)?network_body\.processors\.")
"""Beginnings of names in a module's state that are buffers, or an encoder's second name."""
_COEFFICIENTS = "critic.log_coefficients"


_Moments = tuple[AnyArray, AnyArray]
"""Mean and square of one tensor, in its shape."""


def optimizer_state(checkpoint: MlAgentsCheckpoint, learner: Learner, path: Path) -> dict[str, Any]:
    """What `Adam.load_state_dict` takes. learner: for whom `learner_state` takes the rest; path: for messages.

    Raises one of MISFITS where it is of other parameters, or holds no finite numbers.
    """
    modules, shapes = checkpoint.modules, learner.network.weights.shapes
    is_one = learner.network.has_values and len(learner.network.sides) == 1  # actor and critic
    means, squares, steps = _filled(modules, 0.0), _filled(modules, 0.0), 0
    for optimizer, held in _optimizers(learner, is_one).items():
        names = [(m, name) for m in held for name in modules[m] if not _NO_PARAMETER.match(name)]
        own, made = _read(checkpoint.optimizers[optimizer], [modules[m][name].shape for m, name in names], path)
        for number, moments in own.items():
            module, name = names[number]
            means[module][name], squares[module][name] = moments
        steps = max(steps, made)
    if is_one:
        means["Optimizer:critic"], squares["Optimizer:critic"] = means["Policy"], squares["Policy"]
    mean, square = _in_our_units(modules, means, squares, learner)
    if isinstance(learner, SAC):
        mean[_COEFFICIENTS], square[_COEFFICIENTS] = _of_coefficients(checkpoint, learner, path)
    flat = [np.concatenate([np.ravel(own[name]) for name in shapes]) for own in (mean, square)]
    return {"steps": steps, "mean": flat[0].astype(np.float32), "square": flat[1].astype(np.float32)}


def _optimizers(learner: Learner, is_one: bool) -> dict[str, list[str]]:
    """By name, the modules whose parameters each optimiser holds."""
    if isinstance(learner, SAC):
        critics = ["Optimizer:q_network", "Optimizer:value_network"]
        return {"Optimizer:policy_optimizer": ["Policy"], "Optimizer:value_optimizer": critics}
    name = "Optimizer:value_optimizer" if learner.network.has_values else "Optimizer:adam"
    return {name: ["Policy"] if is_one else ["Policy", "Optimizer:critic"]}


def _read(saved: Mapping[str, Any], shapes: Sequence[tuple[int, ...]], path: Path) -> tuple[dict[int, _Moments], int]:
    """The moments of those parameters that have any, by number, and the steps. shapes: of all parameters."""
    (group,), found, steps = saved["param_groups"], dict[int, _Moments](), 0
    if list(group["params"]) != list(range(len(shapes))):
        raise ValueError(f"an optimiser of {len(group['params'])} parameters; expected {len(shapes)}")
    for number, state in saved["state"].items():
        mean, square = (array_of(state[key], path).astype(np.float64) for key in ("exp_avg", "exp_avg_sq"))
        if not mean.shape == square.shape == tuple(shapes[number]):
            raise ValueError(f"moments of shape {mean.shape} and {square.shape}; expected {tuple(shapes[number])}")
        if not (np.isfinite(mean).all() and np.isfinite(square).all() and (square >= 0).all()):
            raise ValueError("moments that are no finite numbers")
        found[number], steps = (mean, square), max(steps, int(state["step"]))
    return found, steps


def _filled(modules: Modules, number: float) -> dict[str, dict[str, AnyArray]]:
    """All tensors of modules, with this number everywhere."""
    return {m: {name: np.full(x.shape, number) for name, x in tensors.items()} for m, tensors in modules.items()}


def _in_our_units(modules: Modules, means: Modules, squares: Modules, learner: Learner) -> tuple[Arrays, Arrays]:
    """The moments of our weights. Where one is s times theirs plus a constant, its gradient is 1 / s of theirs."""
    spec = replace(learner.spec, actions=_around_zero(learner.spec.actions))
    zeros, ones, mean, square = (
        weights_of(own, learner, spec) for own in (_filled(modules, 0.0), _filled(modules, 1.0), means, squares)
    )
    for name, constant in zeros.items():
        scale = ones[name] - constant
        scale[scale == 0.0] = np.inf  # nothing of theirs
        mean[name] = (mean[name] - constant) / scale**2
        square[name] = (square[name] - constant) / scale**3
    return mean, square


def _around_zero(actions: ActionSpec) -> ActionSpec:
    """The same, with ranges of the same width whose middle is 0: what it adds to a bias goes on to other gradients."""
    parts = (
        replace(part, low=-part.squashed[1], high=part.squashed[1]) if isinstance(part, Continuous) else part
        for part in actions.parts
    )
    return replace(actions, parts=tuple(parts))


def _of_coefficients(checkpoint: MlAgentsCheckpoint, learner: SAC, path: Path) -> _Moments:
    """Of the entropy coefficients: those of choices, then one for numbers, which ML-Agents has in any case."""
    branches, own = len(learner.spec.branches), learner.network.weights.shapes[_COEFFICIENTS][0]
    found, _ = _read(checkpoint.optimizers["Optimizer:entropy_optimizer"], [(branches,), (1,)], path)
    nothing = [(np.zeros(size), np.zeros(size)) for size in (branches, 1)]
    means, squares = zip(*(found.get(k, nothing[k]) for k in (0, 1)), strict=True)
    part = slice(None) if own == branches + 1 else slice(own) if branches else slice(branches, None)
    return np.concatenate(means)[part], np.concatenate(squares)[part]
