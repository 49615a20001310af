"""The file of a snapshot."""

import json

import numpy as np
import pytest

from palus.errors import CheckpointError, StorageError
from palus.league.snapshot import Snapshot, load_snapshot, save_snapshot, snapshot_path

ARRAYS = {"layer0_weight": np.arange(6, dtype=np.float32).reshape(2, 3), "branch0_bias": np.float32([1, -1])}


def test_a_snapshot_comes_back_as_it_was(tmp_path):
    path = save_snapshot(tmp_path, Snapshot(12, 11, "SoccerTwos", 34_000, ARRAYS))
    assert path == snapshot_path(tmp_path, 12) == tmp_path / "snapshot-00012.npz"
    read = load_snapshot(path)
    assert (read.id, read.parent, read.behavior, read.steps) == (12, 11, "SoccerTwos", 34_000)
    assert read.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert read.arrays[name].dtype == np.float32
        assert (read.arrays[name] == array).all()


def test_a_file_that_could_execute_code_is_refused(tmp_path):
    header = json.dumps({"id": 0, "parent": -1, "behavior": "SoccerTwos", "steps": 0})
    path = snapshot_path(tmp_path, 0)
    np.savez(path, snapshot=np.array(header), layer0_weight=np.array([{"a": "pickled object"}], dtype=object))
    with pytest.raises(CheckpointError, match="not a readable snapshot"):
        load_snapshot(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file.snapshot-00000\.npz: could not be written"):
        save_snapshot(tmp_path / "file", Snapshot(0, -1, "SoccerTwos", 0, ARRAYS))
