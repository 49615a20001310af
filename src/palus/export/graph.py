"""Collecting the nodes and constants of an ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from palus.types import AnyArray


class Graph:
    """Collects nodes and constants; every method returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: AnyArray) -> str:
        """A tensor stored in the file."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """A node with one output, which carries the node's name too."""
        self.add_all(op, inputs, [output], **attributes)
        return output

    def add_all(self, op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        """A node with several outputs, "" for those that nobody wants; its name is the last one's."""
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[-1], **attributes))
