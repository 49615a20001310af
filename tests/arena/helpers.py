"""Small policies for arena tests: ONNX graphs written by hand, and players that always do the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from palus import envs
from palus.arena.models.players import ModelPlayer
from palus.arena.referee.games import GAMES, layout_of
from palus.envs.arena_game import ArenaGame
from palus.trust import Trust
from palus.types import BehaviorSpec

LAYOUT = layout_of("SoccerTwos")
SOCCER = BehaviorSpec.of_vectors("SoccerTwos", (264, 72), (3, 3, 3))
MODELS = Path(__file__).parents[3] / "shared" / "models" / "soccertwos"

needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason="the Unity-trained policies of ../shared are not here")


def add_game(monkeypatch: pytest.MonkeyPatch, game: ArenaGame, make: Callable[..., Any]) -> None:
    """Give palus's table a row more, and an arena the game. make: its factory."""
    monkeypatch.setattr(sys.modules[__name__], f"make_{game.env}", make, raising=False)
    monkeypatch.setitem(envs.BUILT_IN, game.env, envs.BuiltIn(f"{__name__}:make_{game.env}"))
    monkeypatch.setattr(envs, "_OURS", Trust(frozenset({"palus", __name__, make.__module__.partition(".")[0]})))
    monkeypatch.setitem(GAMES, game.env, game)  # type: ignore[arg-type]


class Constant:
    """Answers the same nine probabilities to everything."""

    sha256 = None
    state_size = 0

    def __init__(self, name: str, row: list[float]) -> None:
        self.name = name
        self.row = np.array(row, np.float32)

    def answer(self, observations: object, states: np.ndarray, masks: object = None) -> tuple[np.ndarray, np.ndarray]:
        return np.tile(self.row, (len(states), 1)), states


def probabilities(player: ModelPlayer, seen: np.ndarray) -> np.ndarray:
    """What a player without memory answers. seen: [rows, 336], both vectors side by side."""
    observations = {"obs_0": np.ascontiguousarray(seen[:, :264]), "obs_1": np.ascontiguousarray(seen[:, 264:])}
    return player.answer(observations, np.zeros((len(seen), 0), np.float32))[0]


def idle(name: str = "idle") -> Constant:
    return Constant(name, [1, 0, 0] * 3)


def reader_policy(name: str = "reader") -> Constant:
    """Prefers going forward; strong enough to beat one that stands still."""
    return Constant(name, [0.1, 0.8, 0.1, 0.8, 0.1, 0.1, 0.4, 0.3, 0.3])


def graph(
    *,
    inputs: dict[str, int] | None = None,
    branch_order: tuple[int, ...] = (0, 1, 2),
    output: str = "sampled",
    logits: np.ndarray | None = None,
    weight: float = 0.0,
) -> onnx.ModelProto:
    """A graph in ML-Agents' manner: logits = bias + weight * sum of the observations.

    branch_order: order in which the branches' nodes stand in the file. output: "sampled", "logp" or "probabilities".
    """
    inputs = {"obs_0": 264, "obs_1": 72, "action_masks": 9} if inputs is None else inputs
    biases = np.log(np.arange(1, 10, dtype=np.float32)).reshape(3, 3) if logits is None else logits
    observations = [name for name in inputs if name != "action_masks"]
    width = sum(inputs[name] for name in observations)
    nodes = [helper.make_node("Concat", observations, ["x"], axis=1)]
    weights = [numpy_helper.from_array(np.full((3, width), weight, np.float32), "weight")]
    for b in branch_order:
        weights.append(numpy_helper.from_array(biases[b].astype(np.float32), f"bias{b}"))
        nodes += [
            helper.make_node("Slice", ["action_masks"], [f"mask{b}"], axes=[1], starts=[3 * b], ends=[3 * b + 3]),
            helper.make_node("Gemm", ["x", "weight", f"bias{b}"], [f"logits{b}"], transB=1),
            helper.make_node("Mul", [f"logits{b}", f"mask{b}"], [f"masked{b}"]),
            helper.make_node("Softmax", [f"masked{b}"], [f"p{b}"], axis=1),
            helper.make_node("Log", [f"p{b}"], [f"log{b}"]),
            helper.make_node("Multinomial", [f"log{b}"], [f"drawn{b}"], dtype=TensorProto.INT64, sample_size=1),
        ]
    kind, size, name = TensorProto.INT64, 3, "discrete_actions"
    parts = {"sampled": "drawn", "logp": "log", "probabilities": "p"}[output]
    if output != "sampled":
        kind, size = TensorProto.FLOAT, 9
    if output == "probabilities":
        name = "action_probabilities"
    nodes.append(helper.make_node("Concat", [f"{parts}{b}" for b in range(3)], [name], axis=1))
    made = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", s]) for n, s in inputs.items()],
        [helper.make_tensor_value_info(name, kind, ["batch", size])],
        weights,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
