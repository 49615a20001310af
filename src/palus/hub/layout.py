"""Which files of a run, a bundle or a bare model make a published repository, in the layout of `mlagents-push-to-hf`.

    <Behavior>.onnx     the model that plays           <Behavior>/ checkpoints, TensorBoard events
    configuration.yaml  config.json  bundle.json       run_logs/   training_status.json, timers.json
    README.md           the card                       replay.match, replay.html, training_curve.svg
    evaluation.json     replay.mp4                     of an agent that `palus enjoy` has measured
    probe.json          probe.svg                      of a model that `palus probe` has probed

Left out: hidden files, and unless asked for the opponents of self-play (`<Behavior>/snapshots/`), which take more room
than all else together. Nothing is written into the user's folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from palus.config.source import parse_yaml
from palus.envs import BUILT_IN, arena_games
from palus.errors import HubError
from palus.export.bundle import Provenance
from palus.files import digest_of
from palus.hub.limits import HubLimits
from palus.types import DEFAULT_GAME

MAX_FILES = HubLimits.repo_files
"""More files than this are refused by hubs, and are a sign of a folder named by mistake."""

GITATTRIBUTES = "".join(
    f"{p} filter=lfs diff=lfs merge=lfs -text\n" for p in ("*.onnx", "*.pt", "*.npz", "*tfevents*", "*.mp4")
)
"""What huggingface.co's own default says of these files."""

Content: TypeAlias = bytes | Path
"""Bytes made for the repository, or a file on disk."""


@dataclass(frozen=True)
class LocalRun:
    """A run, bundle or model as it lies on disk.

    name: of the folder or file. behavior: the first one, whose is `model`. files: path in the repository -> file.
    configuration: the run file, {} without. facts: of bundle.json and training_status.json (steps, elo, results, ...),
    {} when unknown. readme: README.md of the folder, None without.
    """

    name: str
    behavior: str
    model: Path
    files: Mapping[str, Path]
    configuration: Mapping[str, Any]
    facts: Mapping[str, Any]
    readme: str | None

    @property
    def trainer_type(self) -> str | None:
        """`poca`, `ppo`, ...; None when nobody knows."""
        behavior = (self.configuration.get("behaviors") or {}).get(self.behavior)
        known = behavior.get("trainer_type") if isinstance(behavior, dict) else None
        return known or self.facts.get("trainer_type")

    @property
    def game(self) -> str:
        """What it plays: the game that the run names, else the one of an arena that has its behaviors. A game that is
        not palus's own is called as the behavior is."""
        if self._named_game:
            return self._named_game if self._named_game in BUILT_IN else self.behavior
        games = arena_games().values()
        return next((game.env for game in games if set(game.behaviors) == self.models.keys()), self.behavior)

    @property
    def is_agent(self) -> bool:
        """Whether it is an agent, measured by its own score, and no team that only matches tell anything about."""
        declared = arena_games().get(self.game)
        return bool(self._named_game) if declared is None else declared.filmed

    @property
    def is_of_executable(self) -> bool:
        """Whether it was trained in a Unity executable."""
        settings = self.configuration.get("env_settings")
        return isinstance(settings, dict) and settings.get("env_path") is not None

    @property
    def _named_game(self) -> str:
        palus = self.configuration.get("palus")
        return str((palus.get("env") if isinstance(palus, dict) else None) or self.facts.get("env_id") or "")

    @property
    def provenance(self) -> Provenance:
        """Where it comes from, as far as the folder tells."""

        def number(key: str) -> float | None:
            value = self.facts.get(key)
            return value if isinstance(value, int | float) else None

        steps, results, pairs = number("steps"), self.facts.get("results"), number("result_pairs")
        return Provenance(
            self.game,
            self.trainer_type,
            None if steps is None else int(steps),
            number("wall_seconds"),
            number("elo"),
            {str(k): float(v) for k, v in results.items()} if isinstance(results, dict) else {},
            None if pairs is None else int(pairs),
        )

    @property
    def models(self) -> dict[str, Path]:
        """The model of each behavior that was trained."""
        behaviors = self.configuration.get("behaviors") or (self.behavior,)
        found = {str(name): self.files.get(f"{name}.onnx") for name in behaviors}
        return {name: path for name, path in found.items() if path is not None}

    @property
    def player(self) -> Path:
        """What commands that play take for it: the model, or the folder of several."""
        return self.model.parent if len(self.models) > 1 else self.model

    @property
    def sha256(self) -> str:
        """Of all models: what the arena rates."""
        return digest_of({name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in self.models.items()})

    @property
    def event_files(self) -> tuple[Path, ...]:
        """TensorBoard files of the behavior, oldest first."""
        return tuple(
            p for path, p in sorted(self.files.items()) if path.startswith(f"{self.behavior}/events.out.tfevents")
        )

    def owns(self, path: str) -> bool:
        """Whether a push owns this path of a repository, so that it goes when the run no longer has it."""
        return path.startswith((*(f"{name}/" for name in self.models), "run_logs/"))


def read_run(path: Path, configfile_name: str = "configuration.yaml", *, snapshots: bool = False) -> LocalRun:
    """What lies at `path`: a run's folder (of palus or ML-Agents), a bundle, or one .onnx file.

    snapshots: with the opponents of self-play, without which nobody can continue the training.
    Raises HubError when there is no model, or the folder cannot be a run.
    """
    if path.is_file() and path.suffix == ".onnx":
        return LocalRun(path.stem, DEFAULT_GAME, path, {f"{DEFAULT_GAME}.onnx": path}, {}, {}, None)
    if not path.is_dir():
        raise HubError(f"{path}: no such run; give a run's folder (results/RUN_ID), a bundle, or an .onnx file")
    configuration = _mapping(path / configfile_name, _yaml)
    behavior = _first_behavior(path, configuration)
    files = dict(_files(path, snapshots))
    if len(files) > MAX_FILES:
        raise HubError(
            f"{path}: holds {len(files)} files, a repository at most {MAX_FILES}; name the folder of one run"
        )
    facts = _status_facts(_mapping(path / "run_logs" / "training_status.json", json.loads), behavior)
    facts |= _mapping(path / "bundle.json", json.loads)
    readme = files.get("README.md")  # not one that is a link
    text = readme.read_text("utf-8", errors="replace") if readme is not None else None
    return LocalRun(path.resolve().name, behavior, files[f"{behavior}.onnx"], files, configuration, facts, text)


def repository_files(run: LocalRun, card: str, made: Mapping[str, bytes]) -> dict[str, Content]:
    """Path -> content of the repository. made: replay, curve and the like; they replace files of the same name."""
    files: dict[str, Content] = {**run.files, **made, "README.md": card.encode()}
    if run.configuration:
        files["config.json"] = json.dumps(run.configuration, default=str).encode()
    files.setdefault(".gitattributes", GITATTRIBUTES.encode())
    return dict(sorted(files.items()))


def _files(folder: Path, snapshots: bool) -> Iterator[tuple[str, Path]]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_file():
            yield entry.name, entry
        elif entry.is_dir() and (snapshots or entry.name != "snapshots"):
            yield from ((f"{entry.name}/{path}", file) for path, file in _files(entry, snapshots))


def _first_behavior(folder: Path, configuration: Mapping[str, Any]) -> str:
    """The first behavior of the run file, as ML-Agents takes it; without a run file the only model there is."""
    models = sorted(p.stem for p in folder.glob("*.onnx"))
    behaviors = configuration.get("behaviors")
    first = next(iter(behaviors), None) if isinstance(behaviors, dict) else None
    if first in models:
        return str(first)
    if first is None and len(models) == 1:
        return models[0]
    expected = f"{first}.onnx" if first else f"one model, as {DEFAULT_GAME}.onnx"
    found = ", ".join(f"{name}.onnx" for name in models) or "no .onnx file"
    raise HubError(
        f"{folder}: found {found}, expected {expected} in the folder itself; "
        "train until the first checkpoint, or name the folder that holds the exported model"
    )


def _mapping(path: Path, load: Any) -> dict[str, Any]:
    """A YAML or JSON file with an object in it; {} when it is not there, or a link. Raises HubError."""
    if path.is_symlink() or not path.is_file():
        return {}
    try:
        content = load(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise HubError(f"{path}: cannot be read ({reason}); repair it, or move it out of the folder") from error
    if not isinstance(content, dict):
        raise HubError(f"{path}: holds {type(content).__name__}, expected named values; repair it or move it away")
    return content


def _yaml(text: str) -> Any:
    """Its value. Raises ValueError for what is none, and where a few lines of aliases stand for a large one."""
    value, faults = parse_yaml(text)
    if faults:
        raise ValueError(faults[0].text)
    return value


def _status_facts(status: Mapping[str, Any], behavior: str) -> dict[str, Any]:
    """What ML-Agents' training_status.json knows: the rating and the steps of the last checkpoint."""
    entry = status.get(behavior)
    if not isinstance(entry, dict):
        return {}
    final = entry.get("final_checkpoint")
    return {"elo": entry.get("elo"), "steps": final.get("steps") if isinstance(final, dict) else None}
