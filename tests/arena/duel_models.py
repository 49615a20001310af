"""A small game for two with pictures, and models of agents for it, for tests of duels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from palus.envs.game import GameStep, points_of
from palus.errors import EnvError
from palus.nn.graph import Graph
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec

LENGTH = 6
STATE = 3
SPEC = GameSpec.alike(
    "shooting",
    (ObservationSpec("obs", (3, 12, 16), "uint8"), ObservationSpec("measurements", (2,))),
    ActionSpec((Discrete(2), Discrete(3))),
    2,
    frameskip=2,
    fps=35,
)


class Shooting:
    """Two agents; every choice of 1 is a frag. Fails at the decision `fails_at`."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.spec, self.active = SPEC, np.ones(2, np.bool_)
        self.fails_at, self.closed = fails_at, False

    def reset(self, seed: int) -> None:
        self.decision, self.frags = 0, np.zeros(2)

    def observe(self, out: Mapping[str, Any]) -> None:
        out["obs"][:] = 40 * self.decision
        out["measurements"][:] = [[0, self.decision], [1, self.decision]]

    def observe_final(self, out: Mapping[str, Any]) -> None:
        self.observe(out)

    def step(self, actions: Any) -> GameStep:
        if self.decision == self.fails_at:
            raise EnvError("the engine is lost")
        self.decision += 1
        self.frags += actions[:, 0]
        over = np.full(2, self.decision == LENGTH)
        stats = {i: {"frags": float(self.frags[i])} for i in range(2)} if over.all() else {}
        return GameStep(
            np.zeros(2, np.float32),
            over,
            np.zeros(2, np.bool_),
            bool(over.all()),
            stats,
            points_of(self.frags.tolist()),
        )

    def render(self) -> Any:
        return np.full((12, 32, 3), 30 * self.decision, np.uint8)

    def close(self) -> None:
        self.closed = True


def model(
    *,
    eagerness: float = 0.0,
    shape: tuple[int, ...] = (3, 12, 16),
    memory: bool = True,
    nan_from: float | None = None,
    state_out: int = STATE,
) -> bytes:
    """Shoots the more eagerly the larger `eagerness` is; remembers how often it was asked.

    shape: of the picture that it takes. nan_from: it answers NaN once it was asked so often. state_out: size of the
    memory that it gives back.
    """
    g = Graph()
    picture = g.add("Cast", ["obs"], "picture", to=TensorProto.FLOAT)
    filters = g.constant("filters", np.full((1, shape[0], 3, 3), 1e-5, np.float32))
    seen = g.add("Flatten", [g.add("Elu", [g.add("Conv", [picture, filters], "conv")], "active")], "flat", axis=1)
    bright = g.add("ReduceMean", [seen], "bright", axes=[1], keepdims=1)
    nothing = g.add("Mul", [bright, g.constant("zero", np.zeros((1, 1), np.float32))], "nothing")
    if memory:
        asked = g.add("Add", ["recurrent_in", g.constant("one", np.ones((1, STATE), np.float32))], "asked")
        g.add("Slice", [asked], "recurrent_out", axes=[1], starts=[0], ends=[state_out])
    if nan_from is not None:  # the root of what is negative from then on
        asked_before = g.add("Slice", ["recurrent_in"], "asked_before", axes=[1], starts=[0], ends=[1])
        limit = g.constant("limit", np.array([[nan_from]], np.float32))
        root = g.add("Sqrt", [g.add("Sub", [limit, asked_before], "left")], "root")
        nothing = g.add("Sub", [g.add("Add", [nothing, root], "plus"), root], "sick")
    heads = []
    for k, logits in enumerate(([0.0, eagerness], [0.0, 0.0, 0.0])):
        sums = g.add("Add", [nothing, g.constant(f"logits{k}", np.array([logits], np.float32))], f"sums{k}")
        heads.append(g.add("Softmax", [sums], f"p{k}", axis=1))
    g.add("Concat", heads, "action_probabilities", axis=1)
    floats = TensorProto.FLOAT
    inputs = [
        helper.make_tensor_value_info("obs", TensorProto.UINT8, ["batch", *shape]),
        helper.make_tensor_value_info("measurements", floats, ["batch", 2]),
    ]
    outputs = [helper.make_tensor_value_info("action_probabilities", floats, ["batch", 5])]
    if memory:
        inputs.append(helper.make_tensor_value_info("recurrent_in", floats, ["batch", STATE]))
        outputs.append(helper.make_tensor_value_info("recurrent_out", floats, ["batch", state_out]))
    graph = helper.make_graph(g.nodes, "agent", inputs, outputs, g.constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    onnx.checker.check_model(made)
    data: bytes = made.SerializeToString()
    return data
