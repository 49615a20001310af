"""Does palus learn what ML-Agents learns, from as many steps? Every trainer, form of observation and action and signal.

    benchmarks/peer/setup.sh                             once: ML-Agents 1.1.0 in an environment of its own
    python benchmarks/lessons.py                         all lessons, four seeds
    python benchmarks/lessons.py --only "sac" "gail" --seeds 11 12 --output first.json

The lessons are those of tests/unity/test_line_learning.py, on the game that ML-Agents tests its trainers with. Both
sides get the same settings, and neither's were chosen by these seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import chdir, closing
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import machine
from machine import Json
from palus.cli.output import progress_bar

HERE = Path(__file__).parent
sys.path += [str(HERE / "peer"), str(HERE.parent / "tests" / "unity")]

from test_line_learning import LESSONS, SOLVED, expert, merged, run_of  # noqa: E402
from told_line import TOLD  # noqa: E402

RESULT = machine.RESULTS / "lessons.json"
PEER, OWN = "ML-Agents 1.1.0", "palus"
LATEST = 100
"""Episodes of which the mean is taken."""
RESAMPLES = 2000
"""Of the bootstrap."""


def teach(name: str, seed: int, python: Path | None) -> Json:
    """One lesson, by palus, or by ML-Agents in its Python: the mean reward of the latest episodes at the end, and the
    decisions after which it was first enough."""
    lesson = LESSONS[name]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        if python is None:
            TOLD.clear()
            with closing(run_of(Path(folder), lesson, seed, "told_line:Told")) as run:
                while not run.finished:
                    run.iterate()
            told: Sequence[Sequence[float]] = TOLD
        else:
            expert(Path(folder), lesson.env)
            behavior = merged(lesson.behavior, lesson.more) | {"summary_freq": 10**6}
            asked = {"behavior": behavior, "env": lesson.env, "steps": lesson.steps, "seed": seed}
            words = [str(python), "-W", "ignore", str(HERE / "peer" / "lesson.py")]
            done = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{PEER}, {name}, seed {seed}:\n{done.stderr[-2000:]}")
            told = json.loads(done.stdout.splitlines()[-1])
    decisions, rewards = np.array(told).T
    means = np.convolve(rewards, np.full(LATEST, 1 / LATEST), "valid")
    enough = np.flatnonzero(means > SOLVED)
    reached = int(decisions[LATEST - 1 + enough[0]]) if len(enough) else None
    return {"lesson": name, "seed": seed, "reward": round(float(means[-1]), 3), "reached": reached}


def measure(names: Sequence[str], seeds: Sequence[int], python: Path) -> dict[str, list[Json]]:
    """side -> its runs, as many at once as there are cores."""
    found: dict[str, list[Json]] = {PEER: [], OWN: []}
    with ProcessPoolExecutor(machine.usable_cores(), get_context("spawn")) as pool:
        asked = {
            pool.submit(teach, name, seed, own): side
            for name in names
            for seed in seeds
            for side, own in ((PEER, python), (OWN, None))
        }
        with progress_bar("lessons", len(asked)) as update:
            for count, one in enumerate(as_completed(asked), start=1):
                found[asked[one]].append(one.result())
                update(completed=count)
    for runs in found.values():
        runs.sort(key=lambda run: (names.index(run["lesson"]), run["seed"]))
    return found


def _reached(runs: dict[str, list[Json]], side: str, name: str) -> list[float]:
    """Decisions after which a lesson was first solved, by seed; infinite where it never was."""
    return [run["reached"] or float("inf") for run in runs[side] if run["lesson"] == name]


def _rows(runs: dict[str, list[Json]]) -> Iterator[list[str]]:
    for name in dict.fromkeys(run["lesson"] for run in runs[OWN]):
        cells = [name, f"{LESSONS[name].steps:,}"]
        for side in (PEER, OWN):
            own = [run for run in runs[side] if run["lesson"] == name]
            middle = statistics.median(_reached(runs, side, name))
            cells += [
                f"{sum(run['reward'] > SOLVED for run in own)} of {len(own)}",
                f"{middle:,.0f}" if middle < float("inf") else "never",
            ]
        yield cells


def _ratios(runs: dict[str, list[Json]]) -> dict[str, tuple[float, float, float]]:
    """Trainer -> decisions that palus needs for each of ML-Agents': geometric mean over the lessons, of medians, that
    both reach in the median; and where nine tenths of its bootstrapped values lie. These draw each side's seeds anew,
    the same for all lessons: many of them begin with the same weights."""
    by_trainer, random = dict[str, list[str]](), np.random.default_rng(0)
    for name in dict.fromkeys(run["lesson"] for run in runs[OWN]):
        by_trainer.setdefault(LESSONS[name].behavior["trainer_type"], []).append(name)
    found = {}
    for trainer, names in by_trainer.items():
        reached = np.array([[_reached(runs, side, name) for side in (PEER, OWN)] for name in names])
        drawn = random.integers(reached.shape[2], size=(RESAMPLES, 1, *reached.shape[1:]))
        both = np.concatenate([reached[None], np.take_along_axis(reached[None], drawn, 3)])
        logs = np.ma.masked_invalid(np.log(np.median(both, 3)))
        means = (logs[..., 1] - logs[..., 0]).mean(1)
        if means[0] is not np.ma.masked:
            low, high = np.quantile(means[1:].compressed(), [0.05, 0.95])
            found[trainer] = math.exp(means[0]), math.exp(low), math.exp(high)
    return found


def markdown(report: Json) -> str:
    """The table."""
    found = _ratios(report["runs"]).items()
    ratios = ", ".join(f"{trainer} {ratio:.2f} ({low:.2f} to {high:.2f})" for trainer, (ratio, low, high) in found)
    head = ["lesson", "steps", *(f"{side}: {what}" for side in (PEER, OWN) for what in ("solved", "after decisions"))]
    return (
        "# The lessons of ML-Agents' own tests\n\n"
        "Made by `python benchmarks/lessons.py` from lessons.json beside it. Solved: after all steps the mean reward\n"
        f"of the latest {LATEST} episodes is above {SOLVED}. After decisions: when it was so first, the median of the\n"
        f"seeds {', '.join(map(str, report['arguments']['seeds']))}. Both sides with one thread, in fp32.\n\n"
        f"Decisions that palus needs for each of ML-Agents', geometric mean of the lessons: {ratios}.\n"
        "In brackets, where it lies nine times of ten when the seeds are drawn anew out of these.\n\n"
        f"{machine.caption(report)}\n\n{machine.table(head, list(_rows(report['runs'])))}"
    )


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="lessons in whose name one of these is")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13, 14])
    parser.add_argument("--peer", type=Path, default=HERE / "peer" / ".venv" / "bin" / "python", help="its Python")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--table", action="store_true", help="only make the table of the stored result")
    arguments = parser.parse_args()
    if arguments.table:
        machine.write_tables(arguments.output, markdown)
        return
    if not arguments.peer.exists():
        sys.exit(f"{arguments.peer} is missing: run benchmarks/peer/setup.sh once, or name it by --peer.")
    both = [name for name, lesson in LESSONS.items() if lesson.behavior["trainer_type"] != "appo"]
    names = [name for name in both if not arguments.only or any(words in name for words in arguments.only)]
    if not names:
        sys.exit(f"--only: no lesson has {' or '.join(arguments.only)} in its name; they are {', '.join(both)}.")
    session = machine.Session("lessons", {"seeds": arguments.seeds})
    runs = measure(names, arguments.seeds, arguments.peer.absolute())
    machine.save(session.report(runs=runs), arguments.output, markdown)


if __name__ == "__main__":
    main()
