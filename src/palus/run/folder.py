"""A run's folder: checkpoints that survive anything, and ML-Agents' layout around them.

<results_dir>/<run_id>/
  configuration.yaml  <Behavior>.onnx  README.md  bundle.json     the bundle, written at checkpoints
  <Behavior>/checkpoint.pt                                        everything needed to continue, in the first behavior's
  <Behavior>/<Behavior>-<step>.onnx                               the last `keep_checkpoints` policies
  <Behavior>/policy.npz, best.npz                                 the newest policy, the best by `best_metric`
  <Behavior>/policy_<k>/                                          the same of each learner where there are several
  <Behavior>/policy_<k>/hyperparameters.json                      what it learns with, of a population
  <Behavior>/payoffs.json                                         self-play's results, in the first behavior's
  <Behavior>/snapshots/                                           opponents of self-play
  <Behavior>/events.out.tfevents.*                                TensorBoard
  run_logs/training_status.json                                   checkpoints and rating, as ML-Agents writes it
  run_logs/timers.json                                            where the time went, as ML-Agents writes it
  run_logs/progress.jsonl                                         every summary, for the live page (`palus.progress`)
  league/league.json                                              self-play's snapshots, results and ratings
  league/visitors/                                                snapshots of the other runs of its league
  .palus-files                                                    which of all these palus wrote, and may remove
  .lock                                                           of a league's run: held by the process that trains it
"""

from __future__ import annotations

import difflib
import glob
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from palus import __version__
from palus.errors import CheckpointError, ExistingRunError, StorageError
from palus.files import is_file_name, locked_if_it_can_be, make_folder, remove, whole_name, write_atomically, write_text
from palus.run.tensors import array_of, read_tensors

FORMAT = 2
_ARRAY = "__array__"


_GAME_LOG = re.compile(r".*[/\\]run_logs[/\\]Player-\d+\.log")
LIST = ".palus-files"
"""Its name in the folder; hidden, so that it is not published with a run."""


class OwnFiles:
    """Which files of a folder palus wrote itself, so that nothing else is ever removed: a list on disk, one path below
    `root` per line. It grows before a file is written, so a kill loses none."""

    def __init__(self, root: Path) -> None:
        self.root, self._list = root, root / LIST
        self._names = set(_read(self._list))

    def __contains__(self, path: Path) -> bool:
        return self._name(path) in self._names

    def add(self, path: Path) -> Path:
        """Enter a file that is about to be written among those that --force may remove; returns its path.

        Raises StorageError.
        """
        name = self._name(path)
        if name not in self._names:
            try:
                self.root.mkdir(parents=True, exist_ok=True)
                with self._list.open("a+b") as file:
                    file.seek(0)
                    data = file.read()
                    if not data.endswith(b"\n"):  # a full disk took half a line
                        file.truncate(len(_whole(data)))
                    file.write(f"{name}\n".encode())
            except OSError as error:
                raise StorageError(
                    f"{self._list}: could not be written ({error.strerror or error}); "
                    "free space or choose another folder."
                ) from error
            self._names.add(name)
        return path

    def remove_all(self) -> None:
        """Delete every file of the list, the folders that this empties, and the list. Raises StorageError."""
        top = self.root.resolve()
        listed = [self.root / name for name in self._names]
        files = [path for path in listed if path.parent.resolve().is_relative_to(top)]  # not through a linked folder
        self.remove_unfinished()
        for path in [*files, self._list]:
            remove(path)
        folders = {folder for path in files for folder in path.parents if self.root in folder.parents}
        for folder in sorted(folders, key=lambda f: len(f.parts), reverse=True):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        self._names = set()

    def remove_unfinished(self) -> None:
        """Delete what kills have left of files of the list (`palus.files.write_atomically`). Raises StorageError."""
        top = self.root.resolve()
        beside: dict[Path, set[str]] = {}
        for name in self._names:
            beside.setdefault((self.root / name).parent, set()).add(PurePosixPath(name).name)
        for folder, names in beside.items():
            if not folder.is_dir() or not folder.resolve().is_relative_to(top):
                continue
            for path in folder.glob(".*"):
                if whole_name(path.name) in names:
                    remove(path)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _whole(data: bytes) -> bytes:
    """The lines that were written to their end."""
    return data[: data.rfind(b"\n") + 1]


def _read(file: Path) -> list[str]:
    """The lines that name something below the folder: a copied list cannot point out of it."""
    try:
        lines = _whole(file.read_bytes()).decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    names = [PurePosixPath(line) for line in lines if line]
    return [str(name) for name in names if not name.is_absolute() and ".." not in name.parts]


class RunFolder:
    """Paths and files of one run. behaviors: their names, the first one's folder holds the checkpoint.

    Whoever writes or loads a run holds its folder (`held`) from before the look at it to the end.
    """

    def __init__(self, root: Path, behaviors: Sequence[str]) -> None:
        self.root, self.behaviors = root, tuple(behaviors)
        self.status = root / "run_logs" / "training_status.json"
        self._own = OwnFiles(root)
        self.own = self._own.add

    @property
    def checkpoint(self) -> Path:
        """The file; a game may have to say first which behaviors there are."""
        return self.of(self.behaviors[0]) / "checkpoint.pt"

    def of(self, behavior: str) -> Path:
        """The folder of a behavior. Raises CheckpointError for a name that leads elsewhere, as a file may hold."""
        if not is_file_name(behavior):
            raise CheckpointError(f"{self.root}: a behavior called {behavior!r}; expected the name of a folder in it")
        return self.root / behavior

    def add(self, behavior: str) -> None:
        """Make the folder of a behavior that has just appeared. Raises StorageError."""
        self.behaviors = (*self.behaviors, behavior)
        try:
            self._make()
        except OSError as error:
            raise StorageError(f"{error.filename}: cannot be made ({error.strerror}); free space.") from error

    def _make(self) -> None:
        for behavior in self.behaviors:
            self.of(behavior).mkdir(parents=True, exist_ok=True)

    def own_bundle(self) -> Path:
        """Enter all files of the bundle but the card, which may be the user's. Returns the folder."""
        for name in ("configuration.yaml", "bundle.json", *(f"{behavior}.onnx" for behavior in self.behaviors)):
            self.own(self.root / name)
        return self.root

    def refuse_existing(self, *, force: bool) -> None:
        """Raises CheckpointError when the folder holds a file and `force` is not given, or when the run would replace
        one that palus did not write. Of a run that never began there may be the log of its game."""
        if all(path.is_dir() or _GAME_LOG.fullmatch(str(path)) for path in self.root.rglob("*")):
            return
        if not force:
            saved = any(self.root.glob("*/checkpoint.pt"))
            raise ExistingRunError(
                f"{self.root}: a run of this id exists{'' if saved else ', which has never saved'}; "
                f"{'continue it with --resume, ' if saved else ''}replace it with --force (files that palus did not "
                "write stay), or choose another --run-id."
            )
        foreign = self._foreign()
        if foreign:
            more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
            raise CheckpointError(
                f"{foreign[0]}{more}: not written by palus, and this run would replace it; move it away, or choose "
                "another --run-id."
            )

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Keep other runs out of the folder meanwhile; it is made where it is not there, and does not stay empty.
        Whether that can be done: some file systems have no locks, and training twice in one folder is then up to its
        user. Raises CheckpointError when another run is in it, StorageError."""
        if os.name == "nt":  # which opens no folders
            yield False
            return
        made = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        make_folder(self.root, "--results-dir")
        try:
            folder = os.open(self.root, os.O_RDONLY)
        except OSError as error:
            raise StorageError(
                f"{self.root}: the folder cannot be read ({error.strerror}); choose another --results-dir"
            ) from error
        try:
            is_free = locked_if_it_can_be(folder)
            if is_free is False or not (self.root.is_dir() and os.path.samestat(os.fstat(folder), self.root.stat())):
                made.clear()
                raise CheckpointError(
                    f"{self.root}: a run of this id is training just now; wait for its end, or choose another --run-id."
                )
            yield is_free is not None
        finally:
            with suppress(OSError):  # where something is in it
                for own in made:
                    own.rmdir()
            os.close(folder)

    def _foreign(self) -> list[Path]:
        """Files of others under the names that a run gives its own."""
        b = f"({'|'.join(map(re.escape, self.behaviors))})"
        names = re.compile(
            rf"configuration\.yaml|bundle\.json|{b}\.onnx|run_logs/(training_status\.json|timers\.json|progress\.jsonl)"
            r"|league/(league\.json|visitors/.+\.npz)"
            rf"|{b}/(checkpoint\.pt|{b}-\d+\.onnx|payoffs\.json|snapshots/snapshot-\d+\.npz)"
            rf"|{b}/(policy_\d+/)?(policy\.npz|best\.npz|hyperparameters\.json)"
        )
        files = (
            path for path in sorted(self.root.rglob("*")) if names.fullmatch(path.relative_to(self.root).as_posix())
        )
        return [path for path in files if path not in self._own]

    def owns(self, path: Path) -> bool:
        """Whether palus wrote a file of the folder."""
        return path in self._own

    def owned(self, pattern: str) -> list[Path]:
        """The files of its own that are there and match a pattern."""
        return [path for path in self.root.glob(pattern) if path in self._own]

    def mirrored(self) -> dict[str, Path]:
        """What another machine needs to go on, by name: all of its own, but for what only grows. Of that the league's
        book has the progress."""
        grows = re.compile(r".*events\.out\.tfevents\..*|run_logs/(progress\.jsonl|timers\.json)")
        files = {path.relative_to(self.root).as_posix(): path for path in self.owned("**/*") if path.is_file()}
        return {name: path for name, path in files.items() if not grows.fullmatch(name)}

    def clear(self) -> None:
        """Remove what palus wrote for a former run of this id and make the folder. Raises StorageError."""
        try:
            self._own.remove_all()
            self._make()
        except OSError as error:
            raise StorageError(
                f"{error.filename or self.root}: the folder cannot be prepared ({error.strerror}); "
                "choose another --results-dir."
            ) from error

    def refuse_unwritable(self) -> None:
        """Raises StorageError where a run that goes on could not save."""
        for folder in (self.root, *(self.of(behavior) for behavior in self.behaviors)):
            try:
                if folder.is_dir():
                    tempfile.TemporaryFile(dir=folder).close()
            except OSError as error:
                raise StorageError(
                    f"{folder}: nothing can be written there ({error.strerror}), so the run could not save; make it "
                    "writable, or copy the run and name its --results-dir."
                ) from error

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace checkpoint.pt atomically. Raises StorageError; the old checkpoint is then still there."""
        write_atomically(self.own(self.checkpoint), lambda f: torch.save({"format": FORMAT, **_pack(state)}, f))

    def refuse_nothing(self) -> None:
        """Raises CheckpointError when there is no checkpoint, of any behavior."""
        if not any(self.root.glob("*/checkpoint.pt")):
            raise self._nothing()

    def _nothing(self) -> CheckpointError:
        name = f"{self.behaviors[0]}/checkpoint.pt" if self.behaviors else "checkpoint.pt"
        saved = {path.parent.parent.name for path in self.root.parent.glob("*/*/checkpoint.pt")}
        near = difflib.get_close_matches(self.root.name, sorted(saved), n=3)
        hint = f"did you mean --run-id {' or '.join(near)}? Else " if near else ""
        return CheckpointError(
            f"{self.root}: nothing to resume, {name} is not there; {hint}start without --resume, with --force where an "
            "unfinished run of this id lies there."
        )

    def load(self) -> dict[str, Any]:
        """Read checkpoint.pt without executing anything in it. Raises CheckpointError with what to do."""
        if not self.checkpoint.exists():
            self.refuse_nothing()
            raise self._nothing()
        self._own.remove_unfinished()
        return read_checkpoint(self.checkpoint)

    def record_checkpoint(self, behavior: str, steps: int, reward: float | None, keep: int, elo: float | None) -> None:
        """Enter `<Behavior>-<steps>.onnx` into training_status.json and drop the oldest beyond `keep` (<= 0: all)."""
        status = self._read_status()
        entry = status.setdefault(behavior, {})
        path = self.of(behavior) / f"{behavior}-{steps}.onnx"
        item = {
            "steps": steps,
            "file_path": str(path),
            "reward": reward,
            "creation_time": time.time(),
            "auxillary_file_paths": [],
        }
        checkpoints = [c for c in entry.get("checkpoints", []) if c["steps"] != steps] + [item]
        if keep > 0:
            old = self._models(behavior)[:-keep]
            for model in old:
                remove(model)
            gone = {model.name for model in old}
            checkpoints = [c for c in checkpoints if Path(c["file_path"]).name not in gone][-keep:]
        entry["checkpoints"] = checkpoints
        entry["final_checkpoint"] = {**item, "file_path": str(self.root / f"{behavior}.onnx")}
        if elo is not None:
            entry["elo"] = elo
        status["metadata"] = {
            "stats_format_version": "0.3.0",
            "palus_version": __version__,
            "torch_version": torch.__version__,
        }
        write_text(self.own(self.status), json.dumps(status, indent=4) + "\n")

    def _models(self, behavior: str) -> list[Path]:
        """The run's own `<Behavior>-<steps>.onnx` that are there, oldest first, also those that a kill kept out of
        training_status.json."""
        name = re.compile(rf"{re.escape(behavior)}-(\d+)\.onnx")
        there = self.owned(f"{glob.escape(behavior)}/*.onnx")
        found = [(int(match[1]), path) for path in there if (match := name.fullmatch(path.name))]
        return [path for _, path in sorted(found)]

    def record_lessons(self, numbers: Mapping[str, int]) -> None:
        """Enter the lesson of every environment parameter into training_status.json."""
        if numbers:
            status = self._read_status()
            for name, number in numbers.items():
                status.setdefault(name, {})["lesson_num"] = number
            write_text(self.own(self.status), json.dumps(status, indent=4) + "\n")

    def recorded_lessons(self) -> dict[str, int]:
        """The lesson of every environment parameter in training_status.json."""
        entries = self._read_status().items()
        found = {name: entry.get("lesson_num") for name, entry in entries if isinstance(entry, dict)}
        return {name: number for name, number in found.items() if isinstance(number, int) and number >= 0}

    def recorded_elo(self, behavior: str) -> float | None:
        """A behavior's rating in training_status.json; None where there is none."""
        entry = self._read_status().get(behavior)
        elo = entry.get("elo") if isinstance(entry, dict) else None
        return float(elo) if isinstance(elo, int | float) and math.isfinite(elo) else None

    def _read_status(self) -> dict[str, Any]:
        """A table of contents on which nothing depends: one that cannot be read is begun anew."""
        try:
            status = json.loads(self.status.read_text("utf-8"))
            known = all(
                isinstance(c["steps"], int) and isinstance(c["file_path"], str)
                for behavior in self.behaviors
                for c in status.get(behavior, {}).get("checkpoints", [])
            )
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return {}
        return status if known else {}


def read_checkpoint(path: Path) -> dict[str, Any]:
    """A checkpoint of any run, without executing anything in it. Raises CheckpointError with what to do."""
    try:
        state = read_tensors(path)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}. The policies are still in {path.parent}/*.onnx: start anew with --force, or restore the file "
            "from a backup."
        ) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(
            f"{path}: checkpoint format {found}; this palus ({__version__}) reads format {FORMAT}. "
            "Resume it with the palus that wrote it."
        )
    return _unpack(state, path)  # type: ignore[no-any-return]


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


def _unpack(tree: Any, path: Path) -> Any:
    if isinstance(tree, dict):
        return array_of(tree[_ARRAY], path) if _ARRAY in tree else {k: _unpack(v, path) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_unpack(v, path) for v in tree)
    return tree
