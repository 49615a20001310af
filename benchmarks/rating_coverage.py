"""How often the 95 % intervals of the published order hold the truth, in simulated fields whose strengths are known.

    python benchmarks/rating_coverage.py                 every cell, writes results/rating-coverage.json and its table
    python benchmarks/rating_coverage.py --processes 4   several cells at a time
    python benchmarks/rating_coverage.py --outside       opponents chosen by who knows the truth, not by results

A cell is a kind of field: how many players, who is paired with whom, how they draw, how far their strengths lie apart,
how often they played. In each of its seasons strengths are drawn anew. Three things are counted: the players whose
interval holds their strength; the seasons in which the leader's does, the leader being whoever stands first on the
board, not who truly is best; and the seasons in which the interval of the first two's difference holds.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Literal

# One core per process: before numpy loads its threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from histories import information_gain, variance_of_gaps
from machine import RESULTS, Json, Session, caption, save, table
from palus.ratings import bradley_terry
from palus.ratings.bradley_terry import Fit, win_probability
from palus.ratings.games import Games
from palus.ratings.interval import Z_95

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

Draws = Literal["none", "30 %", "80 %", "falling"]
"""Share of drawn games between equals; falling: 90 % among the weak, next to none among the strong."""

Pairing = Literal["random", "arena", "divisions", "neighbours"]

ENTRY_PAIRS = 5
"""Pairs per player that chance makes before the arena's pairing begins."""
UNIFORM_SHARE = 0.1
"""Of the arena's pairings."""
DIVISION, NEXT_SHARE = 6, 0.1
"""Players of a division, of those who are next to each other in strength; share of the pairs played with the next."""
NEIGHBOURS = 2
"""Places between two in the true order, at most, where only neighbours meet."""


@dataclass(frozen=True)
class Cell:
    """A kind of field.

    pairs: mirrored pairs per player. sd: of strengths, points. together: share of pairs whose second game ends like the
    first. seasons: how many are played.
    """

    players: int
    pairing: Pairing
    draws: Draws = "none"
    sd: float = 200.0
    together: float = 0.0
    pairs: int = 40
    seasons: int = 100


@dataclass(frozen=True)
class Coverage:
    """Shares of intervals that held: of all players, of leaders, of the difference between the first two.

    leader_bias: mean of estimate minus truth, points. error: root mean square, all players. half_width: mean.
    """

    players: float
    leader: float
    first_two: float
    leader_bias: float
    error: float
    half_width: float


def measure(cell: Cell, seed: int = 0) -> Coverage:
    """All seasons of a cell. The same seed gives the same seasons."""
    rows = []
    for season in range(cell.seasons):
        rng = np.random.default_rng([seed, season])
        strength = rng.normal(0.0, cell.sd, cell.players)
        fit = bradley_terry.fit(play_season(cell, strength, rng), cell.players)
        rows.append(_score(fit, strength - strength.mean()))
    players, leader, first_two, bias, square, half_width = np.mean(rows, axis=0).tolist()
    return Coverage(players, leader, first_two, bias, float(np.sqrt(square)), half_width)


def play_season(cell: Cell, strength: F64, rng: np.random.Generator) -> Games:
    """Everybody's pairs: drawn uniformly; chosen as the arena chooses, from what the ratings do not know yet; or by the
    truth."""
    wanted = cell.players * cell.pairs // 2
    if cell.pairing in ("divisions", "neighbours"):
        return _play(cell, strength, *_by_truth(cell, strength, wanted, rng), 0, rng)
    entry = wanted if cell.pairing == "random" else cell.players * ENTRY_PAIRS // 2
    first = rng.integers(0, cell.players, entry)
    second = (first + rng.integers(1, cell.players, entry)) % cell.players
    games = _play(cell, strength, first, second, 0, rng)
    played = entry
    while played < wanted:
        fit = bradley_terry.fit(games, cell.players)
        # Refits get rarer as the log grows: by half of it at a time.
        batches = [_arena_batch(fit, rng) for _ in range(max(1, played // cell.players))]
        first, second = (np.concatenate(side)[: wanted - played] for side in zip(*batches, strict=True))
        more = _play(cell, strength, first, second, played, rng)
        games = Games(*(np.concatenate([getattr(g, name) for g in (games, more)]) for name in _COLUMNS))
        played += len(first)
    return games


def _by_truth(cell: Cell, strength: F64, wanted: int, rng: np.random.Generator) -> tuple[I64, I64]:
    order, place = np.argsort(strength), rng.integers(0, cell.players, wanted)
    if cell.pairing == "neighbours":
        other = place + rng.integers(1, NEIGHBOURS + 1, wanted)
        other = np.where(other < cell.players, other, place - 1)
    else:
        up = np.where(rng.random(wanted) < NEXT_SHARE, 1, 0) * np.where(place + DIVISION < cell.players, 1, -1)
        division = place // DIVISION
        inside = (place + rng.integers(1, DIVISION, wanted)) % DIVISION
        other = np.where(up == 0, division * DIVISION + inside, (division + up) * DIVISION + inside)
    swap = rng.random(wanted) < 0.5
    return order[np.where(swap, other, place)], order[np.where(swap, place, other)]


_COLUMNS = ("first", "second", "points", "unit")


def _play(cell: Cell, strength: F64, first: I64, second: I64, number: int, rng: np.random.Generator) -> Games:
    """Mirrored pairs. number: of the first one. Draws leave the expected share as the strengths say."""
    share = win_probability(strength[first] - strength[second])
    drawn = _draw_rate(cell, 0.5 * (strength[first] + strength[second])) * 2.0 * np.minimum(share, 1.0 - share)
    won = share - 0.5 * drawn

    def game() -> F64:
        luck = rng.random(len(first))
        return np.select([luck < won, luck < won + drawn], [1.0, 0.5], 0.0)

    leg_1, leg_2 = game(), game()
    leg_2 = np.where(rng.random(len(first)) < cell.together, leg_1, leg_2)
    unit = number + np.arange(len(first))
    return Games(
        np.concatenate([first, second]),
        np.concatenate([second, first]),
        np.concatenate([leg_1, 1.0 - leg_2]),
        np.concatenate([unit, unit]),
    )


def _draw_rate(cell: Cell, middle: F64) -> F64:
    """Share of draws between equals of this strength."""
    if cell.draws == "falling":
        rate: F64 = 0.9 / (1.0 + np.exp(2.5 * middle / cell.sd))
        return rate
    return np.full(len(middle), {"none": 0.0, "30 %": 0.3, "80 %": 0.8}[cell.draws])


def _arena_batch(fit: Fit, rng: np.random.Generator) -> tuple[I64, I64]:
    """Everybody once: a share of the pairings uniformly, then those of largest information gain."""
    n = len(fit.strength)
    i, j = np.triu_indices(n, 1)
    gain = information_gain(fit.strength, fit.joint)[i, j]
    by_chance, by_gain = rng.permutation(len(i)), np.argsort(-gain, kind="stable")
    uniform = int(rng.binomial(n // 2, UNIFORM_SHARE))
    busy = np.zeros(n, np.bool_)
    chosen: list[int] = []
    for order, until in ((by_chance, uniform), (by_gain, n // 2)):
        for k in order.tolist():
            if len(chosen) >= until:
                break
            if not busy[i[k]] and not busy[j[k]]:
                busy[i[k]] = busy[j[k]] = True
                chosen.append(k)
    swap = rng.random(len(chosen)) < 0.5
    return np.where(swap, j[chosen], i[chosen]), np.where(swap, i[chosen], j[chosen])


def _score(fit: Fit, truth: F64) -> tuple[float, ...]:
    error = fit.strength - truth
    held = np.abs(error) <= fit.half_width
    leader, second = np.argsort(-fit.strength, kind="stable")[:2].tolist()
    between = float(np.sqrt(variance_of_gaps(fit.joint)[leader, second]))
    return (
        float(held.mean()),
        float(held[leader]),
        float(abs(error[leader] - error[second]) <= Z_95 * between),
        float(error[leader]),
        float(np.square(error).mean()),
        float(fit.half_width.mean()),
    )


def cells(share: float = 1.0) -> list[Cell]:
    """Everything that is measured. share: of the seasons."""
    kinds: list[tuple[Draws, float, float]] = [
        ("none", 200.0, 0.0),
        ("30 %", 200.0, 0.0),
        ("80 %", 200.0, 0.0),
        ("falling", 200.0, 0.0),
        ("none", 200.0, 0.5),
        ("none", 450.0, 0.0),
        ("falling", 450.0, 0.0),
    ]
    pairings: tuple[Literal["random", "arena"], ...] = ("random", "arena")
    seasons = {2: 1000, 30: 400, 100: 200, 200: 100}
    fields = [(30, 40), (30, 15), (100, 40), (200, 40)]
    found = [
        Cell(players, pairing, draws, sd, together, pairs, max(1, int(share * seasons[players])))
        for players, pairs in fields
        for pairing in pairings
        for draws, sd, together in kinds
    ]
    alone = [Cell(2, "random", draws, pairs=40, seasons=max(1, int(share * seasons[2]))) for draws, *_ in kinds[:3]]
    return found + alone


def outside(share: float = 1.0) -> list[Cell]:
    """Fields whose opponents were chosen by knowledge that is not in the results. share: of the seasons."""
    pairings: tuple[Pairing, ...] = ("divisions", "neighbours")
    return [
        Cell(30, pairing, sd=sd, pairs=pairs, seasons=max(1, int(share * 400)))
        for pairing in pairings
        for sd in (100.0, 200.0, 450.0)
        for pairs in (15, 40, 160)
    ]


def markdown(report: Json) -> str:
    """The result as a page."""
    rows = [
        [
            f"{cell['players']}, {cell['pairing']}",
            str(cell["pairs"]),
            cell["draws"],
            f"{cell['sd']:.0f}",
            f"{cell['together']:.0%}",
            f"{found['players']:.3f}",
            f"{found['leader']:.3f}",
            f"{found['first_two']:.3f}",
            f"{found['leader_bias']:+.0f}",
            f"{found['half_width']:.0f}",
            str(cell["seasons"]),
        ]
        for cell, found in zip(report["cells"], report["coverage"], strict=True)
    ]
    header = ["players, pairing", "pairs each", "draws", "spread", "legs alike"]
    header += ["all", "leader", "first two", "leader's bias", "half-width", "seasons"]
    leaders = np.average(
        [found["leader"] for found in report["coverage"]], weights=[cell["seasons"] for cell in report["cells"]]
    )
    how = " --outside" if report["arguments"]["outside"] else ""
    return (
        "# Coverage of the published intervals\n\n"
        f"Made by `python benchmarks/rating_coverage.py{how}` from the JSON file beside it.\n\n"
        f"{caption(report)}\n\n"
        "Share of 95 % intervals that hold the simulated truth. The leader is whoever stands first on the board. With "
        "n seasons the share of leaders is known to about 0.22 / sqrt(n) (one standard deviation). Of all leaders "
        f"together {leaders:.3f} hold.\n\n" + table(header, rows)
    )


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="of the seasons, for a quick look")
    parser.add_argument("--outside", action="store_true", help="only fields whose opponents were chosen by the truth")
    arguments = parser.parse_args()
    session = Session(f"rating-coverage{'-outside' * arguments.outside}", vars(arguments))
    wanted = (outside if arguments.outside else cells)(arguments.share)
    with get_context("spawn").Pool(arguments.processes) as pool:
        found = pool.map(measure, wanted, chunksize=1)
    report = session.report(cells=[asdict(cell) for cell in wanted], coverage=[asdict(one) for one in found])
    save(report, RESULTS / f"{session.recipe}.json", markdown)


if __name__ == "__main__":
    main()
