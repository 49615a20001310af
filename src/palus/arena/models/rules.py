"""How large and how free a model file may be, by one set of rules for the user's own files and one for strangers', and
what the process that holds a stranger's may use."""

from __future__ import annotations

from dataclasses import dataclass, replace

# What ML-Agents' and palus's exports consist of, then what exports of other tools for the same policies need.
_STOCK_OPERATORS = "Add ArgMax Clip Concat Constant Div Gemm Identity Log Mul Multinomial Sigmoid Slice Softmax Sub"
_OTHER_OPERATORS = "Cast Exp LeakyRelu MatMul ReduceMean ReduceSum Relu Reshape Sqrt Squeeze Tanh Transpose Unsqueeze"
# What palus's exports for games of pictures consist of besides.
_PICTURE_OPERATORS = "Conv Elu Flatten GRU LSTM MaxPool"


@dataclass(frozen=True)
class Rules:
    """What the grammar lets pass.

    max_bytes: of the file.   max_depth: of messages within messages.   max_messages: in all, so that a file of
    millions of empty ones is not parsed.   max_nodes, max_parameters: of the graph.
    operators: names that nodes may have; None for all of the ONNX standard.
    opsets: first and last version of the standard operators.
    needs_version: whether ML-Agents' `version_number` and `memory_size` must be there and say 2 or 3, and 0.
    """

    max_bytes: int
    max_depth: int
    max_messages: int
    max_nodes: int
    max_parameters: int
    operators: frozenset[str] | None
    opsets: tuple[int, int]
    needs_version: bool


LOCAL_RULES = Rules(
    max_bytes=64 * 2**20,
    max_depth=32,
    max_messages=200_000,
    max_nodes=5_000,
    max_parameters=64_000_000,
    operators=None,
    opsets=(1, 1_000),
    needs_version=False,
)
"""For files that the user names on the command line."""

ARENA_RULES = Rules(
    max_bytes=16 * 2**20,
    max_depth=12,
    max_messages=20_000,
    max_nodes=500,
    max_parameters=8_000_000,
    operators=frozenset(_STOCK_OPERATORS.split() + _OTHER_OPERATORS.split()),
    opsets=(7, 22),
    needs_version=True,
)
"""For strangers' files in an arena."""

PICTURE_RULES = replace(
    ARENA_RULES,
    max_bytes=32 * 2**20,
    operators=frozenset((_STOCK_OPERATORS + " " + _OTHER_OPERATORS + " " + _PICTURE_OPERATORS).split()),
    needs_version=False,
)
"""The same where players see pictures: their networks are larger and may remember; ML-Agents writes none of them."""


def arena_rules(pictures: bool) -> Rules:
    """For strangers' files that play by pictures, or by numbers alone."""
    return PICTURE_RULES if pictures else ARENA_RULES


@dataclass(frozen=True)
class Limits:
    """For one process, which holds one model for one mirrored pair or one validation.

    memory_bytes: address space, everything included; a process with a stock policy takes about 300 MiB of it.
    cpu_s: processor seconds, whole ones; a stock policy takes 0.2 s for a pair that goes to the time limit.
    wall_s: seconds that one answer may take on the clock. Generous, because a busy machine is nobody's fault.
    niceness: added to the process's own, 0 to 19: playing never slows the pages down.
    """

    memory_bytes: int = 768 * 2**20
    cpu_s: int = 20
    wall_s: float = 60.0
    niceness: int = 10
