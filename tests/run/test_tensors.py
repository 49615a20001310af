"""Files of tensors from strangers: what torch saved comes back, what would run code or swell does not."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from palus.errors import CheckpointError
from palus.run.folder import FORMAT, read_checkpoint
from palus.run.tensors import read_tensors

DATA = Path(__file__).parent / "data"


class _Harmful:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_a_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    mark, path = tmp_path / "ran", tmp_path / "evil.pth"
    torch.save({"model": _Harmful(mark)}, path)
    with pytest.raises(CheckpointError, match=r"asks for \w+\.mkdir"):
        read_tensors(path)
    assert not mark.exists()


def archive(path: Path, pickled: bytes, name: str = "data.pkl") -> Path:
    """A file as torch.save makes it, with this pickle."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"archive/{name}", b"\x80\x02" + pickled + b".")
        file.writestr("archive/data/ab", bytes(4000))
        file.writestr("archive/version", "3\n")
        file.writestr("archive/byteorder", "little")
    return path


def zeros(module: bytes) -> bytes:
    """A bytearray of a number: five bytes of a file may ask for two gigabytes."""
    return b"c" + module + b"\nbytearray\nM\xe8\x03\x85R"


def tensor_of(key: bytes) -> bytes:
    """A tensor of the floats in this record."""
    text = b"".join(b"X" + len(part).to_bytes(4, "little") + part for part in (key, b"cpu"))
    stored = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n" + text + b"M\xe8\x03tQ"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + b"K\x00M\xe8\x03\x85K\x01\x85\x89N\x89tR"


ORDERED, ENCODE, LONG = b"ccollections\nOrderedDict\n", b"c_codecs\nencode\n", b"X\xe8\x03\x00\x00" + bytes(1000)
CALLS = "not a readable checkpoint, older than torch 1.6 or damaged (UnpicklingError)"


@pytest.mark.parametrize(
    ("pickled", "name", "found"),
    [
        (zeros(b"builtins"), "data.pkl", "asks for builtins.bytearray; tensors"),
        (zeros(b"__builtin__"), "data.pkl", "asks for __builtin__.bytearray; tensors"),
        (zeros(b"builtins"), "DATA.PKL", "asks for builtins.bytearray; tensors"),  # which torch reads as well
        (ENCODE + LONG + b"X\x06\x00\x00\x00utf-32\x86R", "data.pkl", CALLS),
        (ORDERED + b"}\x85R", "data.pkl", CALLS),  # a copy
        (ORDERED + b"(}tR", "data.pkl", CALLS),
        (ORDERED + b"]R", "data.pkl", CALLS),  # a list for arguments
        (tensor_of(b"AB"), "data.pkl", CALLS),  # the record ab again, for torch's reader
        (tensor_of(b"ab") + b"]b", "data.pkl", CALLS),  # another size
        (b"]\x81", "data.pkl", CALLS),
    ],
)
def test_what_would_take_more_than_the_file_holds_is_refused_before_it_is_made(
    tmp_path: Path, pickled: bytes, name: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "checkpoint.pt", pickled, name)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(CheckpointError) as raised:
        read_tensors(path)
    assert found in str(raised.value)


def test_the_pickles_of_the_test_above_are_read_where_they_ask_for_no_more(tmp_path: Path) -> None:
    assert read_tensors(archive(tmp_path / "a.pt", ORDERED + b")R")) == {}
    assert read_tensors(archive(tmp_path / "b.pt", tensor_of(b"ab"))).tolist() == [0.0] * 1000
    assert read_tensors(archive(tmp_path / "c.pt", ENCODE + b"X\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86R")) == b"a"


def test_tensors_come_back_as_torch_saved_them(tmp_path: Path) -> None:
    base = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    saved = {"view": base[1:3, ::2], "transposed": base.T, "bytes": torch.tensor([1, 255], dtype=torch.uint8), "n": 3}
    torch.save(saved, tmp_path / "t.pth")
    found = read_tensors(tmp_path / "t.pth")
    assert found["n"] == 3
    for name in ("view", "transposed", "bytes"):
        np.testing.assert_array_equal(found[name], saved[name])


def test_a_cut_file_is_an_error_with_advice(tmp_path: Path) -> None:
    whole = (DATA / "sf_battle" / "checkpoint_p0" / "checkpoint_000000025_12800.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"damaged.*fetch it again"):
        read_tensors(tmp_path / "cut.pth")


def test_a_tensor_that_reaches_beyond_its_storage_is_refused(tmp_path: Path) -> None:
    torch.save({"t": torch.zeros(4)}, tmp_path / "whole.pth")
    with zipfile.ZipFile(tmp_path / "whole.pth") as whole, zipfile.ZipFile(tmp_path / "short.pth", "w") as short:
        for info in whole.infolist():
            data = whole.read(info)
            short.writestr(info.filename, data[:8] if "/data/" in info.filename else data)
    with pytest.raises(CheckpointError, match=r"damaged.*fetch it again"):
        read_tensors(tmp_path / "short.pth")


def test_an_old_file_a_compressed_one_and_strange_numbers_are_refused(tmp_path: Path) -> None:
    torch.save({"t": torch.zeros(4)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save({"t": torch.zeros(4)}, tmp_path / "whole.pth")
    torch.save({"t": np.void(b"1234")}, tmp_path / "void.pth")
    with (
        zipfile.ZipFile(tmp_path / "whole.pth") as whole,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for info in whole.infolist():
            bomb.writestr(info.filename, whole.read(info))
        bomb.writestr("archive/data/1", bytes(10_000_000))
    for name in ("old.pth", "bomb.pth", "void.pth"):
        with pytest.raises(CheckpointError, match="or damaged"):
            read_tensors(tmp_path / name)


def multiplied(value: Any) -> Any:
    """One list, named a thousand million times."""
    for _ in range(9):
        value = [value] * 10
    return value


def inside_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"a": torch.zeros(1).expand(1 << 33)}, r"34,359,738,368 bytes of tensors and more in a file of \d,\d+;"),
        (dict.fromkeys(map(str, range(40)), torch.zeros(1 << 12)), r"[\d,]+ bytes of tensors and more"),
        (multiplied(1), r"more than [\d,]+ values in a file of as many bytes"),
        (inside_itself(), "nested deeper than 64"),
    ],
)
def test_files_that_say_more_than_they_hold_are_refused(tmp_path: Path, content: Any, found: str) -> None:
    torch.save(content, tmp_path / "small.pt")
    with pytest.raises(CheckpointError, match=f"not a readable checkpoint, {found}.*fetch it again"):
        read_tensors(tmp_path / "small.pt")


def test_nor_does_a_run_go_on_from_one(tmp_path: Path) -> None:
    torch.save({"format": FORMAT, "a": {"__array__": torch.zeros(1).expand(1 << 33)}}, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match=r"bytes of tensors.*\*\.onnx: start anew with --force"):
        read_checkpoint(tmp_path / "checkpoint.pt")
