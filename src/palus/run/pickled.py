"""What a pickle of `torch.save` would look up and call, found out without doing it.

PyTorch's own reader of weights (`weights_only`) allows more than checkpoints need: a bytearray of a number, an encoding
that makes texts four times longer, copies of whatever was named before. Only what stands in these tables is read.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable, Collection
from dataclasses import dataclass

LONGEST_NUMBER = 64
"""Characters of text that become bytes: those of one number of numpy's."""


@dataclass(frozen=True)
class _Value:
    """Something on the stack. name: where it was looked up or what made it; text, items: of texts and of tuples."""

    name: str = ""
    made: bool = False
    text: str | None = None
    items: tuple[_Value, ...] | None = None


Items = tuple[_Value, ...]


def _short(items: Items) -> bool:
    return len(items) == 2 and items[0].text is not None and len(items[0].text) <= LONGEST_NUMBER


_CALLS: dict[str, Callable[[Items], bool]] = {
    "collections OrderedDict": lambda items: not items,  # of another it would be a copy
    "torch._utils _rebuild_tensor_v2": lambda items: True,
    "torch._utils _rebuild_tensor_v3": lambda items: True,
    "torch._utils _rebuild_parameter": lambda items: True,
    "numpy dtype": lambda items: True,
    "numpy.core.multiarray scalar": lambda items: True,
    "numpy._core.multiarray scalar": lambda items: True,
    "_codecs encode": _short,
}
"""What may be called, as pickles spell it, and with what."""
_KINDS = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
_NAMED = {
    *(f"torch {kind}Storage" for kind in _KINDS),
    *("torch.storage UntypedStorage", "torch uint16", "torch uint32", "torch uint64"),
}
"""What may be looked up beside these."""
_BUILT = {"collections OrderedDict", "numpy dtype"}
"""Whose attributes may be set."""
_PUSHED = {
    *("NONE", "NEWTRUE", "NEWFALSE", "EMPTY_DICT", "EMPTY_LIST", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINSTRING"),
}
_POPPED = {"APPEND": 1, "SETITEM": 2}


def foreign_names(pickled: bytes, records: Collection[str]) -> list[str]:
    """The names that a pickle looks up and that no checkpoint needs.

    records: of the file that it stands in. Raises UnpicklingError for other instructions than `torch.save` writes, for
    calls with what no checkpoint gives, and for data that the file lacks.
    """
    stack, marks, foreign = list[_Value](), list[int](), list[str]()
    memo: dict[object, _Value] = {}
    for code, given, _ in pickletools.genops(pickled):
        name = code.name
        if name in ("PROTO", "STOP"):
            continue
        if name == "MARK":
            marks.append(len(stack))
        elif name in _PUSHED:
            stack.append(_Value(text=given if isinstance(given, str) else None))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[given] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[given])
        elif name == "GLOBAL":
            stack.append(_Value(str(given)))
            if given not in _CALLS and given not in _NAMED:
                foreign.append(str(given).replace(" ", "."))
        elif name in ("APPENDS", "SETITEMS"):
            del stack[marks.pop() :]
        elif name == "TUPLE":
            at = marks.pop()
            stack[at:] = [_Value(items=tuple(stack[at:]))]
        elif name == "EMPTY_TUPLE":
            stack.append(_Value(items=()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            at = len(stack) - int(name[-1])
            stack[at:] = [_Value(items=tuple(stack[at:]))]
        elif name in _POPPED:
            del stack[-_POPPED[name] :]
        elif name == "BUILD":
            stack.pop()
            if not stack[-1].made or stack[-1].name not in _BUILT:
                raise pickle.UnpicklingError(f"sets attributes of {stack[-1].name or 'something'}")
        elif name == "REDUCE":
            items, called = stack.pop().items, stack.pop()
            fits = None if called.made else _CALLS.get(called.name)
            if not foreign and (fits is None or items is None or not fits(items)):
                raise pickle.UnpicklingError(f"calls {called.name or 'something'} with what no checkpoint gives")
            stack.append(_Value(called.name, made=True))
        elif name == "BINPERSID":
            items = stack.pop().items
            if items is None or len(items) != 5 or f"data/{items[2].text}" not in records:
                raise pickle.UnpicklingError("names data that the file lacks")
            stack.append(_Value())
        else:
            raise pickle.UnpicklingError(f"an instruction {name}, which torch.save does not write")
    return foreign
