"""What a recorded match hands to those who draw or store it. No file formats: `referee.replay` writes files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from palus.types import F32, F64

I16 = NDArray[np.int16]
Tick = Annotated[int, Field(ge=0, le=10**6, strict=True)]
"""Of a match of any game: up to five hours of SoccerTwos. Every game has its own limit below that."""


@dataclass(frozen=True)
class MatchLayout:
    """How the matches of a game are written down: what a frame holds, and who chose what.

    pitch: names what the channels show, so that a viewer can refuse what it cannot draw.
    channels: [C] name of each channel's unit. units: by its name, what one of the whole numbers that are stored means.
    branches: of each of the P agents. frame_hz, ticks_per_decision: the last decision may be cut short.
    events: kinds of what happens in a match.   scenery: what else the viewer of this pitch has to know, plain JSON; the
    viewer is built with it, so that a replay only has to name its pitch. None where nothing draws it.
    """

    pitch: str
    channels: tuple[str, ...]
    units: Mapping[str, float]
    branches: tuple[tuple[int, ...], ...]
    frame_hz: int
    ticks_per_decision: int
    events: tuple[str, ...] = ()
    scenery: Mapping[str, Any] | None = None

    def unit_of(self, units: Mapping[str, float]) -> F64:
        """[C] the channels' units, of which these are the values."""
        return np.array([units[name] for name in self.channels])

    @property
    def choices(self) -> tuple[int, ...]:
        """[P] probabilities of each agent."""
        return tuple(sum(sizes) for sizes in self.branches)

    @property
    def code_bytes(self) -> tuple[int, ...]:
        """[P] bytes of an agent's decision."""
        return tuple(code_type.itemsize for code_type in self._code_types)

    @property
    def _code_types(self) -> list[np.dtype[Any]]:
        return [np.min_scalar_type(math.prod(sizes) - 1).newbyteorder("<") for sizes in self.branches]

    def check_event(self, event: RecordedEvent, ticks: int) -> None:
        """Raises ValueError for one that no match of so many ticks has."""
        known = event.kind in self.events and event.team in (0, 1) and -1 <= event.agent < len(self.branches)
        if not (known and 0 <= event.tick <= ticks):
            raise ValueError(f"impossible event {event} in a match of {ticks} ticks")

    def encode_actions(self, actions: I16) -> bytes:
        """actions: [decisions, P, A] branch indices. All decisions of agent 0, then of agent 1, and so on.

        A code counts through the branches, the last one fastest; its bytes are the fewest that hold it, lowest first.
        Raises ValueError where there is no such choice.
        """
        width = max(map(len, self.branches))
        if actions.shape[1:] != (len(self.branches), width):
            raise ValueError(f"actions are {actions.shape}, expected [decisions, {len(self.branches)}, {width}]")
        return b"".join(
            np.ravel_multi_index(tuple(actions[:, agent, : len(sizes)].T), sizes).astype(code_type).tobytes()
            for agent, (sizes, code_type) in enumerate(zip(self.branches, self._code_types, strict=True))
        )

    def decode_actions(self, data: bytes | memoryview) -> I16:
        """The inverse of `encode_actions`; 0 where an agent has fewer branches than another.

        Raises ValueError for what it did not write.
        """
        decisions, rest = divmod(len(data), sum(self.code_bytes))
        if rest:
            raise ValueError(f"expected {sum(self.code_bytes)} bytes per decision")
        actions = np.zeros((decisions, len(self.branches), max(map(len, self.branches))), np.int16)
        first = 0
        for agent, (sizes, code_type) in enumerate(zip(self.branches, self._code_types, strict=True)):
            codes = np.frombuffer(data, code_type, decisions, first)
            first += codes.nbytes
            if codes.size and codes.max() >= math.prod(sizes):
                raise ValueError(f"code {codes.max()}, expected 0 to {math.prod(sizes) - 1}")
            actions[:, agent, : len(sizes)] = np.stack(np.unravel_index(codes, sizes), axis=-1)
        return actions


@dataclass(frozen=True)
class RecordedEvent:
    """Something that happened during a tick of a match.

    tick: since the start, 1 for the first; `frames[tick]` shows the moment after it.
    kind: one of the game's `MatchLayout.events`. team: 0 blue, 1 purple; for a goal the team that scored.
    agent: index of the agent that did it; for a goal -1.
    """

    tick: Tick
    kind: Annotated[str, Field(pattern=r"^[a-z-]{1,40}$")]
    team: Annotated[int, Field(ge=0, le=1, strict=True)]
    agent: Annotated[int, Field(ge=-1, le=100, strict=True)]


@dataclass(frozen=True)
class Recording:
    """One match, enough to draw it again without playing it. The game's `MatchLayout` says what the numbers mean.

    names: player of the blue and of the purple side.
    frames: [ticks + 1, C], the initial state first.
    actions: [decisions, P, A], branch indices. probabilities: [decisions, P, sum of branches] what they were drawn
        from; None when a side is a scripted bot. Agents with fewer than others have zeros behind theirs.
    score: points of blue and purple.
    result: "blue", "purple" or "draw".
    """

    env_id: str
    seed: int
    names: tuple[str, str]
    frames: F32
    actions: I16
    probabilities: F32 | None
    events: tuple[RecordedEvent, ...]
    score: tuple[int, int]
    result: Literal["blue", "purple", "draw"]
