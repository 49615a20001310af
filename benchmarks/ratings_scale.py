"""Time and memory of the rating functions at the size of the reference arena: 911 models, 240 000 matches.

    python benchmarks/ratings_scale.py            measures, writes results/ratings-scale.json and its table

Matches are simulated: strengths with a standard deviation of 200 points, Davidson draws (nu 0.4), opponents drawn among
the hundred of nearest strength, mirrored pairs. Times are of one core (CPU seconds); memory is the peak of the process.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

# One core: before numpy loads its threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from histories import arrange, information_gain
from machine import RESULTS, Json, Session, caption, save, table
from palus.ratings import bradley_terry, cycles, nash, online
from palus.ratings.games import Played, add_up, units_of

TARGET_S = 3.0
NEIGHBOURS = 100
DRAW = 0.4
"""Its odds between equals beside a win's and a loss's: one game in six."""
T = TypeVar("T")


def simulate(models: int, matches: int, seed: int) -> list[Played]:
    """A history of mirrored pairs between models of similar strength."""
    rng = np.random.default_rng(seed)
    strength = np.sort(rng.normal(0.0, 200.0, models))
    pairs = matches // 2
    first = rng.integers(0, models, pairs)
    offset = rng.integers(1, NEIGHBOURS // 2 + 1, pairs) * rng.choice([-1, 1], pairs)
    second = np.abs(first + offset)
    second = np.where(second >= models, 2 * (models - 1) - second, second)
    second = np.where(second == first, first - 1, second)
    history = []
    for leg, (blue, purple) in enumerate(((first, second), (second, first))):
        odds = 10.0 ** ((strength[blue] - strength[purple]) / 800.0)
        luck = rng.random(pairs) * (odds + DRAW + 1.0 / odds)
        points = np.select([luck < odds, luck < odds + DRAW], [1.0, 0.5], 0.0).tolist()
        history += [
            Played(
                2 * k + leg, f"{k}-{leg}", str(k), f"model-{blue[k]:04d}", f"model-{purple[k]:04d}", float(points[k])
            )
            for k in range(pairs)
        ]
    return history


def measure(models: int, matches: int) -> dict[str, float]:
    """CPU seconds of every view, in the order in which they are made."""
    seconds: dict[str, float] = {}

    def timed(name: str, call: Callable[[], T]) -> T:
        started = time.process_time()
        result = call()
        seconds[name] = time.process_time() - started
        return result

    history = simulate(models, matches, seed=0)
    field = timed("history to arrays", lambda: arrange(history))
    n = len(field)
    fit = timed("joint fit, covariance, intervals", lambda: bradley_terry.fit(field.games, n))
    timed("the same with the side term", lambda: bradley_terry.fit(field.games, n, side_term=True))
    timed("rank ranges", lambda: bradley_terry.rank_ranges(fit.strength, fit.joint))
    timed("information gain of every pairing", lambda: information_gain(fit.strength, fit.joint))
    matrix = timed("win matrix", lambda: nash.win_matrix(add_up(field.games, n), n))
    timed("share that no order explains", lambda: nash.unexplained(matrix, fit.phi))
    timed("cycles", lambda: cycles.cycles(units_of(field.games)))
    for best in (60, 200, models):
        top = np.sort(np.argsort(-fit.strength)[:best])
        advantage = matrix.advantage[np.ix_(top, top)]
        timed(f"Nash of the best {best}", partial(nash.equilibrium, advantage))
    timed("reference Elo and openskill replay", lambda: online.follow({}, history))
    return seconds


def markdown(report: Json) -> str:
    """The result as a page."""
    rows = [[name, f"{value:.3f}"] for name, value in report["seconds"].items()]
    return (
        "# Ratings at the reference arena's size\n\n"
        "Made by `python benchmarks/ratings_scale.py` from the JSON file beside it.\n\n"
        f"{caption(report)}\n\n"
        f"{report['arguments']['models']} models, {report['arguments']['matches']:,} simulated matches. "
        f"Peak memory of the process, history included: {report['peak_mb']:.0f} MB.\n\n"
        + table(["step", "CPU seconds, one core"], rows)
    )


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=911)
    parser.add_argument("--matches", type=int, default=240_000)
    arguments = parser.parse_args()
    session = Session("ratings-scale", vars(arguments))
    seconds = measure(**vars(arguments))
    units_per_mb = 1024 * 1024 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / units_per_mb
    save(session.report(seconds=seconds, peak_mb=peak_mb), RESULTS / "ratings-scale.json", markdown)
    refit = seconds["joint fit, covariance, intervals"]
    if refit > TARGET_S:
        sys.exit(f"the refit took {refit:.1f} s; {TARGET_S} s are promised")


if __name__ == "__main__":
    main()
