"""The environment contract: N matches of one game, stepped together, data as struct of arrays.

Anything with these members can be trained on, matched and recorded; `palus.envs.check.check_env` tests them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from palus.types import F32, F64, I32, I64, MASKS, RAY_DISTANCES, RAY_TAGS, AnyArray, BehaviorSpec, Bool, GameSpec, Step


class MultiAgentEnv(Protocol):
    """N matches side by side. All arrays are C-contiguous; agents are in the order of `spec.agents`.

    Determinism: the same seeds and actions give the same bits, whatever N is.
    """

    spec: GameSpec
    num_matches: int
    active: Bool
    """[N, P]: this agent takes a decision now. Inactive slots have no observation and their actions are ignored.

    Agents may become active whenever the game pleases; they become inactive by an end of their episode. One that ended
    before its match and is active all the same has begun its next episode."""

    def reset(self, seeds: I64) -> None:
        """Start N new matches. seeds: [N]; slot n's matches, this one and all later ones, depend on seeds[n] alone."""

    def observe(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Write each current observation of agent (n, p) to `out[name][rows[n, p]]`, other rows stay as they are.

        rows: [N, P_b] for the P_b agents of the behavior (`spec.agents_of`); -1 skips an agent. out: as `room_for`
        makes it, rays in the form that is there; `out[MASKS]`, where the behavior's actions are masked, tells what may
        be chosen now.
        """

    def observe_final(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Like `observe`, without masks: what agents truncated in the latest step saw last, before the reset.

        Rows of agents that did not end stay as they are; nobody reads those of agents that were terminated.
        """

    def step(self, actions: Sequence[F32]) -> Step:
        """Play one decision. actions: per behavior, in the order of `spec.behaviors`, [N, P_b, A], columns as
        `ActionSpec` lays them out: a discrete part's holds its index."""

    def set_parameters(self, parameters: Mapping[str, float | F64]) -> None:
        """Change numbers of the game from the next decision on: one for all matches, or [N], one for each.

        Raises EnvError for names that it does not have.
        """

    def get_state(self) -> dict[str, object] | None:
        """Everything that `set_state` needs to continue bit for bit, arrays and plain numbers; None from a game that
        cannot be saved."""

    def set_state(self, state: dict[str, object]) -> None:
        """Restore what `get_state` returned."""

    def close(self) -> None:
        """Free everything; calling it twice does no harm."""


def room_for(
    behavior: BehaviorSpec,
    *shape: int,
    masks: bool = True,
    rays: bool = False,
    zeros: Callable[[tuple[int, ...], str | type], AnyArray] = np.zeros,
) -> dict[str, AnyArray]:
    """Zeroed arrays [*shape, ...] for every observation of a behavior, and for its masks where it has any.

    rays: in compact form. zeros: makes an array of a shape and a type.
    """
    room = dict[str, AnyArray]()
    for o in behavior.observations:
        if rays and o.rays:
            room[o.name + RAY_TAGS] = zeros((*shape, o.rays), np.uint8)
            room[o.name + RAY_DISTANCES] = zeros((*shape, o.rays), np.float32)
        else:
            room[o.name] = zeros((*shape, *o.shape), o.dtype)
    if masks and behavior.actions.masked:
        room[MASKS] = zeros((*shape, sum(behavior.branches)), np.bool_)
    return room


Room = Callable[..., dict[str, AnyArray]]
"""`room_for`, or with some of its options."""


def observe_slots(env: MultiAgentEnv, behavior: BehaviorSpec, slots: Bool) -> tuple[dict[str, AnyArray], Bool | None]:
    """What these agents of a behavior see, name -> [rows, *shape], and their masks. slots: [N, P_b], row by row."""
    rows = np.full(slots.shape, -1, np.int32)
    rows[slots] = np.arange(slots.sum(), dtype=np.int32)
    room = room_for(behavior, int(slots.sum()))
    env.observe(behavior.name, rows, room)
    return room, room.pop(MASKS, None)
