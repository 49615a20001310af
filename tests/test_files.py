"""Files are whole or not there. Arrays come from anywhere: an archive may claim any size, and text may be none."""

from __future__ import annotations

import io
import sys
import zipfile

import numpy as np
import pytest
import torch

from full_disk import at_most
from palus import files
from palus.errors import StorageError
from palus.files import read_arrays, write_atomically, write_bytes


def npz(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def test_arrays_and_text_come_back():
    found = read_arrays(npz(w=np.arange(3.0), name=np.array("Größe 🙂")))
    assert found["w"].tolist() == [0.0, 1.0, 2.0]
    assert str(found["name"]) == "Größe 🙂"


def test_a_small_archive_of_large_arrays_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(files, "MAX_ARRAY_BYTES", 1_000_000)
    data = npz(w=np.zeros(1_000_000))
    assert len(data) < 20_000
    with pytest.raises(ValueError, match=r"8,000,128 bytes of arrays, at most 1,000,000 are read"):
        read_arrays(data)


def test_numbers_that_are_no_characters_are_refused():
    bad = np.array(["abc"]).view(np.uint32).copy()
    bad[1] = 0xD800  # half of a pair
    with pytest.raises(ValueError, match="UnicodeDecodeError"):
        read_arrays(npz(name=bad.view("<U3")))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", npz(w=np.array([object()], object))[:-30]])
def test_damage_is_a_value_error(data):
    with pytest.raises(ValueError):
        read_arrays(data)


def test_pickled_objects_are_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("w.npy", pickle_of_an_object())
    with pytest.raises(ValueError, match="allow_pickle"):
        read_arrays(buffer.getvalue())


def pickle_of_an_object() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], object), allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limits on Windows")
@pytest.mark.parametrize("size", [0, 3000, 5000, 90_000, 150_000, 300_000])
@pytest.mark.parametrize(
    "write",
    [
        lambda file: torch.save({"a": torch.zeros(30_000), "b": [torch.zeros(1000) for _ in range(50)]}, file),
        lambda file: np.savez(file, a=np.zeros(30_000, np.float32), **{f"b{n}": np.zeros(500) for n in range(50)}),
        lambda file: file.write(bytes(320_000)),
    ],
    ids=["torch", "npz", "bytes"],
)
def test_a_disk_that_fills_up_while_a_file_is_written_keeps_the_old_one(tmp_path, write, size):
    path = tmp_path / "file"
    write_bytes(path, b"old")
    with at_most(size), pytest.raises(StorageError, match=r"file: could not be written \(File too large\)"):
        write_atomically(path, write)
    assert path.read_bytes() == b"old" and [*tmp_path.iterdir()] == [path]


def test_a_folder_in_a_file_s_place_is_told_of(tmp_path):
    with pytest.raises(StorageError, match="give the name of a file"):
        write_bytes(tmp_path, b"new")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whatever_else_ends_the_writing_is_raised_as_it_is_and_leaves_nothing(tmp_path, error):
    def write(_):
        raise error("of its own")

    with pytest.raises(error, match="of its own"):
        write_atomically(tmp_path / "file", write)
    assert not [*tmp_path.iterdir()]
