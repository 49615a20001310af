"""Kernels that Numba keeps between processes, and throws away when anything changes that they are made of."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba

config: Any = numba.config  # its attributes are made at run time, from the environment

# Numba's setting is one for all threads: of two that make kernels, one would take ours for the user's own.
_naming_the_cache = threading.Lock()


@dataclass(frozen=True)
class KeptKernels:
    """Makes kernels out of some sources: `numba.njit(nogil=True, cache=True)` whose cache folder is named after them.

    Numba itself watches only the file of the entry point: after an edit of what it calls in another one it would go on
    with the old code, and read arrays as they were laid out before.
    """

    home: Path
    """In whose `__pycache__` they are, where NUMBA_CACHE_DIR says nothing else."""
    digest: str
    """Of the sources as they were when this process read them: an edit while it runs must not name what it compiled
    later."""

    @classmethod
    def of(cls, sources: Iterable[Path]) -> KeptKernels:
        """Of files in one folder."""
        files, digest = list(sources), hashlib.sha256()
        for source in files:
            digest.update(source.read_bytes())
        return cls(files[0].parent, digest.hexdigest()[:16])

    @classmethod
    def beside(cls, file: str, *others: str) -> KeptKernels:
        """Of a module and others in its folder, by their names."""
        return cls.of([Path(file), *(Path(file).with_name(f"{name}.py") for name in others)])

    def __call__(self, function: Callable[..., Any], **options: Any) -> Any:
        """options: more of `njit`'s. Where the folder is not writable, Numba falls back to the user's cache folder."""
        with _naming_the_cache:
            before = config.CACHE_DIR
            config.CACHE_DIR = str(Path(before or self.home / "__pycache__") / f"kernels-{self.digest}")
            try:
                return numba.njit(nogil=True, cache=True, **options)(function)
            finally:
                config.CACHE_DIR = before
