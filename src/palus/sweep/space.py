"""The search space: which keys of a run file vary, and between what. One line of YAML per key:

behaviors.SoccerTwos.hyperparameters.learning_rate: {log: [1e-5, 1e-3]}
behaviors.SoccerTwos.hyperparameters.beta: {uniform: [0.001, 0.02]}
behaviors.SoccerTwos.hyperparameters.num_epoch: {int: [1, 10]}
behaviors.SoccerTwos.network_settings.hidden_units: {choice: [128, 256, 512]}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
import yaml

from palus.config import RunFile
from palus.config.faults import Fault, found, near_name
from palus.config.source import Source, parse_tree
from palus.errors import ConfigError

KINDS = ("log", "uniform", "int", "choice")
FORM = "{log: [LOW, HIGH]}, {uniform: [LOW, HIGH]}, {int: [LOW, HIGH]} or {choice: [ONE, OTHER, ...]}"
_END = "...\n"
"""What YAML puts after a plain value."""
OWN_KEYS = ("checkpoint_settings", "env_settings.seed", "palus.max_minutes", "max_steps", "trainer_type")
"""Keys, or last words of keys, that are the same in all trials, or that each trial has its own of."""


@dataclass(frozen=True)
class Dimension:
    """A key of the run file that varies. path: dotted. kind: one of KINDS. values: (low, high), both included, or the
    choices."""

    path: str
    kind: str
    values: tuple[Any, ...]

    @property
    def labels(self) -> dict[Any, Any]:
        """What the study calls a choice -> the choice; sections and lists go by their JSON."""
        return {json.dumps(v) if isinstance(v, dict | list) else v: v for v in self.values}

    def suggest(self, trial: optuna.Trial) -> Any:
        """The value of this trial, by its label."""
        if self.kind == "choice":
            return trial.suggest_categorical(self.path, list(self.labels))
        if self.kind == "int":
            return trial.suggest_int(self.path, *self.values)
        return trial.suggest_float(self.path, *self.values, log=self.kind == "log")

    def holds(self, value: object) -> bool:
        """Whether a value lies in it, by its label."""
        if self.kind == "choice":
            return isinstance(value, str | int | float | bool | None) and value in self.labels
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and (self.kind != "int" or isinstance(value, int))
            and self.values[0] <= value <= self.values[1]
        )

    def override(self, label: Any) -> str:
        """The value of that label as `load_run` takes it."""
        value = self.labels[label] if self.kind == "choice" else label
        text = yaml.safe_dump(value, default_flow_style=True, width=math.inf)
        return f"{self.path}={text.removesuffix(_END)}"


def read_space(source: Source) -> tuple[Dimension, ...]:
    """The dimensions of a search space, in the order of the file. Raises ConfigError with all its faults."""
    tree, faults = parse_tree(source.text, least=f"one key that varies, as KEY: {FORM}")
    space = []
    for path, told in tree.items():
        dimension = _dimension(path, told)
        if isinstance(dimension, Fault):
            faults.append(dimension)
        else:
            space.append(dimension)
    if faults:
        raise ConfigError([fault.sentence(source.label) for fault in faults])
    if not space:
        raise ConfigError(f"{source.label}: nothing varies; give a line for each key that does, PATH: {FORM}")
    return tuple(space)


def _dimension(path: str, told: object) -> Dimension | Fault:
    """What a line says, or what is wrong with it."""
    if not isinstance(told, dict) or len(told) != 1:
        return Fault((path,), f"expected {FORM}, found {found(told) if not isinstance(told, dict) else list(told)}")
    [(kind, values)] = told.items()
    own = next((key for key in OWN_KEYS if f"{path}.".startswith(f"{key}.") or path.endswith(f".{key}")), None)
    if own is not None:
        return Fault((path,), "cannot vary: trials are compared at the same one, or the sweep gives each its own")
    if kind not in KINDS:
        near = near_name(str(kind), KINDS)
        return Fault((path, kind), f"did you mean {near}?" if near else f"expected {FORM}")
    if kind == "choice":
        if not isinstance(values, list) or len(values) < 2:
            return Fault((path, kind), f"expected a list of at least two values, found {values!r}")
        return Dimension(path, kind, tuple(float(v) if _is_power(v) else v for v in values))
    bounds = [_number(value) for value in values] if isinstance(values, list) else []
    if len(bounds) != 2 or not bounds[0] < bounds[1]:
        return Fault((path, kind), f"expected [LOW, HIGH], two numbers with LOW < HIGH, found {values!r}")
    if kind == "log" and bounds[0] <= 0:
        return Fault((path, kind), f"expected a LOW above 0, found {values[0]!r}; zero has no logarithm")
    if kind == "int":
        if not all(bound.is_integer() for bound in bounds):
            return Fault((path, kind), f"expected two whole numbers, found {values!r}; uniform takes others")
        return Dimension(path, kind, tuple(int(bound) for bound in bounds))
    return Dimension(path, kind, tuple(bounds))


def _is_power(value: object) -> bool:
    """Whether it is a number that YAML takes for text, as it does `1e-5`, which has no dot."""
    return isinstance(value, str) and re.fullmatch(r"[-+]?\d+[eE][-+]?\d{1,3}", value) is not None


def _number(value: object) -> float:
    """A finite number; NaN for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    number = float(value) if is_number or _is_power(value) else math.nan  # type: ignore[arg-type]
    return number if math.isfinite(number) else math.nan


def misfitting(space: Sequence[Dimension], label: str, load: Callable[[Sequence[str]], RunFile]) -> list[str]:
    """Every bound and every choice that the run file does not take, a sentence each.

    load: the run with overrides. label: how faults name the space. Where keys are compared with one another, a value
    has to be right beside the file's own values, beside the lowest or beside the highest of the other dimensions.
    """
    ends = {d.path: [d.override(label) for label in (d.labels if d.kind == "choice" else d.values)] for d in space}
    sentences: list[str] = []
    for path, overrides in ends.items():
        others = [own for other, own in ends.items() if other != path]
        beside = [[], [own[0] for own in others], [own[-1] for own in others]]
        for override in overrides:
            refusals = [_refusal(load, [override, *company]) for company in beside]
            if all(refusals):
                sentences += _told(refusals[0], label, path)
    return list(dict.fromkeys(sentences))


def _refusal(load: Callable[[Sequence[str]], RunFile], overrides: Sequence[str]) -> list[str]:
    try:
        load(overrides)
    except ConfigError as error:
        return error.faults
    return []


def _told(faults: Sequence[str], label: str, path: str) -> Iterator[str]:
    """Faults of a run file, as the space's."""
    for fault in faults:
        yield label + fault.removeprefix("override") if fault.startswith("override,") else f"{label}, {path}: {fault}"
