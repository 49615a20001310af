"""The contract between learning and the league: a frozen policy in a file that any later run or match can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from palus.errors import CheckpointError
from palus.files import read_arrays, write_atomically
from palus.types import AnyArray


@dataclass(frozen=True)
class Snapshot:
    """A policy frozen at `steps` trainer steps.

    id: counts up from 0 within a run; parent: id of the snapshot before, -1 for the first.
    arrays: weights, as `palus.learn.learner.Actor.arrays` or `palus.nn.actor_critic.ActorCritic.arrays` names them.
    """

    id: int
    parent: int
    behavior: str
    steps: int
    arrays: Mapping[str, AnyArray]


def snapshot_path(folder: Path, snapshot_id: int) -> Path:
    """Where a run keeps that snapshot."""
    return folder / f"snapshot-{snapshot_id:05d}.npz"


def save_snapshot(folder: Path, snapshot: Snapshot) -> Path:
    """Write one `.npz`: the arrays plus a JSON header under the key `snapshot`. Raises StorageError."""
    header = {k: getattr(snapshot, k) for k in ("id", "parent", "behavior", "steps")}
    path = snapshot_path(folder, snapshot.id)
    content: dict[str, Any] = {"snapshot": np.array(json.dumps(header)), **snapshot.arrays}
    write_atomically(path, lambda f: np.savez(f, **content))
    return path


def load_snapshot(path: Path) -> Snapshot:
    """Read one snapshot; nothing in it is executed. Raises CheckpointError when it is missing or corrupt."""
    try:
        arrays = read_arrays(path.read_bytes())
        header = json.loads(str(arrays.pop("snapshot")))
        return Snapshot(header["id"], header["parent"], header["behavior"], header["steps"], arrays)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no such snapshot; was the run folder copied without `snapshots/`?") from error
    except Exception as error:  # a damaged zip raises almost anything
        raise CheckpointError(f"{path}: not a readable snapshot ({error}); restore it or start a new run.") from error
