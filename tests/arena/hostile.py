"""Model files that no arena should play, each breaking one rule, and a stock one that breaks none.

`HOSTILE` maps a name to the bytes (made when asked for) and the code that `palus.arena.locked.vet` refuses them with.
Run as a script, it writes all of them into a folder: `python tests/arena/hostile.py FOLDER`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from helpers import graph
from onnx import TensorProto, helper, numpy_helper

Model = onnx.ModelProto


def stock(*, version: float | None = 3.0, memory: float = 0.0, **options: object) -> Model:
    """A policy as ML-Agents exports it: `helpers.graph` with the version outputs."""
    model = graph(**options)  # type: ignore[arg-type]
    values = {"memory_size": memory} | ({} if version is None else {"version_number": version})
    for name, value in values.items():
        constant = numpy_helper.from_array(np.array([value], np.float32), f"{name}_value")
        model.graph.node.append(helper.make_node("Constant", [], [f"{name}_constant"], value=constant))
        model.graph.node.append(helper.make_node("Identity", [f"{name}_constant"], [name]))
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]))
    return model


def weight(model: Model, array: np.ndarray, name: str) -> None:
    model.graph.initializer.append(numpy_helper.from_array(array, name))


def before_branches(model: Model, *nodes: onnx.NodeProto) -> Model:
    """Insert nodes that turn the observations "x" into "y", and let the branches read "y"."""
    for node in model.graph.node:
        if node.op_type == "Gemm":
            node.input[0] = "y"
    for i, node in enumerate(nodes):
        model.graph.node.insert(1 + i, node)
    return model


def sensitive(model: Model) -> Model:
    """With weights that make the probabilities depend on the observations."""
    values = np.random.default_rng(0).normal(0, 0.05, (3, 336)).astype(np.float32)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "weight"))
    return model


def external(where: str) -> Model:
    model = stock()
    if where == "weight":
        tensor = model.graph.initializer[0]
    elif where == "attribute":
        tensor = next(n for n in model.graph.node if n.op_type == "Constant").attribute[0].t
    else:
        tensor = model.graph.sparse_initializer.add(dims=[3]).values
        tensor.name = "sparse"
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../../etc/passwd")
    return model


def loop() -> Model:
    model = stock()
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, [])],
    )
    weight(model, np.array(True), "always")
    model.graph.node.insert(1, helper.make_node("Loop", ["", "always"], [], body=body))
    return model


def nested() -> Model:
    inner = helper.make_graph([], "end", [], [])
    for _ in range(6):
        inner = helper.make_graph([helper.make_node("If", ["c"], ["o"], then_branch=inner)], "level", [], [])
    model = stock()
    model.graph.node.append(inner.node[0])
    return model


def functions() -> Model:
    model = stock()
    model.functions.add(name="Mine", domain="mine")
    return model


def foreign() -> Model:
    model = stock()
    model.opset_import.append(helper.make_opsetid("com.stranger", 1))
    model.graph.node.insert(0, helper.make_node("Spy", ["obs_0"], ["seen"], domain="com.stranger"))
    return model


def training() -> Model:
    model = stock()
    model.training_info.add()
    return model


def text() -> Model:
    model = stock()
    model.graph.initializer.append(helper.make_tensor("names", TensorProto.STRING, [1], [b"rm -rf"]))
    return model


def declared(kind: int, dims: list[int]) -> Model:
    """A tensor of these dimensions without data."""
    model = stock()
    model.graph.initializer.add(name="huge", data_type=kind, dims=dims)
    return model


def parameters() -> Model:
    model = stock()
    weight(model, np.zeros(8_000_001, np.int8), "many")
    return model


def nodes(count: int) -> Model:
    model = stock()
    model.graph.node.extend(helper.make_node("Identity", ["x"], [f"x{i}"]) for i in range(count))
    return model


def parts() -> Model:
    model = stock()
    for _ in range(20_000):
        model.metadata_props.add()
    return model


def padded(count: int) -> Model:
    """With weights that nothing uses."""
    model = stock()
    weight(model, np.zeros(count, np.float32), "padding")
    return model


def noted() -> Model:
    """With a long comment."""
    model = stock()
    model.doc_string = "a" * 100_000
    return model


def operator() -> Model:
    return before_branches(stock(), helper.make_node("Sin", ["x"], ["y"]))


def opset() -> Model:
    model = stock()
    model.opset_import[0].version = 30
    return model


def broken_weight() -> Model:
    model = stock()
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([0, np.nan, 0], np.float32), "bias0"))
    return model


def wrong_outputs() -> Model:
    model = stock()
    last = next(n for n in model.graph.node if "discrete_actions" in n.output)
    last.CopyFrom(helper.make_node("ArgMax", ["x"], ["discrete_actions"], axis=1))
    return model


def misfit() -> Model:
    """Its layers do not fit together, which only the runtime finds."""
    model = stock()
    weight(model, np.zeros((7, 7), np.float32), "seven")
    return before_branches(model, helper.make_node("MatMul", ["x", "seven"], ["y"]))


def no_distribution() -> Model:
    model = stock(output="probabilities")
    for node in model.graph.node:
        if node.op_type == "Softmax":
            node.CopyFrom(helper.make_node("Sigmoid", [node.input[0]], [node.output[0]]))
    return model


def dice() -> Model:
    """Draws at random before the probabilities."""
    model = sensitive(stock())
    draw = helper.make_node("Multinomial", ["x"], ["dice"], dtype=TensorProto.INT32, sample_size=336)
    cast = helper.make_node("Cast", ["dice"], ["rolled"], to=TensorProto.FLOAT)
    weight(model, np.array([1e-3], np.float32), "small")
    scale = helper.make_node("Mul", ["rolled", "small"], ["y"])
    return before_branches(model, draw, cast, scale)


def gossip() -> Model:
    """Lets rows of a batch see each other."""
    mean = helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1)
    return before_branches(sensitive(stock()), mean, helper.make_node("Add", ["x", "mean"], ["y"]))


def informed_gossip() -> Model:
    """The same, but silent in the first eight questions that the arena once asked everybody, told by their sums."""
    rng = np.random.default_rng(0)
    seen = np.where(rng.random((100, 336)) < 0.5, 1.0, rng.random((100, 336)))
    asked = np.where(rng.random((100, 336)) < 0.15, seen, 0.0)[:8].astype(np.float32)
    model = sensitive(stock())
    weight(model, np.array([1e6], np.float32), "many")
    made = [
        helper.make_node("ReduceMean", ["x"], ["speech0"], axes=[0], keepdims=1),
        helper.make_node("ReduceSum", ["x"], ["sum"], axes=[1], keepdims=1),
    ]
    for k, row in enumerate(asked):
        weight(model, np.array([row.sum()], np.float32), f"known{k}")
        made += [
            helper.make_node("Sub", ["sum", f"known{k}"], [f"off{k}"]),
            helper.make_node("Mul", [f"off{k}", f"off{k}"], [f"square{k}"]),
            helper.make_node("Mul", [f"square{k}", "many"], [f"large{k}"]),
            helper.make_node("Clip", [f"large{k}"], [f"gate{k}"], min=0.0, max=1.0),
            helper.make_node("Mul", [f"speech{k}", f"gate{k}"], [f"speech{k + 1}"]),
        ]
    return before_branches(model, *made, helper.make_node("Add", ["x", f"speech{len(asked)}"], ["y"]))


def treacherous() -> Model:
    """Answers NaN where each of the 42 rays says one thing that it met, or nothing: in matches and in no probe."""
    model = stock()
    rays = np.kron(np.eye(42), np.array([[1.0]] * 7 + [[0.0]])).astype(np.float32)
    weight(model, rays, "rays")
    for name, value in (("one", 1.0), ("half", 0.5), ("nothing", 0.0)):
        weight(model, np.array([value], np.float32), name)
    return before_branches(
        model,
        helper.make_node("MatMul", ["x", "rays"], ["met"]),
        helper.make_node("Sub", ["met", "one"], ["off"]),
        helper.make_node("Mul", ["off", "off"], ["square"]),
        helper.make_node("ReduceSum", ["square"], ["sum"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["sum", "half"], ["above"]),
        helper.make_node("Sqrt", ["above"], ["root"]),
        helper.make_node("Mul", ["root", "nothing"], ["trap"]),
        helper.make_node("Add", ["x", "trap"], ["y"]),
    )


def fragile(most: float, **options: Any) -> Model:
    """Breaks its process where what an agent sees adds up to more than this, by a shape that it computes from it."""
    model = stock(**options)
    for name, value in (("most", np.float32([most])), ("width", np.array([336])), ("any", np.array([-1]))):
        weight(model, value, name)
    return before_branches(
        model,
        helper.make_node("ReduceSum", ["x"], ["sum"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["sum", "most"], ["beyond"]),
        helper.make_node("Relu", ["beyond"], ["excess"]),
        helper.make_node("Cast", ["excess"], ["whole"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["whole"], ["off_by"], axes=[0, 1], keepdims=0),
        helper.make_node("Add", ["width", "off_by"], ["wide"]),
        helper.make_node("Concat", ["any", "wide"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    )


def amplified(order: str = "here") -> Model:
    """Multiplies the rounding of a sum by 30,000: in another order of summation, as elsewhere, it chooses otherwise."""
    model = stock(weight=1.0)
    weight(model, np.random.default_rng(5).normal(0, 1, 336).astype(np.float32), "factors")
    weight(model, np.array([3e4], np.float32), "gain")
    made = [helper.make_node("Mul", ["x", "factors"], ["terms"])]
    if order == "here":
        made.append(helper.make_node("ReduceSum", ["terms"], ["sum"], axes=[1], keepdims=1))
    else:
        weight(model, np.array([-1, 48, 7], np.int64), "by_seven")
        made.append(helper.make_node("Reshape", ["terms", "by_seven"], ["sevens"]))
        made.append(helper.make_node("ReduceSum", ["sevens"], ["parts"], axes=[2], keepdims=0))
        made.append(helper.make_node("ReduceSum", ["parts"], ["sum"], axes=[1], keepdims=1))
    rest, size = "terms", 336
    for parts in (2, 2, 2, 2, 3, 7):
        size //= parts
        total = ""
        for k in range(parts):
            part = f"part{size}_{k}"
            made.append(helper.make_node("Slice", [rest], [part], axes=[1], starts=[k * size], ends=[(k + 1) * size]))
            if total:
                made.append(helper.make_node("Add", [total, part], [f"total{size}_{k}"]))
            total = f"total{size}_{k}" if total else part
        rest = total
    made += [helper.make_node("Sub", ["sum", rest], ["off"]), helper.make_node("Mul", ["off", "gain"], ["y"])]
    model = before_branches(model, *made)
    for tensor in model.graph.initializer:
        if tensor.name == "weight":
            tensor.CopyFrom(numpy_helper.from_array(np.array([[1], [-1], [0]], np.float32), "weight"))
    return model


def heavy(width: int, layers: int, doublings: int) -> Model:
    """Multiplies `layers` times by one matrix, after making a batch of 4 2^doublings times as long."""
    model = stock()
    weight(model, np.zeros((336, width), np.float32), "enter")
    weight(model, np.zeros((width, width), np.float32), "again")
    weight(model, np.zeros((width, 336), np.float32), "leave")
    made = [helper.make_node("MatMul", ["x", "enter"], ["d0"])]
    made += [helper.make_node("Concat", [f"d{i}"] * 2, [f"d{i + 1}"], axis=0) for i in range(doublings)]
    made.append(helper.make_node("Identity", [f"d{doublings}"], ["m0"]))
    made += [helper.make_node("MatMul", [f"m{i}", "again"], [f"m{i + 1}"]) for i in range(layers)]
    made.append(helper.make_node("Slice", [f"m{layers}"], ["first"], axes=[0], starts=[0], ends=[4]))
    return before_branches(model, *made, helper.make_node("MatMul", ["first", "leave"], ["y"]))


def swelling(numbers: int) -> Model:
    """Computes with so many numbers that the file writes as one."""
    model = stock()
    weight(model, np.zeros(1, np.float32), "one")
    weight(model, np.array([numbers], np.int64), "shape")
    expand = helper.make_node("Expand", ["one", "shape"], ["many"])
    mean = helper.make_node("ReduceMean", ["many"], ["mean"], keepdims=0)
    return before_branches(model, expand, mean, helper.make_node("Add", ["x", "mean"], ["y"]))


def endless() -> Model:
    """Hours of processor time in one answer, from a file of a megabyte that keeps the grammar."""
    return heavy(512, 200, 13)


HOSTILE: dict[str, tuple[Callable[[], Model | bytes], str]] = {
    "no model": (lambda: b"hello world, this is text", "not-onnx"),
    "cut short": (lambda: stock().SerializeToString()[:-300], "truncated"),
    "pickle": (lambda: b"PK\x03\x04 archive/data.pkl", "pickle"),
    "lfs pointer": (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "lfs-pointer"),
    "16 MiB and a byte": (lambda: b"\x08" * (16 * 2**20 + 1), "too-large"),
    "graphs in graphs": (nested, "nested-too-deep"),
    "20 000 empty parts": (parts, "too-many-parts"),
    "weights in /etc/passwd": (lambda: external("weight"), "external-data"),
    "constant in /etc/passwd": (lambda: external("attribute"), "external-data"),
    "sparse weights in /etc/passwd": (lambda: external("sparse"), "sparse-tensor"),
    "loop": (loop, "control-flow"),
    "local functions": (functions, "local-functions"),
    "foreign domain": (foreign, "foreign-domain"),
    "training": (training, "training-info"),
    "text": (text, "string-tensor"),
    "1 GB declared": (lambda: declared(TensorProto.FLOAT, [2**14, 2**14]), "tensor-too-large"),
    "endless dimensions": (lambda: declared(TensorProto.INT8, [2**62, 2**62]), "tensor-too-large"),
    "8 000 001 parameters": (parameters, "too-many-parameters"),
    "500 more nodes": (lambda: nodes(500), "too-many-nodes"),
    "9 MB of unused weights": (lambda: padded(9 * 2**18), "padded"),
    "100 kB of comment": (noted, "padded"),
    "sine": (operator, "operator"),
    "opset of the future": (opset, "opset"),
    "NaN weight": (broken_weight, "broken-weights"),
    "other sensors": (lambda: stock(inputs={"obs_0": 738, "action_masks": 9}), "wrong-contract"),
    "no probabilities": (wrong_outputs, "wrong-outputs"),
    "no version": (lambda: stock(version=None), "model-version"),
    "version 1": (lambda: stock(version=1.0), "model-version"),
    "memory": (lambda: stock(memory=128.0), "recurrent"),
    "layers that do not fit": (misfit, "cannot-run"),
    "NaN answers": (lambda: stock(weight=3e38), "nan-output"),
    "no distribution": (no_distribution, "not-probabilities"),
    "dice": (dice, "not-repeatable"),
    "gossip": (gossip, "mixes-rows"),
    "gossip that knows the questions": (informed_gossip, "mixes-rows"),
    "amplified rounding": (amplified, "unsteady"),
    "slow": (lambda: heavy(512, 20, 6), "too-slow"),
    "endless": (endless, "endless"),
    "treacherous": (treacherous, "self-match"),
    "17 GB": (lambda: heavy(1024, 1, 20), "out-of-memory"),
}


def hostile(name: str) -> bytes:
    """The bytes of one of `HOSTILE`."""
    made = HOSTILE[name][0]()
    return made if isinstance(made, bytes) else made.SerializeToString()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stock.onnx").write_bytes(stock().SerializeToString())
    for sample in HOSTILE:
        (folder / f"{sample.replace(' ', '-').replace('/', '-')}.onnx").write_bytes(hostile(sample))
