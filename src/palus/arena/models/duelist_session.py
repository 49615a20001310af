"""An agent's checked graph in onnxruntime, and its questions and answers as plain rows, the form in which they travel
between the referee and a locked process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from palus.arena.models.duelist_file import STATE_INPUT, STATE_OUTPUT, DuelistGraph, choices_of
from palus.arena.models.policies import open_session
from palus.arena.models.policy_file import PROBABILITY_OUTPUT
from palus.types import F32, AnyArray, GameSpec


class DuelistSession:
    """One thread. origin: how messages call the file, "" for not at all.

    Raises RefusedError when onnxruntime cannot run it.
    """

    def __init__(self, graph: DuelistGraph, origin: str) -> None:
        self._graph = graph
        self._session = open_session(graph.model, origin)
        self._outputs = [PROBABILITY_OUTPUT, STATE_OUTPUT][: 2 if graph.state_size else 1]

    def answer(self, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32]:
        """name -> [rows, *shape] and [rows, S] -> probabilities [rows, sum of choices], new states [rows, S]."""
        feed = {name: observations[name] for name in self._graph.observations}
        if self._graph.state_size:
            feed[STATE_INPUT] = states
        found = self._session.run(self._outputs, feed)
        return found[0], found[1] if self._graph.state_size else states


@dataclass(frozen=True)
class Rows:
    """How questions and answers of a game are laid out as bytes: every observation in the spec's order, then the state;
    the probabilities, then the state."""

    spec: GameSpec
    state_size: int

    @property
    def question_bytes(self) -> int:
        """Of one row."""
        return sum(size for _, size in self._parts)

    @property
    def answer_numbers(self) -> int:
        """Float32 numbers of one row."""
        return sum(choices_of(self.spec.actions)) + self.state_size

    @property
    def _parts(self) -> list[tuple[str, int]]:
        sizes = [(o.name, o.size * np.dtype(o.dtype).itemsize) for o in self.spec.observations]
        return [*sizes, (STATE_INPUT, 4 * self.state_size)]

    def pack(self, observations: Mapping[str, AnyArray], states: F32) -> AnyArray:
        """[rows, question_bytes] uint8."""
        rows = len(states)
        arrays = [observations[o.name] for o in self.spec.observations] + [states]
        return np.concatenate([np.ascontiguousarray(a).view(np.uint8).reshape(rows, -1) for a in arrays], axis=1)

    def unpack(self, questions: AnyArray) -> tuple[dict[str, AnyArray], F32]:
        """The inverse of `pack`."""
        ends = np.cumsum([size for _, size in self._parts])[:-1]
        *seen, states = (np.ascontiguousarray(part) for part in np.split(questions, ends, axis=1))
        observations = {
            o.name: part.view(o.dtype).reshape(len(questions), *o.shape)
            for o, part in zip(self.spec.observations, seen, strict=True)
        }
        return observations, states.view(np.float32)
