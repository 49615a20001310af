"""The networks of reward signals in ML-Agents' checkpoints, as states of our signals.

ML-Agents saves curiosity's, RND's and GAIL's networks and none of their optimisers, so these begin anew as they do
there. What GAIL normalises by is told by the demonstrations, which are read again.
Source: ML-Agents 1.1.0, `CuriosityNetwork`, `RNDNetwork`, `DiscriminatorNetwork`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from palus.config.network import NetworkSettings
from palus.learn.learner import Learner
from palus.learn.signals.curiosity import CuriositySignal
from palus.learn.signals.gail import GailSignal
from palus.learn.signals.rnd import RndSignal
from palus.learn.signals.signal import Trained, network_of, width_of
from palus.run.mlagents_layers import (
    DRAWN,
    Arrays,
    Modules,
    NetworkBody,
    in_parts,
    moments,
    pair,
    reading_actions,
    units,
)
from palus.types import AnyArray, BehaviorSpec

Theirs = Mapping[str, AnyArray]
NUMBERS, CHOICES = "continuous_action_prediction.", "discrete_action_prediction."


def signal_states(theirs: Modules, learner: Learner, warn: Callable[[str], None]) -> dict[str, Any]:
    """What `LearnedReward.load_state_dict` takes, by name. Of signals whose networks are not there, or of another size,
    the present state; warn: is told of them."""
    drawn, found = 1.0 if learner.network.squash else DRAWN, dict[str, Any]()
    for name, signal in learner.learned_signals.items():
        settings = network_of(getattr(learner.behavior.reward_signals, name).network_settings)
        found[name] = signal.state_dict()
        try:
            if isinstance(signal, CuriositySignal):
                found[name] |= _curiosity(theirs["Module:Curiosity"], signal, settings, drawn)
            elif isinstance(signal, RndSignal):
                found[name] |= _rnd(theirs["Module:RND-pred"], theirs["Module:RND-target"], signal, learner, settings)
            elif isinstance(signal, GailSignal):
                found[name] |= _gail(theirs["Module:GAIL"], signal, settings, drawn)
        except (IndexError, KeyError, ValueError) as error:
            warn(f"reward_signals.{name}: the checkpoint has no networks that fit ({error}); they begin anew.")
    return found


def _curiosity(theirs: Theirs, signal: CuriositySignal, settings: NetworkSettings, drawn: float) -> dict[str, Any]:
    spec = signal.spec
    found = _encoder(theirs, "_state_encoder.", spec, settings, "phi.")
    found |= pair(theirs, "inverse_model_action_encoding.0.seq_layers.0.weight", "infer.0.weight")
    found |= pair(theirs, "forward_model_next_state_prediction.1.weight", "foreseen.weight")
    reads = pair(theirs, "forward_model_next_state_prediction.0.seq_layers.0.weight", "weight")
    found["foresee.0.weight"], found["foresee.0.bias"] = reading_actions(
        reads["weight"], reads["bias"], len(found["foreseen.bias"]), spec.actions, drawn
    )
    heads = [pair(theirs, f"{kind}weight", "weight") for kind in (NUMBERS, CHOICES) if f"{kind}weight" in theirs]
    weight, bias = (np.concatenate([head[kind] for head in heads]) for kind in ("weight", "bias"))
    unit, middle = units(spec.actions.parts, drawn)
    numbers, places = slice(len(unit)), in_parts(spec.actions)
    weight[numbers], bias[numbers] = weight[numbers] * unit[:, None], bias[numbers] * unit + middle
    found["inferred.weight"], found["inferred.bias"] = weight[places], bias[places]
    view = moments(theirs, "_state_encoder.", spec.observations, signal.view.arrays())
    return {"learned": True, "trained": _state(signal.trained, found), "view": view}


def _rnd(
    answer: Theirs, target: Theirs, signal: RndSignal, learner: Learner, settings: NetworkSettings
) -> dict[str, Any]:
    trained, fixed = (_encoder(own, "_encoder.", learner.spec, settings, "") for own in (answer, target))
    view = moments(answer, "_encoder.", learner.spec.observations, signal.view.arrays())
    return {"trained": _state(signal.trained, trained), "fixed": _state(signal.fixed, fixed), "view": view}


def _gail(theirs: Theirs, signal: GailSignal, settings: NetworkSettings, drawn: float) -> dict[str, Any]:
    """It reads actions in the units in which ML-Agents' policies draw them; demonstrations are in the game's there."""
    spec = signal.spec
    acted = width_of(spec.actions) + 1 if signal.use_actions else 0  # the end is the last
    found = _encoder(theirs, "encoder.", spec, settings, "encoder.", acted)
    if acted:
        first = min((name for name in found if name.startswith("encoder.layers.")), key=len).removesuffix("bias")
        seen = sum(o.size for o in spec.observations if o.is_vector)
        found[f"{first}weight"], found[f"{first}bias"] = reading_actions(
            found[f"{first}weight"], found[f"{first}bias"], seen, spec.actions, drawn
        )
    found |= pair(theirs, "_estimator.0.weight", "head.weight")
    if not signal.use_vail:
        return {"trained": _state(signal.trained, found)}
    found |= pair(theirs, "_z_mu_layer.weight", "code.weight") | {"sigma": theirs["_z_sigma"]}
    return {"trained": _state(signal.trained, found), "beta": float(theirs["_beta"])}


def _encoder(
    theirs: Theirs, prefix: str, spec: BehaviorSpec, settings: NetworkSettings, own: str, acted: int = 0
) -> Arrays:
    """One that ends with its layers, `own` before our names. acted: numbers that it sees beside observations."""
    found = NetworkBody(theirs, prefix, spec.observations, settings, acted).arrays("")
    return {own + name.removeprefix("encoder."): array for name, array in found.items()}


def _state(trained: Trained, found: Arrays) -> dict[str, Any]:
    """With these weights. Raises KeyError and ValueError where they are others."""
    for name, shape in trained.weights.shapes.items():
        if found[name].shape != shape:
            raise ValueError(f"{name}: {found[name].shape}; expected {shape}")
    flat = np.concatenate([found[name].ravel() for name in trained.weights.shapes]).astype(np.float32)
    return trained.state_dict() | {"weights": flat}
