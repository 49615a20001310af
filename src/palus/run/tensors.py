"""Files of `torch.save` from anyone: dicts, lists, numbers, text and tensors are read, nothing is imported or run.

A small file can say much: tensors that repeat one number, one tensor or list under a million names.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.serialization import safe_globals

from palus.errors import CheckpointError
from palus.run.pickled import foreign_names
from palus.types import AnyArray

SHARED = 4
"""As many names may share a tensor: encoders of ML-Agents have two each in an actor that is the critic, too."""
MAX_DEPTH = 64


class _NumberType:
    """A type of numpy's numbers in the making: pickles set its byte order after making it."""

    def __init__(self, code: str = "", *_: object) -> None:
        if code not in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"):
            raise pickle.UnpicklingError(f"numbers of type {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


def _number(kind: _NumberType, data: bytes = b"") -> float:
    found: float = np.frombuffer(data, kind.dtype, 1)[0].item()
    return found


_NUMBERS: list[Any] = [
    (_NumberType, "numpy.dtype"),
    (_number, "numpy.core.multiarray.scalar"),
    (_number, "numpy._core.multiarray.scalar"),
]
"""What a checkpoint gets that names numpy's numbers: its best score is one."""


def read_tensors(path: Path) -> Any:
    """The object in a file of `torch.save`.

    Raises CheckpointError when the file is damaged, older than torch 1.6, holds anything besides dicts, lists, numbers,
    text and tensors, or more of them than it has bytes.
    """
    try:
        with path.open("rb") as file:
            size, is_zip = os.fstat(file.fileno()).st_size, file.read(4) == b"PK\x03\x04"
            file.seek(0)
            archive = torch.PyTorchFileReader(file)  # what zipfile finds in it may be something else
            unpacked = sum(map(archive.get_record_size, records := archive.get_all_records()))
            if not is_zip or unpacked > size:  # torch stores without compression: it would swell
                raise pickle.UnpicklingError(f"{unpacked} bytes in {size}")
            foreign = foreign_names(archive.get_record("data.pkl"), frozenset(records))
            file.seek(0)
            with safe_globals(_NUMBERS):
                content = None if foreign else torch.load(file, map_location="cpu", weights_only=True)
        swollen = _swollen(content, size)
    except Exception as error:  # a hostile file makes its readers raise almost anything
        raise CheckpointError(
            f"{path}: not a readable checkpoint, older than torch 1.6 or damaged ({type(error).__name__}); fetch it "
            "again"
        ) from error
    if foreign:
        raise CheckpointError(
            f"{path}: not read, since it asks for {', '.join(foreign)}; tensors and numbers are all that palus takes "
            "from a stranger's file"
        )
    if swollen:
        raise CheckpointError(f"{path}: not a readable checkpoint, {swollen}; fetch it again")
    return content


def _swollen(content: Any, size: int) -> str | None:
    """Why what a file of so many bytes holds, written out, is more than it can be; None where it is not."""
    left, values, numbers = [(content, 0)], 1, 0
    while left:
        value, depth = left.pop()
        if isinstance(value, torch.Tensor):
            numbers += value.numel() * value.element_size()
            if numbers > SHARED * size:
                return f"{numbers:,} bytes of tensors and more in a file of {size:,}"
        elif isinstance(value, dict | list | tuple):
            values += len(value)
            if values > size:
                return f"more than {size:,} values in a file of as many bytes"
            if depth == MAX_DEPTH:
                return f"nested deeper than {MAX_DEPTH}"
            left += ((child, depth + 1) for child in (value.values() if isinstance(value, dict) else value))
    return None


def array_of(tensor: torch.Tensor, path: Path) -> AnyArray:
    """Its numbers, not copied. Raises CheckpointError for other kinds."""
    try:
        return tensor.detach().numpy()
    except (RuntimeError, TypeError) as error:
        raise CheckpointError(f"{path}: a tensor of {tensor.layout} and {tensor.dtype}; expected plain ones") from error
