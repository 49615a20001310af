"""Whether Unity can load a model: what its inference engine and ML-Agents' package look for in a file.

No list of the engine's own is taken on trust: a file has to be made of what ML-Agents 1.1.0 exports, operator by
operator. Source: such exports, and the checks of models in ML-Agents' Unity package.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from palus.nn.graph import MODEL_VERSION, OPSET, STATE_INPUT, STATE_OUTPUT
from palus.types import MASKS

OPERATORS = frozenset({
    "Add", "ArgMax", "Cast", "Clip", "Concat", "Constant", "Conv", "Div", "Exp", "Gemm", "Identity", "LSTM",
    "LeakyRelu", "Less", "Log", "MatMul", "MaxPool", "Mul", "Multinomial", "Pow", "RandomNormalLike", "ReduceMean",
    "ReduceSum", "Relu", "Reshape", "Sigmoid", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub", "Tanh", "Transpose",
    "Unsqueeze",
})  # fmt: skip
"""All that ML-Agents' own files are made of."""
OLD_VERSION = 2.0


def unity_gaps(model: bytes) -> tuple[str, ...]:
    """What a file has, or lacks, that Unity cannot load it for, a clause each; () where it can."""
    try:
        return tuple(_gaps(onnx.load_model_from_string(model)))
    except DecodeError:
        return ("it is no ONNX model",)


def _gaps(model: onnx.ModelProto) -> Iterator[str]:
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset != OPSET:
        yield f"it has opset {opset}, ML-Agents' files {OPSET}"
    strange = sorted({node.op_type for node in model.graph.node} - OPERATORS)
    if strange:
        yield f"it computes with {', '.join(strange)}, which ML-Agents' files do not"
    outputs = {o.name for o in model.graph.output}
    inputs = {i.name: i.type.tensor_type for i in model.graph.input}
    inputs = {name: kind for name, kind in inputs.items() if name not in {c.name for c in model.graph.initializer}}
    version = _number(model, "version_number") if "version_number" in outputs else None
    if version == OLD_VERSION and STATE_INPUT not in inputs:
        return  # of ML-Agents 1.0 to 1.9: other names, which the package knows
    known = {f"obs_{i}" for i in range(len(inputs))} | {MASKS, STATE_INPUT}
    others = [name for name in inputs if name not in known]
    if others:
        yield f"it reads {', '.join(others)}; Unity gives obs_0, obs_1, ..., {MASKS} and {STATE_INPUT}"
    bytes_in = [name for name, kind in inputs.items() if kind.elem_type != TensorProto.FLOAT]
    if bytes_in:
        yield f"it reads {', '.join(bytes_in)} in another type than float32"
    if STATE_INPUT in inputs and len(inputs[STATE_INPUT].shape.dim) != 3:
        yield f"its {STATE_INPUT} is not [batch, 1, size]"
    discrete, continuous = "discrete_actions" in outputs, "continuous_actions" in outputs
    wanted = ["version_number", "memory_size", *([STATE_OUTPUT] if STATE_INPUT in inputs else [])]
    for kind, there in (("continuous", continuous), ("discrete", discrete)):
        wanted += [f"{kind}_action_output_shape"] if there else []
    missing = [name for name in wanted if name not in outputs]
    if missing:
        yield f"it does not answer {', '.join(missing)}"
    if not (discrete or continuous):
        yield "it answers no discrete_actions and no continuous_actions"
    if discrete and MASKS not in inputs:
        yield f"it takes no {MASKS}"
    if version not in (None, MODEL_VERSION):
        yield f"its version_number is {version:g}, not {MODEL_VERSION:g}"


def _number(model: onnx.ModelProto, output: str) -> float | None:
    """The value of an output that is a constant, None where it is computed."""
    values = {c.name: c for c in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute:
            values[node.output[0]] = node.attribute[0].t
        if output in node.output and node.op_type == "Identity":
            output = node.input[0]
    found = onnx.numpy_helper.to_array(values[output]).ravel() if output in values else None
    return float(found[0]) if found is not None and found.size else None
