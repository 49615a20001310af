"""Arrays come from anywhere: an archive may claim any size, and text may be none."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from palus import files
from palus.files import read_arrays


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
