"""How the kernels are compiled: `kernel` for entry points, `inner` and `inlined` for what they call.

Sizes and numbers of the game are constants of the machine code, so that loops over them are unrolled. Kernels name
them as fields of the globals `PITCH` and `SENSOR`; `compiled` makes the same kernel with others under these names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher
from numba.core.options import DefaultOptions

from palus.kernels import KeptKernels

HERE = Path(__file__).parent
# Without it Numba counts references to every array at every call, atomically: four fifths of the time of a fixed step.
# Inner functions only borrow arrays that their entry point holds, and allocate none. Slower, not wrong, where a later
# Numba lacks the option.
NO_REFERENCE_COUNTS: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

# What only kernels call needs no entry from Python or C, which takes a quarter of the time of compiling.
FROM_KERNELS_ALONE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

inner: Any = numba.njit(nogil=True, error_model="numpy", **NO_REFERENCE_COUNTS)
"""For functions called by kernels; they must not create arrays. Division by zero gives infinity, as in C."""

inlined: Any = numba.njit(nogil=True, error_model="numpy", forceinline=True, **NO_REFERENCE_COUNTS)
"""The same, copied into the caller: for the path of every step."""


KERNELS = KeptKernels.of(sorted(HERE.glob("*.py")))


def kernel(function: Callable[..., Any], **options: Any) -> Any:
    """An entry point, kept with all kernels of this folder. options: more of `njit`'s."""
    return KERNELS(function, error_model="numpy", **options)


def side_by_side(loop: Callable[..., Any], entry: Any, name: str) -> Any:
    """A loop over ranges (`numba.prange`) that calls an entry point by its global name, on threads that spin
    (`palus.spinning`). entry: as `compiled` made it; name: as there."""
    copy = FunctionType(loop.__code__, {**loop.__globals__, entry.py_func.__name__: entry}, loop.__name__)
    copy.__qualname__ = f"{loop.__qualname__}_{name}"
    return kernel(copy, parallel=True)


def compiled(entries: Sequence[Any], name: str, **constants: Any) -> tuple[Any, ...]:
    """Entry points compiled anew, and all that they call, where these global names mean these named tuples.

    What several of them call is compiled once. name: one for each choice of constants; it becomes part of the name of
    every function. Numba tells functions of one name apart by a number that every process counts anew, and links
    machine code from the cache by both: kernels of two games, cached by two processes, would call each other's
    functions.
    """
    modules = {each: _as_module(c) for each, c in constants.items()}
    made: dict[Any, Any] = {}
    return tuple(kernel(_with_globals(entry.py_func, name, modules, made)) for entry in entries)


def _as_module(fields: Any) -> ModuleType:
    """Of a module Numba compiles the attribute that is named, of a tuple all of them, each time: twice the wait."""
    module = ModuleType(type(fields).__name__)
    vars(module).update(fields._asdict())
    return module


def _with_globals(function: Any, name: str, constants: dict[str, Any], made: dict[Any, Any]) -> Any:
    """A copy of a function with other globals. made: the compiled copies so far."""
    names = {**function.__globals__, **constants}
    for called_as in function.__code__.co_names:
        called = names.get(called_as)
        if isinstance(called, Dispatcher):
            if called not in made:
                options = {**called.targetoptions, **FROM_KERNELS_ALONE}
                made[called] = numba.jit(**options)(_with_globals(called.py_func, name, constants, made))
            names[called_as] = made[called]
    copy = FunctionType(function.__code__, names, function.__name__)
    copy.__qualname__ = f"{function.__qualname__}_{name}"
    return copy
