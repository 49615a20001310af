"""What a model computes, as one hash: the same for files that differ in nothing but how it is written down.

Names, the order of nodes and weights, the way in which weights are stored, Identity nodes, attributes that say what
holds anyhow, comments, metadata, producer and version numbers do not count. What each value is computed from does: its
hash covers the operator, its attributes and the hashes of what goes in, down to the inputs of the model and the bytes
of its weights (a Merkle tree).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, defs, numpy_helper

NodeProto = Any  # onnx is not typed
_EITHER_WAY = ("Add", "Mul")
"""Operators whose inputs may change places."""
_ONE_AXIS = 13
"""From this version of the operators on Softmax goes along one axis; before, over all from that one on. Of two, where
policies have it, the last one is the same. No other operator that an arena plays has changed its meaning."""


def computation_of(data: bytes) -> str:
    """SHA-256 of what a checked graph computes. data: a `PolicyGraph.model` or a `RecurrentGraph.model`."""
    model = onnx.load_model_from_string(data)
    opset = max(opset.version for opset in model.opset_import)
    ranks = _ranks(model) if opset >= _ONE_AXIS else {}
    values = {"": "absent"} | {tensor.name: _tensor(tensor) for tensor in model.graph.initializer}
    values |= {given.name: _digest("input", given.name) for given in model.graph.input if given.name not in values}
    for node in model.graph.node:  # in topological order
        kind = node.op_type
        if kind == "Softmax" and opset >= _ONE_AXIS and ranks.get(node.output[0]) != 2:
            kind = "Softmax along one axis"
        outputs = zip(node.output, _outputs(node, kind, [values[name] for name in node.input], opset), strict=True)
        values |= {name: computed for name, computed in outputs if name}  # "" is an output that is left out
    return _digest("model", *(part for output in model.graph.output for part in (output.name, values[output.name])))


def _ranks(model: Any) -> dict[str, int]:
    """Number of axes of every value of which that can be told."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    told = (value for value in (*graph.value_info, *graph.output) if value.type.tensor_type.HasField("shape"))
    return {value.name: len(value.type.tensor_type.shape.dim) for value in told}


def _outputs(node: NodeProto, kind: str, inputs: Sequence[str], opset: int) -> list[str]:
    """The hash of each output of a node. kind: what its operator does."""
    if node.op_type == "Identity":
        return [inputs[0]]
    if node.op_type == "Constant" and [attribute.name for attribute in node.attribute] == ["value"]:
        return [_tensor(node.attribute[0].t)]
    defaults = defs.get_schema(node.op_type, opset).attributes
    attributes = {a.name: _value(a) for a in node.attribute}
    said = sorted(name for name, value in attributes.items() if value != _value(defaults[name].default_value))
    ordered = sorted(inputs) if node.op_type in _EITHER_WAY else inputs
    does = _digest(kind, *(part for name in said for part in (name, attributes[name])), "of", *ordered)
    return [_digest(does, str(place)) for place in range(len(node.output))]


def _value(attribute: Any) -> str:
    """An attribute's value as text; "" for none."""
    if not attribute.type:
        return ""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return _tensor(value)
    return repr(value if isinstance(value, (bytes, int, float)) else list(value))


def _tensor(tensor: Any) -> str:
    content = hashlib.sha256(numpy_helper.to_array(tensor).tobytes())
    return _digest("tensor", str(tensor.data_type), str(list(tensor.dims)), content.hexdigest())


def _digest(*parts: str) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(f"{len(part)}:{part}".encode())  # lengths, so that parts cannot run into each other
    return hashed.hexdigest()
