"""Tensors out of a file of `torch.save`, read as data: nothing that stands in the file is imported or called.

A pickle is a small program whose only powers are the functions that its reader hands out. This one hands out seven of
its own, enough for nested dicts of tensors and numbers, and refuses every other name. Needs no torch.
Source: the pickle protocol (PEP 307, 3154) and the zip layout of `torch.save` since torch 1.6.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from palus.errors import CheckpointError
from palus.types import AnyArray

MAX_PICKLE_BYTES = 16 << 20
"""Of the part that describes the tensors; an honest one has some kilobytes."""

_STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "|b1",
}
_SCALARS = frozenset(f"{kind}{size}" for kind in "fiu" for size in (1, 2, 4, 8)) - {"f1"} | {"b1"}


class _ForbiddenError(Exception):
    """The file asks for something that plain tensors do not need."""


@dataclass(frozen=True)
class Tensor:
    """A tensor that stays in the file until `array` is called: a checkpoint's optimiser state is never read."""

    member: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    _archive: _Archive

    def array(self) -> AnyArray:
        """A copy of its numbers. Raises CheckpointError when its storage is damaged, or does not hold them all."""
        with _in_our_words(self._archive.path):
            data = np.frombuffer(self._archive.read(self.member), self.dtype)
            reach = self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + 1
            lowest = min(self.offset, *self.shape, *self.strides)
            if math.prod(self.shape) and (lowest < 0 or max(reach, math.prod(self.shape)) > data.size):
                raise CheckpointError(
                    f"a tensor of shape {self.shape} reaches beyond its {data.size} numbers: the file is damaged; "
                    "fetch it again"
                )
            step = data.itemsize
            view = np.lib.stride_tricks.as_strided(data[self.offset :], self.shape, [s * step for s in self.strides])
            return view.copy()


def read_tensors(path: Path) -> Any:
    """The object in a file of `torch.save`: dicts, lists, numbers, text, and `Tensor` in place of tensors.

    Raises CheckpointError when the file is damaged, older than torch 1.6, or holds anything besides these.
    """
    with _in_our_words(path):
        return _Unpickler(_Archive(path)).load()


@contextmanager
def _in_our_words(path: Path) -> Iterator[None]:
    """Turn whatever a hostile or damaged file makes its readers raise into CheckpointError."""
    try:
        yield
    except _ForbiddenError as error:
        raise CheckpointError(
            f"{path}: not read, since it asks for {error}; tensors and numbers are all that palus takes from a "
            "stranger's file"
        ) from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (zipfile.BadZipFile, pickle.UnpicklingError, KeyError, EOFError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{path}: not a checkpoint of torch 1.6 or later, or damaged ({type(error).__name__}: {error}); "
            "fetch it again"
        ) from error
    except (
        AssertionError,
        AttributeError,
        IndexError,
        MemoryError,
        RuntimeError,
        OverflowError,
        struct.error,
        zlib.error,
    ) as error:
        # RuntimeError: endless nesting, and what zipfile says of members that are encrypted or patched
        raise CheckpointError(f"{path}: damaged ({type(error).__name__}); fetch it again") from error


class _Archive:
    """The zip file: `<name>/data.pkl` and one member per storage."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            pickles = [info for info in archive.infolist() if info.filename.count("/") == 1]
            found = [info for info in pickles if info.filename.endswith("/data.pkl")]
            if len(found) != 1:
                raise zipfile.BadZipFile(f"{len(found)} members called data.pkl")
            if found[0].file_size > MAX_PICKLE_BYTES:
                raise _ForbiddenError(f"{found[0].file_size} bytes to describe its tensors")
            self.root = found[0].filename.removesuffix("data.pkl")
            self.pickle = archive.read(found[0])
        self._size = path.stat().st_size

    def read(self, member: str) -> bytes:
        with zipfile.ZipFile(self.path) as archive:
            info = archive.getinfo(member)
            if info.file_size > self._size:  # torch stores without compression; this one would swell
                raise CheckpointError(f"{self.path}: a tensor is larger than the file; it is damaged or hostile")
            return archive.read(info)


class _Type:
    """A numpy type in the making: pickles set its byte order after making it."""

    def __init__(self, code: str = "", *_: object) -> None:
        if code not in _SCALARS:
            raise _ForbiddenError(f"numbers of type {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


@dataclass(frozen=True)
class _Storage:
    member: str
    dtype: str


class _Unpickler(pickle._Unpickler):  # the one in C makes room for 2**32 objects when a file names the last one
    def __init__(self, archive: _Archive) -> None:
        super().__init__(io.BytesIO(archive.pickle))
        self._archive = archive
        self._given: dict[tuple[str, str], Any] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
            ("_codecs", "encode"): _encode,
            ("numpy", "dtype"): _Type,
            ("numpy.core.multiarray", "scalar"): _scalar,
            ("numpy._core.multiarray", "scalar"): _scalar,
        }

    def find_class(self, module: str, name: str) -> Any:
        """The only way by which a pickle reaches code."""
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        try:
            return self._given[module, name]
        except KeyError:
            raise _ForbiddenError(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> _Storage:
        """A storage: ("storage", type, key, device, numbers)."""
        kind, dtype, key = pid[:3]
        if kind != "storage" or dtype not in _STORAGES.values() or not str(key).isdecimal():
            raise _ForbiddenError(f"the storage {key!r}")
        return _Storage(f"{self._archive.root}data/{key}", dtype)

    def _tensor(self, storage: _Storage, offset: int, size: Any, stride: Any, *_: object) -> Tensor:
        if not isinstance(storage, _Storage) or len(size) != len(stride):
            raise _ForbiddenError("a tensor without numbers")
        return Tensor(
            storage.member,
            storage.dtype,
            int(offset),
            tuple(int(n) for n in size),
            tuple(int(s) for s in stride),
            self._archive,
        )


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":
        raise _ForbiddenError(f"text in {encoding}")
    return text.encode("latin1")


def _scalar(kind: _Type, data: bytes = b"") -> float | int | bool:
    value: float | int | bool = np.frombuffer(data, kind.dtype, 1)[0].item()
    return value
