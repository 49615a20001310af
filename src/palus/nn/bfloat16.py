"""bfloat16 inside Numba kernels, which know no such type: rows travel as int16 bits and are float32 in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit, types
from numba.extending import overload
from torch import Tensor

from palus.types import F32, AnyArray


def kernel_view(x: Tensor) -> AnyArray:
    """The tensor's memory as an array that kernels can read and write: float32, or int16 for bfloat16."""
    x = x.detach().contiguous()
    return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()


def _widen(stored: Any) -> Any:
    """Replaced by `overload` below when a kernel is compiled."""
    raise NotImplementedError


def _narrow(value: Any, like: Any) -> Any:
    """Replaced by `overload` below when a kernel is compiled."""
    raise NotImplementedError


# Numba compares signatures to the letter, annotations included.


@overload(_widen, inline="always")
def _compile_widen(stored: Any) -> Callable[[Any], Any]:
    def as_it_is(stored: Any) -> Any:
        return stored

    def from_bits(stored: Any) -> Any:
        return np.uint32(np.uint32(np.uint16(stored)) << np.uint32(16)).view(np.float32)

    return as_it_is if isinstance(stored, types.Float) else from_bits


@overload(_narrow, inline="always")
def _compile_narrow(value: Any, like: Any) -> Callable[[Any, Any], Any]:
    def as_it_is(value: Any, like: Any) -> Any:
        return value

    def round_to_even(value: Any, like: Any) -> Any:
        bits = np.float32(value).view(np.uint32)
        odd = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
        return np.int16(np.uint32(bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))

    return as_it_is if isinstance(like, types.Float) else round_to_even


@njit(cache=True, nogil=True, inline="always")
def load_row(stored: AnyArray, row: F32) -> None:
    """row[:] = stored. stored: [h] float32 or bfloat16 bits."""
    for c in range(row.shape[0]):
        row[c] = _widen(stored[c])


@njit(cache=True, nogil=True, inline="always")
def store_row(row: F32, stored: AnyArray) -> None:
    """stored[:] = row, rounded to nearest even where it is bfloat16."""
    for c in range(row.shape[0]):
        stored[c] = _narrow(row[c], stored[c])
