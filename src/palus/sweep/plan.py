"""What a sweep compares, the same for everybody who takes part: run file, search space, objectives, budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from palus import __version__
from palus.config import RunFile, load_run
from palus.config.load import plain
from palus.config.source import Source, Tree, apply_overrides, parse_tree, read_source
from palus.config.trainer import AnyBehavior
from palus.errors import ConfigError
from palus.run.misfits import completed, misfits
from palus.sweep.objective import MARKS, Objective
from palus.sweep.space import Dimension, misfitting, read_space
from palus.trust import NOBODY, Trust


@dataclass(frozen=True)
class Plan:
    """A sweep. tree: the run file with the overrides of the command line. seeds: runs per trial, whose objectives are
    averaged. steps: trainer steps of each run, None for the file's max_steps. minutes: its wall time, 0 for no limit.
    prunes: trials without prospects end early. heartbeat_s: seconds between a worker's signs of life.
    """

    tree: Tree
    space: tuple[Dimension, ...]
    objectives: tuple[Objective, ...]
    seeds: int = 1
    steps: int | None = None
    minutes: float = 0.0
    prunes: bool = True
    heartbeat_s: int = 30

    def to_json(self) -> str:
        """As the study keeps it, with the version of palus that trains."""
        space = {dimension.path: {dimension.kind: list(dimension.values)} for dimension in self.space}
        told = {
            "palus": __version__, "run": self.tree, "space": space,
            "objectives": [str(objective) for objective in self.objectives], "seeds": self.seeds,
            "steps": self.steps, "minutes": self.minutes, "prunes": self.prunes, "heartbeat": self.heartbeat_s,
        }  # fmt: skip
        return json.dumps(told)

    @classmethod
    def of_json(cls, text: str) -> Plan:
        """What `to_json` wrote. Raises ConfigError where the study holds something else."""
        try:
            told = json.loads(text)
            space = read_space(Source("the study's space", yaml.safe_dump(told["space"], sort_keys=False)))
            objectives = tuple(Objective.of(word) for word in told["objectives"])
            budget = (told[key] for key in ("seeds", "steps", "minutes", "prunes", "heartbeat"))
            return cls(told["run"], space, objectives, *budget)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"the study was not made by `palus sweep` ({error}); choose another --name") from error

    @property
    def _source(self) -> Source:
        return Source("run file", yaml.safe_dump(self.tree, sort_keys=False, allow_unicode=True))

    def load(self, overrides: Sequence[str] = (), trust: Trust = NOBODY) -> RunFile:
        """The run with other values. Raises ConfigError."""
        return load_run(self._source, overrides, judge=lambda run: misfits(run, trust))

    def overrides(self, labels: Mapping[str, Any]) -> list[str]:
        """labels: of the value of every dimension, by path."""
        return [dimension.override(labels[dimension.path]) for dimension in self.space]

    def run(self, labels: Mapping[str, Any], folder: Path, seed: int, trust: Trust = NOBODY) -> RunFile:
        """One run of a trial: with these values, within the budget, reporting often enough to be judged at every mark.

        labels: as for `overrides`. folder: of the trial. seed: 0 for the first of its runs, and so on.
        Raises ConfigError where these values do not go together.
        """
        run = completed(self.load(self.overrides(labels), trust), trust)
        behaviors = {name: self._telling(own) for name, own in run.behaviors.items()}
        later = None if run.default_settings is None else self._telling(run.default_settings)
        palus: dict[str, Any] = {"max_minutes": self.minutes}
        if any(objective.name == "win_rate" for objective in self.objectives):
            steps = max(own.max_steps for own in behaviors.values())
            palus["baseline_interval"] = 1 if self.minutes else max(1, steps // MARKS)
        own_seed = max(run.env_settings.seed, 0) + seed
        checkpoints = {"run_id": f"seed-{own_seed}", "results_dir": str(folder), "resume": False, "force": False}
        return run.changed(
            behaviors=behaviors,
            default_settings=later,
            palus=palus,
            env_settings={"seed": own_seed},
            checkpoint_settings=checkpoints,
        )

    def present(self) -> dict[str, Any] | None:
        """Labels of the values that the run file has itself; None where it lies outside of the space."""
        tree, labels = plain(load_run(self._source)), dict[str, Any]()
        for dimension in self.space:
            value = _at(tree, dimension.path)
            if isinstance(value, dict | list):
                value = self._label_of(dimension, value)
            if not dimension.holds(value):
                return None
            labels[dimension.path] = value
        return labels

    def _label_of(self, dimension: Dimension, value: object) -> str:
        """The choice that makes a section or a list what it is in the file, whose defaults it need not spell out."""
        for label, choice in dimension.labels.items() if dimension.kind == "choice" else ():
            if isinstance(choice, dict | list):
                with suppress(ConfigError):  # right only beside values of other dimensions
                    run = load_run(self._source, [dimension.override(label)])
                    if _at(plain(run), dimension.path) == value:
                        return str(label)
        return json.dumps(value)

    def best_file(self, labels: Mapping[str, Any], run_id: str, comment: str) -> str:
        """The run file with these values, for `palus train`: as long as the file itself trains."""
        tree, _, _ = apply_overrides(self.tree, [*self.overrides(labels), f"checkpoint_settings.run_id={run_id}"])
        lines = "".join(f"# {line}\n" for line in comment.splitlines())
        return lines + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120)

    def _telling(self, behavior: AnyBehavior) -> AnyBehavior:
        """The settings within the budget, with a summary for every mark; who is to learn nothing learns nothing."""
        steps = behavior.max_steps if self.steps is None or not behavior.max_steps else self.steps
        often = min(behavior.summary_freq, max(1, steps // MARKS))
        return behavior.changed(max_steps=steps, summary_freq=often)


def _at(tree: object, path: str) -> object:
    """What stands there in a run file; None without."""
    for word in path.split("."):
        tree = tree.get(word) if isinstance(tree, dict) else None
    return tree


def make_plan(
    file: str, overrides: Sequence[str], space: Path, objectives: Sequence[str], trust: Trust, **budget: Any
) -> Plan:
    """A checked plan: every key and value of the space is tried on the run file, every objective looked up.

    file: run file or preset. space: file of the search space. budget: of `Plan`. Raises ConfigError with all faults.
    """
    source = read_source(file)
    load_run(source, overrides, judge=lambda run: misfits(run, trust))
    tree, _, _ = apply_overrides(parse_tree(source.text)[0], overrides)
    if not space.is_file():
        found = "found a folder, expected a YAML file" if space.is_dir() else "no such file"
        raise ConfigError(f"{space}: {found}; write the keys that vary into it, see `palus sweep run --help`")
    text = read_source(space)
    plan = Plan(tree, read_space(text), tuple(Objective.of(word) for word in objectives), **budget)
    run = completed(plan.load(trust=trust), trust)
    faults = [fault for objective in plan.objectives if (fault := objective.fault(run)) is not None]
    if run.checkpoint_settings.initialize_from is not None:
        faults.append("checkpoint_settings.initialize_from: name the file with init_path of the behaviors instead")
    if run.checkpoint_settings.inference:
        faults.append("checkpoint_settings.inference: nothing is learned, so there is nothing to compare")
    faults += misfitting(plan.space, text.label, lambda own: plan.load(own, trust))
    if faults:
        raise ConfigError(faults)
    return plan
