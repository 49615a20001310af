"""ML-Agents' own run files, rebuilt from the table of their facts (`data/stock_files.txt`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

Tree = dict[str, Any]
TABLE = Path(__file__).parent / "data" / "stock_files.txt"
LONG = {
    "hyper": "hyperparameters",
    "network": "network_settings",
    "memory": "network_settings.memory",
    **{name: f"reward_signals.{name}" for name in ("extrinsic", "curiosity", "gail", "rnd")},
}


def uniform(low: float, high: float) -> Tree:
    return {"sampler_type": "uniform", "sampler_parameters": {"min_value": low, "max_value": high}}


def curriculum(behavior: str, thresholds: Sequence[float], values: Sequence[float | Tree]) -> Tree:
    """Lessons by progress, of 100 episodes at least."""
    lessons: list[Tree] = [{"name": f"Lesson{n}", "value": value} for n, value in enumerate(values)]
    rule = {"behavior": behavior, "measure": "progress", "min_lesson_length": 100, "signal_smoothing": True}
    for lesson, threshold in zip(lessons, thresholds, strict=False):
        lesson["completion_criteria"] = rule | {"threshold": threshold}
    return {"curriculum": lessons}


PARAMETERS: dict[str, Tree] = {
    "ppo/3DBall_randomize": {"mass": uniform(0.5, 10), "scale": uniform(0.75, 3)},
    "ppo/Sorter_curriculum": {
        "num_tiles": curriculum(
            "Sorter", [0.3, 0.4, *(n / 100 for n in range(45, 76, 5))], [float(n) for n in range(2, 21, 2)]
        )
    },
    "ppo/WallJump_curriculum": {
        "big_wall_height": curriculum(
            "BigWallJump", [0.1, 0.3, 0.5], [uniform(0.0, 4.0), uniform(4.0, 7.0), uniform(6.0, 8.0), 8.0]
        ),
        "small_wall_height": curriculum("SmallWallJump", [0.1, 0.3, 0.5], [1.5, 2.0, 2.5, 4.0]),
    },
}
OLD_PARAMETERS: dict[str, Tree] = {
    "ppo/3DBall_randomize": {
        "resampling-interval": 5000,
        **{
            name: {"sampler-type": "uniform", "min_value": low, "max_value": high}
            for name, low, high in (("mass", 0.5, 10), ("gravity", 7, 12), ("scale", 0.75, 3))
        },
    }
}
OLD_LESSONS: dict[tuple[str, str], tuple[list[float], dict[str, list[float]]]] = {
    ("ppo/SoccerTwos", "SoccerTwos"): ([0.05, 0.1], {"ball_touch": [1.0, 0.5, 0.0]}),
    ("ppo/WallJump_curriculum", "BigWallJump"): (
        [0.1, 0.3, 0.5],
        {"big_wall_min_height": [0.0, 4.0, 6.0, 8.0], "big_wall_max_height": [4.0, 7.0, 8.0, 8.0]},
    ),
    ("ppo/WallJump_curriculum", "SmallWallJump"): ([0.1, 0.3, 0.5], {"small_wall_height": [1.5, 2.0, 2.5, 4.0]}),
}
"""By file and behavior, thresholds of progress and the values of each parameter."""


FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def stock_files(kind: str) -> dict[str, Tree]:
    """Name -> file, as YAML reads it. kind: "new" or "old"."""
    files: dict[str, Tree] = {}
    columns: list[str] = []
    for line in TABLE.read_text().splitlines():
        words = line.split()
        if line.startswith("["):
            columns = words[3:] if words[0] == f"[{kind}]" else []
        elif columns and words and not line.startswith("#"):
            name, behavior, *values = words
            pairs = [*zip(columns, values, strict=False), *(word.split("=", 1) for word in values[len(columns) :])]
            own: Tree = {}
            for key, value in pairs:
                if value != "-":
                    _put(own, key, yaml.load(value, FAST))
            file = files.setdefault(name, {})
            (file if behavior == "default_settings" else file.setdefault("behaviors", {}))[behavior] = own
    if kind == "new":
        for name, parameters in PARAMETERS.items():
            files[name]["environment_parameters"] = parameters
        return files
    for name, parameters in OLD_PARAMETERS.items():
        files[name]["parameter_randomization"] = parameters
    for (name, behavior), (thresholds, lists) in OLD_LESSONS.items():
        rule = {"measure": "progress", "thresholds": thresholds, "min_lesson_length": 100, "signal_smoothing": True}
        files[name]["behaviors"][behavior]["curriculum"] = rule | {"parameters": lists}
    return files


def _put(tree: Tree, key: str, value: object) -> None:
    *holders, last = ".".join(LONG.get(part, part) for part in key.split(".")).split(".")
    for holder in holders:
        tree = tree.setdefault(holder, {})
    tree[last] = value
