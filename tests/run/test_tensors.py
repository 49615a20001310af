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
