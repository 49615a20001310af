"""How the kernels are compiled: `kernel` for entry points, `inner` and `inlined` for what they call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.options import DefaultOptions

HERE = Path(__file__).parent
config: Any = numba.config  # its attributes are made at run time, from the environment

# Without it Numba counts references to every array at every call, atomically: four fifths of the time of a fixed step.
# Inner functions only borrow arrays that their entry point holds, and allocate none. Slower, not wrong, where a later
# Numba lacks the option.
NO_REFERENCE_COUNTS: dict[str, Any] = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

inner: Any = numba.njit(nogil=True, error_model="numpy", **NO_REFERENCE_COUNTS)
"""For functions called by kernels; they must not create arrays. Division by zero gives infinity, as in C."""

inlined: Any = numba.njit(nogil=True, error_model="numpy", forceinline=True, **NO_REFERENCE_COUNTS)
"""The same, copied into the caller: for the path of every step."""


def _sources_digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(HERE.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def kernel(function: Callable[..., Any]) -> Any:
    """`numba.njit(nogil=True, cache=True)` whose cache folder is named after the sources of all kernels.

    Numba itself watches only the file of the entry point: after an edit of the physics it would go on with the old
    one. Where this folder is not writable, Numba falls back to the user's cache folder.
    """
    before = config.CACHE_DIR
    config.CACHE_DIR = str(HERE / "__pycache__" / f"kernels-{_sources_digest()}")
    try:
        return numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    finally:
        config.CACHE_DIR = before
