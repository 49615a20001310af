"""The grammar of a policy file: what it may consist of, checked before anything in it is run.

Dense plain tensors inside the file, standard operators, one straight graph. What the graph must take and give is in
`palus.arena.models.policy_graph`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, checker, numpy_helper

from palus.arena.models.refusal import RefusedError
from palus.arena.models.rules import Rules
from palus.arena.models.wire import check_wire

DEFAULT_DOMAINS = ("", "ai.onnx")
_FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_LEAST_BYTES = {TensorProto.FLOAT: 4.0, TensorProto.DOUBLE: 8.0, TensorProto.FLOAT16: 2.0}
_LEAST_BYTES_OF_OTHERS = 0.5
_PADDING, _PADDING_BYTES = 1.25, 64 << 10
_EXPORT = "Export a plain policy with ML-Agents or palus."

# onnx is not typed; this name says what is meant.
ModelProto = Any


def parse_model(data: bytes, rules: Rules) -> ModelProto:
    """A model that keeps the rules. data: the file's bytes. Raises RefusedError for the first rule that it breaks."""
    check_size(data, rules)
    _check_wrapping(data)
    check_wire(data, rules)
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's errors come from a package that onnx brings along
        raise _corrupt(error) from error
    _check_structure(model, rules)
    _check_nodes(model, rules)
    _check_tensors(model, len(data), rules)
    try:
        checker.check_model(model)
    except (checker.ValidationError, ValueError, TypeError, RuntimeError) as error:
        raise _corrupt(error) from error
    return model


def tensors_of(model: ModelProto) -> Iterator[Any]:
    """Every dense tensor: weights, and constants in attributes of nodes."""
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def count_parameters(model: ModelProto) -> int:
    """Numbers in all tensors, as they are declared."""
    return sum(math.prod(tensor.dims) for tensor in tensors_of(model))


def check_padding(file_bytes: int, used_bytes: int) -> None:
    """Refuse a file of which much decides nothing: it travels to the workers and is read for every pair all the same.

    used_bytes: of the graph cut down to what its actions depend on.
    """
    if file_bytes > _PADDING * used_bytes + _PADDING_BYTES:
        raise RefusedError(
            "padded",
            f"Has {file_bytes} bytes, of which {used_bytes} decide its actions; the rest may be a quarter of those and "
            f"{_PADDING_BYTES >> 10} KiB.",
            "Export the policy alone, without unused weights and notes: ML-Agents and palus add some 2 KiB.",
        )


def check_size(data: bytes, rules: Rules) -> None:
    """Refuse what is too large to be looked at."""
    if len(data) > rules.max_bytes:
        raise RefusedError(
            "too-large",
            f"Has {len(data) / 2**20:.1f} MiB; policies of up to {rules.max_bytes // 2**20} MiB are played.",
            "Export a smaller network.",
        )


def _check_wrapping(data: bytes) -> None:
    """What can be told from the first bytes."""
    if data[:2] == b"PK":
        raise RefusedError(
            "pickle", "This is a PyTorch checkpoint or a zip archive, not ONNX.", "Export it to .onnx first."
        )
    if data.startswith(b"version https://git-lfs"):
        raise RefusedError(
            "lfs-pointer",
            "This is a Git LFS pointer, not the model itself.",
            "Run `git lfs pull` and try again with the file that it fetches.",
        )


def _check_structure(model: ModelProto, rules: Rules) -> None:
    """The model around its graph."""
    if model.functions:
        raise RefusedError("local-functions", "Brings operators of its own (local functions).", _EXPORT)
    if model.training_info:
        raise RefusedError("training-info", "Contains graphs for training.", "Export it for inference only.")
    domains = [o.domain for o in model.opset_import] + [n.domain for n in model.graph.node]
    foreign = sorted({d for d in domains if d not in DEFAULT_DOMAINS})
    if foreign:
        raise RefusedError(
            "foreign-domain",
            f"Uses operators outside the ONNX standard ({', '.join(foreign[:3])}).",
            "Export with standard operators only.",
        )
    first, last = rules.opsets
    for opset in model.opset_import:
        if not first <= opset.version <= last:
            raise RefusedError(
                "opset",
                f"Uses version {opset.version} of the ONNX operators; versions {first} to {last} are played.",
                "Export with opset_version 9, as ML-Agents does.",
            )
    if len(model.graph.node) > rules.max_nodes:
        raise RefusedError(
            "too-many-nodes",
            f"Has {len(model.graph.node)} nodes; up to {rules.max_nodes} are played.",
            "Export a smaller network: a policy of two hidden layers has about 50 nodes.",
        )


def _check_nodes(model: ModelProto, rules: Rules) -> None:
    for node in model.graph.node:
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise RefusedError(
                "control-flow",
                f"Contains control flow ({node.op_type}).",
                "Policies must be straight graphs. " + _EXPORT,
            )
        if rules.operators is not None and node.op_type not in rules.operators:
            raise RefusedError(
                "operator",
                f"Uses the operator {node.op_type}, which is not among those played: "
                f"{', '.join(sorted(rules.operators))}.",
                "Build the network from these operators.",
            )


def _check_tensors(model: ModelProto, file_bytes: int, rules: Rules) -> None:
    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    if model.graph.sparse_initializer or any(a.HasField("sparse_tensor") or a.sparse_tensors for a in attributes):
        raise RefusedError("sparse-tensor", "Contains sparse tensors.", "Export with dense weights.")
    for tensor in tensors_of(model):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            raise RefusedError(
                "external-data",
                f"Keeps {_name(tensor)} outside the file.",
                "Save the model with all weights inside one file.",
            )
    for tensor in tensors_of(model):
        _check_tensor(tensor, file_bytes)
    parameters = count_parameters(model)
    if parameters > rules.max_parameters:
        raise RefusedError(
            "too-many-parameters",
            f"Has {parameters} parameters; up to {rules.max_parameters} are played.",
            "Train a smaller network.",
        )


def _check_tensor(tensor: Any, file_bytes: int) -> None:
    if tensor.data_type == TensorProto.STRING or tensor.string_data:
        raise RefusedError("string-tensor", f"Holds text in {_name(tensor)}.", "Policies are numbers only. " + _EXPORT)
    elements = math.prod(tensor.dims)
    if (
        min(tensor.dims, default=0) < 0
        or elements * _LEAST_BYTES.get(tensor.data_type, _LEAST_BYTES_OF_OTHERS) > file_bytes
    ):
        raise RefusedError(
            "tensor-too-large",
            f"Declares {list(tensor.dims)} numbers for {_name(tensor)}, more than the file holds.",
            "Export or upload it again.",
        )
    if tensor.data_type in _FLOAT_TYPES:
        try:
            values = numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            raise _corrupt(error) from error
        if values.size and not np.isfinite([values.min(), values.max()]).all():  # NaN passes through min and max
            raise RefusedError(
                "broken-weights",
                f"Weight {_name(tensor)} holds NaN or infinity.",
                "The training run that wrote it broke: export an earlier checkpoint.",
            )


def _name(tensor: Any) -> str:
    return (tensor.name or "a constant")[:80]


def _corrupt(error: Exception) -> RefusedError:
    reason = (str(error).strip() or "it cannot be parsed").splitlines()[0][:200]
    return RefusedError(
        "not-onnx", f"Corrupt or not an ONNX model ({reason}).", "Give the .onnx file that ML-Agents or palus exports."
    )
