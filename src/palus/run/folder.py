"""A run's folder: checkpoints that survive anything, and ML-Agents' layout around them.

<results_dir>/<run_id>/
  configuration.yaml  <Behavior>.onnx  README.md  bundle.json     the bundle, written at checkpoints (appo: no card yet)
  <Behavior>/checkpoint.pt                                        everything needed to continue
  <Behavior>/<Behavior>-<step>.onnx                               the last `keep_checkpoints` policies
  <Behavior>/snapshots/                                           opponents of self-play
  <Behavior>/events.out.tfevents.*                                TensorBoard
  run_logs/training_status.json                                   checkpoints and rating, as ML-Agents writes it
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palus import __version__
from palus.errors import CheckpointError, StorageError
from palus.files import write_atomically, write_text

FORMAT = 1
_ARRAY = "__array__"


class RunFolder:
    """Paths and files of one run of one behavior."""

    def __init__(self, root: Path, behavior: str) -> None:
        self.root, self.behavior = root, behavior
        self.behavior_folder = root / behavior
        self.snapshots = self.behavior_folder / "snapshots"
        self.checkpoint = self.behavior_folder / "checkpoint.pt"
        self.status = root / "run_logs" / "training_status.json"

    def refuse_existing(self, *, force: bool) -> None:
        """Raises CheckpointError when a run of this id lies there and `force` is not given."""
        if self.checkpoint.exists() and not force:
            raise CheckpointError(
                f"{self.root}: a run of this id exists; continue it with --resume, replace it with --force, "
                "or choose another --run-id."
            )

    def clear(self) -> None:
        """Remove what a former run of this id left and make the folder. Raises StorageError."""
        for path in (self.behavior_folder, self.root / "run_logs"):
            shutil.rmtree(path, ignore_errors=True)
        try:
            self.behavior_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{self.behavior_folder}: the folder cannot be made ({error.strerror}); choose another --results-dir."
            ) from error

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace checkpoint.pt atomically. Raises StorageError; the old checkpoint is then still there."""
        write_atomically(self.checkpoint, lambda f: torch.save({"format": FORMAT, **_pack(state)}, f))

    def load(self) -> dict[str, Any]:
        """Read checkpoint.pt without executing anything in it. Raises CheckpointError with what to do."""
        if not self.checkpoint.exists():
            raise CheckpointError(
                f"{self.root}: nothing to resume, {self.checkpoint.name} is not there; start without --resume."
            )
        try:
            state = torch.load(self.checkpoint, weights_only=True, map_location="cpu")
        except Exception as error:  # zip, pickle and value errors, all of them corruption here
            raise CheckpointError(
                f"{self.checkpoint}: not a readable checkpoint ({type(error).__name__}); the policies are still in "
                f"{self.behavior_folder}/*.onnx. Start anew with --force, or restore the file from a backup."
            ) from error
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            found = state.get("format") if isinstance(state, dict) else type(state).__name__
            raise CheckpointError(
                f"{self.checkpoint}: checkpoint format {found}; this palus ({__version__}) reads format {FORMAT}. "
                "Resume it with the palus that wrote it."
            )
        return _unpack(state)  # type: ignore[no-any-return]

    def record_checkpoint(self, steps: int, reward: float | None, keep: int, elo: float | None) -> None:
        """Enter `<Behavior>-<steps>.onnx` into training_status.json and drop the oldest beyond `keep` (<= 0: all)."""
        status = self._read_status()
        entry = status.setdefault(self.behavior, {})
        path = self.behavior_folder / f"{self.behavior}-{steps}.onnx"
        item = {
            "steps": steps,
            "file_path": str(path),
            "reward": reward,
            "creation_time": time.time(),
            "auxillary_file_paths": [],
        }
        checkpoints = [c for c in entry.get("checkpoints", []) if c["steps"] != steps] + [item]
        while 0 < keep < len(checkpoints):
            Path(checkpoints.pop(0)["file_path"]).unlink(missing_ok=True)
        entry["checkpoints"] = checkpoints
        entry["final_checkpoint"] = {**item, "file_path": str(self.root / f"{self.behavior}.onnx")}
        if elo is not None:
            entry["elo"] = elo
        status["metadata"] = {
            "stats_format_version": "0.3.0",
            "palus_version": __version__,
            "torch_version": torch.__version__,
        }
        write_text(self.status, json.dumps(status, indent=4) + "\n")

    def _read_status(self) -> dict[str, Any]:
        """A table of contents on which nothing depends: one that cannot be read is begun anew."""
        try:
            status = json.loads(self.status.read_text())
            known = all(
                isinstance(c["steps"], int) and isinstance(c["file_path"], str)
                for c in status.get(self.behavior, {}).get("checkpoints", [])
            )
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return {}
        return status if known else {}


def _pack(tree: Any) -> Any:
    """Arrays to tensors, which torch reads back without executing code."""
    if isinstance(tree, np.ndarray):
        return {_ARRAY: torch.from_numpy(np.ascontiguousarray(tree))}
    if isinstance(tree, np.generic):
        return tree.item()
    if isinstance(tree, Mapping):
        return {k: _pack(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_pack(v) for v in tree)
    return tree


def _unpack(tree: Any) -> Any:
    if isinstance(tree, dict):
        return tree[_ARRAY].numpy() if _ARRAY in tree else {k: _unpack(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_unpack(v) for v in tree)
    return tree
