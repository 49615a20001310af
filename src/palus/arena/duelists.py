"""Players of sampled games, Doom's among them: ONNX files with memory, and chance. They run without torch.

Like the players of `palus.arena.players` they answer probabilities and draw nothing. They keep no state between calls:
the referee carries each agent's memory.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at the import: nobody is told who plays what here
import onnxruntime as ort

from palus.arena.vetting.grammar import parse_model
from palus.arena.vetting.refusal import RefusedError
from palus.arena.vetting.rules import LOCAL_RULES
from palus.errors import ModelError
from palus.spaces import ActionSpec, Discrete, GameSpec
from palus.types import F32, AnyArray

STATE_INPUT, STATE_OUTPUT, PROBABILITIES = "recurrent_in", "recurrent_out", "action_probabilities"
_TYPES = {"uint8": "tensor(uint8)", "float32": "tensor(float)"}
_MAX_STATE = 65536


class Duelist(Protocol):
    """A player. sha256: of its file, None without one. state_size: numbers that it remembers per agent, S."""

    name: str
    sha256: str | None
    state_size: int

    def answer(self, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32]:
        """name -> [rows, *shape] and [rows, S] -> probabilities [rows, sum of choices], new states [rows, S]."""


class RandomDuelist:
    """Every choice is equally likely."""

    def __init__(self, spec: GameSpec) -> None:
        self.name, self.state_size = "random", 0
        self.sha256: str | None = None
        self._row = np.concatenate([np.full(n, 1.0 / n, np.float32) for n in choices_of(spec.actions)])

    def answer(self, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32]:
        """The same for all."""
        return np.tile(self._row, (len(states), 1)), states


class OnnxDuelist:
    """An ONNX file as `palus.export.appo_onnx` writes it, named by the user, run in this process.

    Raises ModelError when it cannot be read or was made for another game.
    """

    def __init__(self, path: Path, spec: GameSpec, name: str | None = None) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from error
        self.name = name or path.stem
        self.sha256: str | None = hashlib.sha256(data).hexdigest()
        try:
            parse_model(data, LOCAL_RULES)
        except RefusedError as error:
            raise error.at(str(path)) from error
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own exceptions have no common base
            raise ModelError(f"{path}: onnxruntime cannot run it ({str(error).splitlines()[0][:200]})") from error
        self.state_size = _check(self._session, spec, path)
        self._outputs = [PROBABILITIES, STATE_OUTPUT][: 2 if self.state_size else 1]

    def answer(self, observations: Mapping[str, AnyArray], states: F32) -> tuple[F32, F32]:
        """As the file computes them."""
        feed = dict(observations)
        if self.state_size:
            feed[STATE_INPUT] = states
        found = self._session.run(self._outputs, feed)
        return found[0], found[1] if self.state_size else states


def load_duelist(word: str, spec: GameSpec) -> Duelist:
    """What a word on the command line means: `random`, an `.onnx` file, or a run's folder with `<Behavior>.onnx`.

    Raises ModelError when there is no such player.
    """
    if word == "random":
        return RandomDuelist(spec)
    path = Path(word)
    if path.is_dir():
        models = sorted(path.glob("*.onnx"))
        if len(models) != 1:
            raise ModelError(f"{path}: holds {len(models)} .onnx files; expected one, or name the file itself")
        return OnnxDuelist(models[0], spec, path.resolve().name)
    if path.suffix != ".onnx" or not path.is_file():
        raise ModelError(f"{word}: no such player; give an .onnx file, a run's folder that holds one, or random")
    return OnnxDuelist(path, spec)


def find_duelists(folder: Path, spec: GameSpec) -> tuple[list[Duelist], list[str]]:
    """Players of a folder: its `.onnx` files and those of its direct subfolders, and why others cannot be played.

    Raises ModelError when the folder does not exist.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder; give one that holds .onnx files or runs")
    words = [*folder.glob("*.onnx"), *(p for p in folder.iterdir() if p.is_dir() and any(p.glob("*.onnx")))]
    players: dict[str, Duelist] = {}
    rejected = []
    for word in sorted(words):
        try:
            player = load_duelist(str(word), spec)
        except ModelError as error:
            rejected.append(str(error))
        else:
            players.setdefault(player.name, player)
    return list(players.values()), rejected


def choices_of(actions: ActionSpec) -> tuple[int, ...]:
    """Choices of every part. Raises ModelError where a part is continuous: nothing could be drawn from it here."""
    sizes = tuple(part.choices for part in actions.parts if isinstance(part, Discrete))
    if len(sizes) != len(actions.parts):
        raise ModelError("games with continuous actions are not played in the arena; choose one with discrete actions")
    return sizes


def _check(session: Any, spec: GameSpec, path: Path) -> int:
    """The size of the state of a model that fits the game. Raises ModelError."""
    inputs = {i.name: (list(i.shape[1:]), i.type) for i in session.get_inputs()}
    outputs = {o.name: list(o.shape[1:]) for o in session.get_outputs()}
    state_shape, _ = inputs.pop(STATE_INPUT, ([0], ""))
    wanted = {o.name: (list(o.shape), _TYPES[o.dtype]) for o in spec.observations}
    width = sum(choices_of(spec.actions))
    size = state_shape[0] if len(state_shape) == 1 and isinstance(state_shape[0], int) else -1
    fits = inputs == wanted and outputs.get(PROBABILITIES) == [width] and 0 <= size <= _MAX_STATE
    if not fits or (size > 0 and outputs.get(STATE_OUTPUT) != [size]):
        seen = ", ".join(
            f"{n} {math.prod(d) if all(isinstance(x, int) for x in d) else d}" for n, (d, _) in inputs.items()
        )
        raise ModelError(
            f"{path}: takes {seen or 'nothing'} and gives {outputs}; {spec.env_id} needs the inputs "
            f"{', '.join(f'{n} {s}' for n, (s, _) in wanted.items())} and the output {PROBABILITIES} [{width}]. "
            "Export it with palus from a run of this game"
        )
    return size
