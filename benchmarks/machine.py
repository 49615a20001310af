"""What every result says about where it was measured, and how results are stored. Imports neither torch nor numba."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from palus import __version__
from palus.files import write_text

Json = dict[str, Any]

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("torch", "numba", "numpy", "onnxruntime")
FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_bf16", "asimd", "bf16", "sve")
"""Processor features that decide how fast matrix products are."""


class Session:
    """One call of a recipe: its start, and the machine's load before and after."""

    def __init__(self, recipe: str, arguments: Json) -> None:
        self.recipe, self.arguments = recipe, arguments
        if _is_changed(_commit()):
            print(f"{recipe}: the tree differs from its commit; results/ will not take this.", file=sys.stderr)
        self.started, self._clock = datetime.now(UTC), time.perf_counter()
        self._load = list(os.getloadavg())

    def report(self, **figures: Any) -> Json:
        """The result file's content: where, when and from what the figures come, and the figures."""
        return {
            "recipe": self.recipe,
            "arguments": {name: _shown(v) if isinstance(v, Path) else v for name, v in self.arguments.items()},
            "machine": describe(),
            "started": self.started.isoformat(timespec="seconds"),
            "wall_s": round(time.perf_counter() - self._clock, 1),
            "load_average": {"before": self._load, "after": list(os.getloadavg())},
            **figures,
        }


def describe() -> Json:
    """Processor, operating system, versions and the commit that is checked out."""
    cpu = _cpuinfo()
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    return {
        "cpu": cpu.get("model name") or platform.processor() or platform.machine(),
        "cpu_family_model": [cpu.get("cpu family"), cpu.get("model")],
        "cpu_flags": [flag for flag in FLAGS if flag in flags],
        "cores": usable_cores(),
        "gpu": _gpu(),
        "system": f"{platform.system()} {platform.release()}",
        "commit": _commit(),
        "versions": {"python": platform.python_version(), "palus": __version__, **_versions()},
    }


def _gpu() -> str | None:
    """The name of NVIDIA's first one, where its driver tells."""
    command = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    if shutil.which(command[0]) is None:
        return None
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return told[0].strip() if told else None


def _processors(machine: Json) -> str:
    """The machine's CPU and, where it has one, its GPU."""
    return " and ".join(name for name in (machine["cpu"], machine.get("gpu")) if name)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def caption(report: Json) -> str:
    """The lines under a table's title: machine, versions, commit, date, load."""
    machine, load = report["machine"], report["load_average"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    return (
        f"{_processors(machine)} ({', '.join(machine['cpu_flags'])}), {machine['cores']} cores; {versions}.  \n"
        f"Commit {machine['commit']}, {report['started'][:10]}, {report['wall_s'] / 60:.0f} min; load average "
        f"{load['before'][0]:.1f} before and {load['after'][0]:.1f} after."
    )


def note_origin(run: Path) -> None:
    """Leave beside a run's folder where this sitting trains it: RUN.origin.json, one entry a sitting."""
    file = run.with_name(f"{run.name}.origin.json")
    sittings = json.loads(file.read_text()) if file.exists() and run.exists() else []
    here = {"started": datetime.now(UTC).isoformat(timespec="seconds"), "load_average": list(os.getloadavg())}
    write_text(file, json.dumps([*sittings, {**describe(), **here}], indent=1) + "\n")


def origin(run: Path) -> list[Json]:
    """The sittings in which a run was trained. Exits when nobody noted them, or a tree had changes."""
    file = run.with_name(f"{run.name}.origin.json")
    if not file.exists():
        sys.exit(f"{file} is missing: which commit trained {run.name} is not known; train it by this recipe.")
    sittings: list[Json] = json.loads(file.read_text())
    for sitting in sittings:
        _refuse_changed(f"{run.name} was trained", sitting["commit"])
    return sittings


def trained_at(sittings: list[Json]) -> str:
    """The commits and processors that trained a run, for a table's notes."""
    places = dict.fromkeys(f"{sitting['commit']} on {_processors(sitting)}" for sitting in sittings)
    return f"trained at commit {', then '.join(places)}"


def refuse_changed_tree(report: Json) -> None:
    """Exits when a result was measured in a tree that differs from its commit: nobody could remake it."""
    _refuse_changed(f"{report['recipe']} was measured", report["machine"]["commit"])


def _is_changed(commit: str) -> bool:
    return commit.endswith("-dirty") or commit == "unknown"


def _refuse_changed(what: str, commit: str) -> None:
    if _is_changed(commit):
        sys.exit(f"{what} at {commit}; results/ takes figures of a committed tree only. Commit, then measure again.")


def save(report: Json, json_file: Path, markdown: Callable[[Json], str]) -> None:
    """Write a result, and its tables. Exits for results/ when the tree had changes. Raises StorageError."""
    if json_file.parent.resolve() == RESULTS.resolve() and "machine" in report:
        refuse_changed_tree(report)
    write_text(json_file, json.dumps(report, indent=1) + "\n")
    print(f"Written: {json_file}", file=sys.stderr)
    write_tables(json_file, markdown)


def write_tables(json_file: Path, markdown: Callable[[Json], str]) -> None:
    """Make the tables of a stored result: `<recipe>.md` beside it, and on the screen. Raises StorageError."""
    report = json.loads(json_file.read_text())
    tables = json_file.with_name(f"{report['recipe']}.md")
    write_text(tables, markdown(report))
    print(f"{tables.read_text()}\nWritten: {tables}")


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _shown(path: Path) -> str:
    """A path that says nothing about the machine it was on."""
    return path.name if path.is_absolute() else path.as_posix()


def _cpuinfo() -> dict[str, str]:
    """The first processor's block of /proc/cpuinfo; empty elsewhere than on Linux."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    lines = path.read_text().split("\n\n")[0].splitlines()
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """Hash of the checked-out commit, `-dirty` where tracked files differ from it; `unknown` outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
