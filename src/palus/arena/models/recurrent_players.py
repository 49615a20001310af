"""Players of sampled games, Doom's among them: ONNX files with memory, and chance. They run without torch.

Like the players of `models.players` they answer probabilities and draw nothing. They keep no state between calls:
the referee carries each agent's memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from palus.arena.models.policies import open_session
from palus.arena.models.policy_file import PROBABILITY_OUTPUT
from palus.arena.models.recurrent_file import STATE_INPUT, STATE_OUTPUT, RecurrentGraph, choices_of, read_recurrent
from palus.errors import ModelError
from palus.types import F32, AnyArray, GameSpec


class RecurrentSession:
    """One thread. origin: how messages call the file, "" for not at all.

    Raises RefusedError when onnxruntime cannot run it.
    """

    def __init__(self, graph: RecurrentGraph, origin: str) -> None:
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


class RecurrentPlayer(Protocol):
    """A player. sha256: of its file, None without one. state_size: numbers that it remembers per agent, S."""

    name: str
    sha256: str | None
    state_size: int

    def answer(self, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32]:
        """name -> [rows, *shape] and [rows, S] -> probabilities [rows, sum of choices], new states [rows, S]."""


class RandomRecurrentPlayer:
    """Every choice is equally likely."""

    def __init__(self, spec: GameSpec) -> None:
        self.name, self.state_size = "random", 0
        self.sha256: str | None = None
        self._row = np.concatenate([np.full(n, 1.0 / n, np.float32) for n in choices_of(spec.actions)])

    def answer(self, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32]:
        """The same for all."""
        return np.tile(self._row, (len(states), 1)), states


class OnnxRecurrentPlayer:
    """An ONNX file as `palus.nn.graph` lays it out, named by the user, run in this process.

    Raises ModelError when it cannot be read or was made for another game.
    """

    def __init__(self, path: Path, spec: GameSpec, name: str | None = None) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from error
        self.name = name or path.stem
        self.sha256: str | None = hashlib.sha256(data).hexdigest()
        graph = read_recurrent(data, str(path), spec)
        self.state_size = graph.state_size
        self._session = RecurrentSession(graph, str(path))

    def answer(self, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32]:
        """As the file computes them."""
        return self._session.answer(observations, states)


def load_recurrent_player(word: str, spec: GameSpec) -> RecurrentPlayer:
    """What a word on the command line means: `random`, an `.onnx` file, or a run's folder with `<Behavior>.onnx`.

    Raises ModelError when there is no such player.
    """
    if word == "random":
        return RandomRecurrentPlayer(spec)
    path = Path(word)
    if path.is_dir():
        models = sorted(path.glob("*.onnx"))
        if len(models) != 1:
            raise ModelError(f"{path}: holds {len(models)} .onnx files; expected one, or name the file itself")
        return OnnxRecurrentPlayer(models[0], spec, path.resolve().name)
    if path.suffix != ".onnx" or not path.is_file():
        raise ModelError(f"{word}: no such player; give an .onnx file, a run's folder that holds one, or random")
    return OnnxRecurrentPlayer(path, spec)


def find_recurrent_players(folder: Path, spec: GameSpec) -> tuple[list[RecurrentPlayer], list[str]]:
    """Players of a folder: its `.onnx` files and those of its direct subfolders, and why others cannot be played.

    Raises ModelError when the folder does not exist.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder; give one that holds .onnx files or runs")
    words = [*folder.glob("*.onnx"), *(p for p in folder.iterdir() if p.is_dir() and any(p.glob("*.onnx")))]
    players: dict[str, RecurrentPlayer] = {}
    rejected = []
    for word in sorted(words):
        try:
            player = load_recurrent_player(str(word), spec)
        except ModelError as error:
            rejected.append(str(error))
        else:
            players.setdefault(player.name, player)
    return list(players.values()), rejected
