"""What a sweep tells: the table of its trials, pictures, and the run file with the best values."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import LinearTriInterpolator, Triangulation, UniformTriRefiner
from optuna.trial import FrozenTrial, TrialState

from palus.files import remove, write_bytes, write_text
from palus.sweep.objective import MARKS
from palus.sweep.plan import Plan
from palus.sweep.space import Dimension
from palus.sweep.study import CURVES, DONE, WHERE, WHY, counting, describe

STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
    TrialState.FAIL: "failed",
}
MOST_PANELS = 4
"""Dimensions of the contour picture, the most important ones."""


@dataclass(frozen=True)
class TrialRow:
    """A trial in the table. values: of the objectives, of a pruned or running one where it is. done: share of its
    budget. labels: of its values, by path."""

    number: int
    state: str
    best: bool
    values: list[float | None]
    done: float
    labels: dict[str, Any]
    where: str
    why: str


def rows(study: optuna.Study, plan: Plan) -> list[TrialRow]:
    """Every trial of a study that counts, in order."""
    best = {trial.number for trial in best_trials(study)}
    return [
        TrialRow(
            trial.number, STATES[trial.state], trial.number in best, _values(trial, plan),
            1.0 if trial.state == TrialState.COMPLETE else trial.user_attrs.get(DONE, 0.0), dict(trial.params),
            trial.user_attrs.get(WHERE, ""), trial.user_attrs.get(WHY, ""),
        )
        for trial in counting(study.get_trials(deepcopy=False))
    ]  # fmt: skip


def best_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The complete trial with the highest value; of several objectives all that none other beats in each."""
    if not any(trial.state == TrialState.COMPLETE for trial in study.get_trials(deepcopy=False)):
        return []
    if len(study.directions) > 1:
        return list(study.best_trials)
    return [study.best_trial]


def _values(trial: FrozenTrial, plan: Plan) -> list[float | None]:
    if trial.state == TrialState.COMPLETE:
        return list(trial.values)
    return [points[-1][1] if (points := _curve(trial, str(name))) else None for name in plan.objectives]


def _curve(trial: FrozenTrial, objective: str) -> list[tuple[float, float]]:
    """(percent of the budget of a run, value), rising."""
    told = trial.user_attrs.get(CURVES, {}).get(objective, {})
    return sorted((100 * int(mark) / MARKS, value) for mark, value in told.items())


def write_outcome(study: optuna.Study, plan: Plan, folder: Path) -> list[Path]:
    """Write what there is to be seen by now: best run files and pictures; those of trials that were best before go.
    Returns the files. Raises StorageError."""
    files: list[Path] = []
    best = best_trials(study)
    for trial in best:
        told = zip(plan.objectives, trial.values, strict=True)
        comment = (
            f"Trial {trial.number} of the sweep {study.study_name}: {describe(trial.params)};\n"
            f"{', '.join(f'{name} {value:.4g}' for name, value in told)}, mean of {plan.seeds} run(s)."
        )
        run_id = f"{study.study_name}-best"
        path = folder / ("best.yaml" if len(best) == 1 else f"best-{trial.number:04d}.yaml")
        write_text(path, plan.best_file(trial.params, run_id, comment))
        files.append(path)
    own = re.compile(rf"# Trial \d+ of the sweep {re.escape(study.study_name)}: ")
    for path in {*folder.glob("best.yaml"), *folder.glob("best-[0-9]*.yaml")} - {*files}:
        if own.match(path.read_text(errors="replace")):
            remove(path)
    for n, objective in enumerate(plan.objectives):
        suffix = "" if len(plan.objectives) == 1 else re.sub(r"\W+", "-", f"-{objective}")
        for name, figure in _pictures(study, plan, n).items():
            path, image = folder / f"{name}{suffix}.png", BytesIO()
            figure.savefig(image, format="png", dpi=110)
            write_bytes(path, image.getvalue())
            files.append(path)
    return files


def _pictures(study: optuna.Study, plan: Plan, n: int) -> dict[str, Figure]:
    """By name, of objective n, as far as there are trials for them."""
    trials = counting(study.get_trials(deepcopy=False))
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    figures = {}
    if any(_curve(trial, str(plan.objectives[n])) for trial in trials):
        figures["curves"] = _curves(trials, plan, n)
    if len(complete) >= 2:
        weights = importances(study, plan, n)
        names = sorted(weights, key=lambda path: -weights[path])
        space = {dimension.path: dimension for dimension in plan.space}
        figures["importances"] = _bars({path: weights[path] for path in names})
        figures["slices"] = _slices(complete, plan, n, [space[path] for path in names])
        if len(names) >= 2:
            figures["contours"] = _contours(complete, plan, n, [space[path] for path in names[:MOST_PANELS]])
    return figures


def importances(study: optuna.Study, plan: Plan, n: int) -> dict[str, float]:
    """Dimension -> its share of what decides whether a trial is among the better ones of objective n, 1 in all.

    Source: Watanabe et al., PED-ANOVA: efficiently quantifying hyperparameter importance in arbitrary subspaces, 2023.
    """
    paths = [dimension.path for dimension in plan.space]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that low targets count as good
        told = optuna.importance.get_param_importances(study, params=paths, target=lambda trial: -trial.values[n])
    return {path: float(told.get(path, 0.0)) for path in paths}


def _curves(trials: Sequence[FrozenTrial], plan: Plan, n: int) -> Figure:
    """Learning curves of all trials over one another; the darker, the better they ended, the best one in red."""
    figure = Figure((8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="% of the budget", ylabel=str(plan.objectives[n]))
    ends = [(points[-1][1], trial, points) for trial in trials if (points := _curve(trial, str(plan.objectives[n])))]
    # Of equals the first is the best, as in the table.
    ends.sort(key=lambda end: (end[1].state == TrialState.COMPLETE, end[0], -end[1].number))
    for rank, (_, trial, points) in enumerate(ends, 1):
        is_best = rank == len(ends)
        axes.plot(
            *zip(*points, strict=True), color="crimson" if is_best else "0.2", linewidth=2.2 if is_best else 1,
            alpha=1 if is_best else 0.15 + 0.6 * rank / len(ends), marker="." if len(points) == 1 else None,
            linestyle="-" if trial.state == TrialState.COMPLETE else ":",
            label=f"trial {trial.number}: {describe(trial.params)}" if is_best else None,
        )  # fmt: skip
    axes.set_title(f"{len(ends)} trials; dotted: not complete", fontsize=9, loc="left")
    axes.legend(loc="best", fontsize=8)
    return figure


def _bars(weights: dict[str, float]) -> Figure:
    figure = Figure((8, 1 + 0.4 * len(weights)), layout="constrained")
    axes = figure.add_subplot(xlabel="importance (PED-ANOVA)", xlim=(0, 1.08))
    bars = axes.barh([_short(path) for path in weights], list(weights.values()), color="#2458c5")
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.invert_yaxis()
    return figure


def _slices(trials: Sequence[FrozenTrial], plan: Plan, n: int, space: Sequence[Dimension]) -> Figure:
    """The objective over each dimension, the most important one first; later trials are darker."""
    columns = min(3, len(space))
    lines = -(-len(space) // columns)
    figure = Figure((3.4 * columns + 0.8, 3 * lines), layout="constrained")
    for k, dimension in enumerate(space):
        axes = figure.add_subplot(lines, columns, k + 1)
        values = [trial.values[n] for trial in trials]
        axes.scatter(_places(trials, dimension), values, c=[t.number for t in trials], cmap="Blues", edgecolors="0.3")
        _scale(axes, dimension, "x")
        axes.set_ylabel(str(plan.objectives[n]) if k % columns == 0 else "")
    return figure


def _contours(trials: Sequence[FrozenTrial], plan: Plan, n: int, space: Sequence[Dimension]) -> Figure:
    """The objective over each two of the most important dimensions: trials as points, and what lies between them."""
    pairs = [(a, b) for k, a in enumerate(space) for b in space[k + 1 :]]
    columns = min(3, len(pairs))
    lines = -(-len(pairs) // columns)
    figure = Figure((3.8 * columns + 0.8, 3.2 * lines), layout="constrained")
    values = [trial.values[n] for trial in trials]
    for k, (across, up) in enumerate(pairs):
        axes = figure.add_subplot(lines, columns, k + 1)
        x, y = _places(trials, across), _places(trials, up)
        if (between := _between(across, x, up, y, values)) is not None:
            axes.tricontourf(*between, levels=12, cmap="viridis", alpha=0.7)
        points = axes.scatter(x, y, c=values, cmap="viridis", edgecolors="0.2")
        _scale(axes, across, "x")
        _scale(axes, up, "y")
        if k == len(pairs) - 1:
            figure.colorbar(points, ax=figure.axes, label=str(plan.objectives[n]))
    return figure


def _between(
    across: Dimension, x: Sequence[float], up: Dimension, y: Sequence[float], values: Sequence[float]
) -> tuple[Triangulation, Any] | None:
    """Points between those of trials, and their values: straight from one to the next in the picture, whose axes may be
    logarithmic. None where trials span no triangle, and between choices, where there is nothing."""
    if "choice" in (across.kind, up.kind):
        return None
    points = np.stack([np.log(own) if d.kind == "log" else np.array(own) for d, own in ((across, x), (up, y))])
    low, wide = points.min(axis=1), np.maximum(np.ptp(points, axis=1), 1e-12)
    try:
        seen = Triangulation(*((points.T - low) / wide).T)
    except (RuntimeError, ValueError):  # fewer than three, or all on a line
        return None
    fine, level = UniformTriRefiner(seen).refine_field(values, LinearTriInterpolator(seen, values))
    drawn = np.stack([fine.x, fine.y]).T * wide + low
    right, top = (np.exp(own) if d.kind == "log" else own for d, own in zip((across, up), drawn.T, strict=True))
    return Triangulation(right, top, fine.triangles), level


def _places(trials: Sequence[FrozenTrial], dimension: Dimension) -> list[float]:
    """Where trials stand on the axis of a dimension: a choice by its number."""
    labels = list(dimension.labels)
    own = [trial.params[dimension.path] for trial in trials]
    return [float(labels.index(value)) for value in own] if dimension.kind == "choice" else own


def _scale(axes: Axes, dimension: Dimension, which: str) -> None:
    axes.set(**{f"{which}label": _short(dimension.path)})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.margins(0.06)
    axes.use_sticky_edges = False
    if dimension.kind == "log":
        axes.set(**{f"{which}scale": "log"})
    elif dimension.kind == "int":
        axis.set_major_locator(MaxNLocator(integer=True))
    elif dimension.kind == "choice":
        labels = [str(label) for label in dimension.labels]
        axis.set_ticks(range(len(labels)), labels=[f"{text[:14]}..." if len(text) > 16 else text for text in labels])


def _short(path: str) -> str:
    """The last word of a key."""
    return path.rpartition(".")[2]
