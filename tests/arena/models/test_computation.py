"""What a model computes: files that differ in how it is written down only have one hash, others have their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from helpers import SOCCER
from hostile import Model, sensitive, stock
from onnx import TensorProto, helper, numpy_helper

from palus.arena.models.computation import computation_of
from palus.arena.models.policy_graph import read_policy


def computation(model: Model) -> str:
    return computation_of(read_policy(model.SerializeToString(), "", SOCCER).model)


def base() -> Model:
    return sensitive(stock())


def metadata(model: Model) -> None:
    model.producer_name, model.doc_string, model.graph.doc_string = "me", "mine", "mine"
    model.metadata_props.add(key="by", value="me")
    model.model_version, model.ir_version = 7, 6
    model.opset_import[0].version = 8


def names(model: Model) -> None:
    """Of all values inside, nodes and the graph itself."""
    outside = {value.name for value in (*model.graph.input, *model.graph.output)}
    model.graph.name = "other"
    for tensor in model.graph.initializer:
        tensor.name = f"my_{tensor.name}"
    for node in model.graph.node:
        node.name = f"my_{node.output[0]}"
        for values in (node.input, node.output):
            values[:] = [name if name in outside or not name else f"my_{name}" for name in values]


def order(model: Model) -> None:
    tensors, nodes = list(model.graph.initializer)[::-1], list(model.graph.node)
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(tensors)
    first, rest = nodes[0], nodes[1:]
    model.graph.node.extend([*(n for n in rest if n.op_type == "Constant"), first])
    model.graph.node.extend(n for n in rest if n.op_type != "Constant")


def storage(model: Model) -> None:
    """Numbers one by one where there were bytes, and a constant where there was a weight."""
    weights = list(model.graph.initializer)
    del model.graph.initializer[:]
    for place, tensor in enumerate(weights):
        array = numpy_helper.to_array(tensor)
        if place == 0:
            kept = helper.make_tensor(tensor.name, tensor.data_type, array.shape, array.ravel().tolist())
            model.graph.initializer.append(kept)
        else:
            model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))


def detours(model: Model) -> None:
    """Identity, an unused node, an unused weight, and a default said aloud."""
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
    gemm.attribute.append(helper.make_attribute("alpha", 1.0))
    model.graph.node.insert(1, helper.make_node("Identity", ["x"], ["y"]))
    model.graph.node.insert(1, helper.make_node("Relu", ["x"], ["unused"]))
    gemm.input[0] = "y"
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "spare"))


@pytest.mark.parametrize("rewrite", [metadata, names, order, storage, detours])
def test_how_it_is_written_down_does_not_count(rewrite: Callable[[Model], None]) -> None:
    model = base()
    rewrite(model)
    onnx.checker.check_model(model)
    assert model.SerializeToString() != base().SerializeToString()
    assert computation(model) == computation(base())


def weights(model: Model) -> None:
    array = numpy_helper.to_array(model.graph.initializer[0]).copy()
    array[0, 0] = np.nextafter(array[0, 0], np.float32(1))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(array, "weight"))


def attribute(model: Model) -> None:
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
    gemm.attribute.append(helper.make_attribute("alpha", 1.5))


def branches(model: Model) -> None:
    """Two branches change places."""
    last = next(node for node in model.graph.node if "discrete_actions" in node.output)
    last.input[0], last.input[1] = last.input[1], last.input[0]


def shares(opset: int, *axes: int) -> str:
    """Of a Softmax over a table of those axes."""
    given, told = (helper.make_tensor_value_info(name, 1, ["batch", 9]) for name in ("x", "y"))
    shapes = {"as_table": np.array([-1, *axes], np.int64), "as_row": np.array([-1, 9], np.int64)}
    nodes = [
        helper.make_node("Reshape", ["x", "as_table"], ["table"]),
        helper.make_node("Softmax", ["table"], ["shares"]),
        helper.make_node("Reshape", ["shares", "as_row"], ["y"]),
    ]
    stored = [numpy_helper.from_array(shape, name) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "shares", [given], [told], stored)
    return computation_of(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7).SerializeToString()
    )


def test_a_softmax_over_other_axes_is_another() -> None:
    assert shares(9, 3, 3) == shares(12, 3, 3) != shares(13, 3, 3) == shares(15, 3, 3)
    assert shares(9, 9) == shares(13, 9)


@pytest.mark.parametrize("change", [weights, attribute, branches])
def test_what_it_computes_does(change: Callable[[Model], None]) -> None:
    model = base()
    change(model)
    assert computation(model) != computation(base())


def test_nodes_that_leave_outputs_out_may_stand_in_any_order() -> None:
    weights = {"w": np.ones((1, 6, 3), np.float32), "r": np.ones((1, 6, 2), np.float32), "s": np.zeros((1, 1, 2))}
    stored = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    wholes = [
        helper.make_node("GRU", ["x", "w", "r", "", "", "s"], ["", name], hidden_size=2, linear_before_reset=before)
        for name, before in (("a", 0), ("b", 1))
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 3])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [2, 1, 2])
    hashes = set()
    for nodes in (wholes, wholes[::-1]):
        joined = [*nodes, helper.make_node("Concat", ["a", "b"], ["out"], axis=0)]
        model = helper.make_model(helper.make_graph(joined, "two", [given], [out], stored), ir_version=7)
        model.opset_import[0].version = 12
        onnx.checker.check_model(model)
        hashes.add(computation_of(model.SerializeToString()))
    assert len(hashes) == 1
