"""`kernel`: compiles the entry points, cached on disk for as long as no source of this folder changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

HERE = Path(__file__).parent
config: Any = numba.config  # its attributes are made at run time, from the environment


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
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        config.CACHE_DIR = before
