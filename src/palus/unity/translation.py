"""What agents see and do, from messages to arrays and back.

Continuous actions mean -1..1 to ML-Agents: where a game has finite limits they are stretched to them, elsewhere they
are what they are. Pictures of bytes are told as 0..1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from palus.errors import ProtocolError
from palus.types import F32, ActionSpec, AnyArray, BehaviorSpec, Continuous, ObservationSpec
from palus.unity.messages import ENTITIES, GOAL_SIGNAL, IMAGE, PNG, VECTOR, Observation, floats, packed
from palus.unity.news import actions_of


def observation_template(o: ObservationSpec) -> Any:
    """An `ObservationProto` without its numbers."""
    properties, kind = (VECTOR, ENTITIES, IMAGE)[len(o.shape) - 1], GOAL_SIGNAL if o.goal else 0
    return Observation(shape=o.shape, dimension_properties=properties, observation_type=kind, name=o.name)


def observation_specs(shown: Iterable[Any]) -> tuple[ObservationSpec, ...]:
    """What an agent sees, named as ML-Agents' models name it: obs_0, obs_1, ... shown: an `ObservationProto` of each,
    or what a BaseEnv says of it, whose kinds are members of an Enum. Raises ValueError for what nobody can see."""
    kinds = [(o.shape, getattr(o.observation_type, "value", o.observation_type)) for o in shown]
    seen = tuple(
        ObservationSpec(f"obs_{i}", tuple(o), goal=int(kind) == GOAL_SIGNAL) for i, (o, kind) in enumerate(kinds)
    )
    if not seen:
        raise ValueError("it sees nothing; give its agents a sensor, or observations of a Space Size above 0")
    return seen


def numbers(seen: AnyArray) -> bytes:
    """An observation as `FloatData`. seen: as the game gives it."""
    return packed(seen / np.float32(255)) if seen.dtype == np.uint8 else packed(seen)


def observation_of(told: Any, spec: ObservationSpec, what: str) -> F32:
    """What an `ObservationProto` tells: float32 of the observation's size, pictures 0..1. what: its name in errors.

    Raises ProtocolError for another shape, for pictures that are none, and where pillow is missing.
    """
    if tuple(told.shape) != spec.shape:
        raise ProtocolError(f"{what}: shape {tuple(told.shape)}; expected {spec.shape}, as at the start")
    if told.compression_type == PNG:
        if len(spec.shape) != 3:
            raise ProtocolError(f"{what}: a compressed observation of shape {spec.shape}; expected a picture")
        try:
            from palus.unity.pictures import decode
        except ImportError as error:
            raise ProtocolError(f"{what}: PNG pictures need pillow ({error}); pip install 'palus[unity]'") from error
        return decode(told.compressed_data, spec.shape, list(told.compressed_channel_mapping), what)
    return floats(told.float_data.data, spec.size, what)


def action_spec(brain: Any) -> ActionSpec:
    """The actions of a `BrainParametersProto`, of any release. Raises ValueError where they contradict themselves."""
    told = brain.action_spec
    continuous, branches = told.num_continuous_actions, tuple(told.discrete_branch_sizes)
    if len(branches) != told.num_discrete_actions:
        raise ValueError(f"{told.num_discrete_actions} discrete actions with sizes {branches}; expected one size each")
    if not continuous and not branches:  # packages from before hybrid actions
        sizes = tuple(brain.vector_action_size_deprecated)
        is_continuous = brain.vector_action_space_type_deprecated == 1
        continuous, branches = (sizes[0] if sizes else 0, ()) if is_continuous else (0, sizes)
    return actions_of(continuous, branches)


def describe_actions(brain: Any, actions: ActionSpec) -> None:
    """Write the actions of a behavior into a `BrainParametersProto`."""
    brain.action_spec.num_continuous_actions = actions.columns - len(actions.branches)
    brain.action_spec.num_discrete_actions = len(actions.branches)
    brain.action_spec.discrete_branch_sizes.extend(actions.branches)


def columns_of(behavior: BehaviorSpec, given: Any) -> F32:
    """[A] columns of an `AgentActionProto` as the game has them. Raises ProtocolError for one that it does not have."""
    spec: ActionSpec = behavior.actions
    chosen, branches = list(given.discrete_actions), spec.branches
    size = spec.columns - len(branches)
    continuous = floats(given.continuous_actions, size, f"continuous action of {behavior.name}")
    if len(chosen) != len(branches) or any(not 0 <= c < n for c, n in zip(chosen, branches, strict=False)):
        raise ProtocolError(f"discrete action {chosen} of {behavior.name}; expected one choice of each of {branches}")
    if not np.isfinite(continuous).all():
        raise ProtocolError(f"continuous action {continuous.tolist()} of {behavior.name}; expected finite numbers")
    found, at = np.empty(spec.columns, np.float32), 0
    for part, columns in zip(spec.parts, spec.column_slices, strict=True):
        if not isinstance(part, Continuous):
            found[columns] = chosen.pop(0)
            continue
        found[columns], at = continuous[at : at + part.size], at + part.size
        if math.isfinite(part.low) and math.isfinite(part.high):
            found[columns] = part.low + (np.clip(found[columns], -1, 1) + 1) * (part.high - part.low) / 2
        found[columns] = np.clip(found[columns], part.low, part.high)
    return found


def write_action(made: Any, spec: ActionSpec, columns: F32) -> None:
    """The opposite of `columns_of`. made: an `AgentActionProto`; columns: [A] as the game is told them."""
    continuous: list[F32] = []
    for part, own in zip(spec.parts, spec.column_slices, strict=True):
        if isinstance(part, Continuous):
            middle, half = part.squashed
            continuous.append((columns[own] - np.float32(middle)) / np.float32(half))
        else:
            made.discrete_actions.append(int(columns[own.start]))
    if continuous:
        made.continuous_actions = packed(np.concatenate(continuous))
