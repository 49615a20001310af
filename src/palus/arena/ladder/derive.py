"""Everything published about strength, as a pure function of the rated games and of who is on the board.

Nothing here reads a clock, a database or chance: the same games give the same numbers, to the bit. What is written to
the derived tables is `palus.arena.ladder.refresh`.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from palus.ratings import bradley_terry
from palus.ratings.bradley_terry import DISPLAY_BASE, Fit
from palus.ratings.connections import loose_groups, separate_groups
from palus.ratings.cycles import cycles
from palus.ratings.interval import Z_95
from palus.ratings.nash import (
    IN_SUPPORT,
    Believed,
    Equilibrium,
    believed,
    equilibrium,
    plausible,
    unexplained,
    win_matrix,
)
from palus.ratings.online import Online
from palus.ratings.sums import Sums
from palus.store.derived import Standing
from palus.types import F64

logger = logging.getLogger(__name__)

DECIMALS = 6
"""Digits that are published: a million times finer than any interval, coarser than how libraries round."""

LISTED = 0.01
"""Weight in the equilibrium that the games must leave open for a player to be named with it."""

FIRST_POINT_GAMES, POINT_GROWTH = 20, 0.04
"""The history of ratings has a point every 20 games at first, later whenever the log has grown by 4 %."""


STRONGEST = 1000
"""Of a large field, among whom an equilibrium, cycles and what no order explains are looked for."""


@dataclass(frozen=True)
class Fitted:
    """The joint fit of one env's rated games, and their sums, of everybody who played one. upto_seq: last match of the
    log that is in it; 0 when there is none."""

    sums: Sums
    fit: Fit
    upto_seq: int


class Interval(NamedTuple):
    """What is published of how sure a rating is: half of the 95 % interval, best and worst rank."""

    half_width: float
    rank_best: int
    rank_worst: int


def fit_games(sums: Sums, upto_seq: int, *, exact: bool = False) -> Fitted:
    """The main rating. exact: with the joint covariance, however many players there are."""
    return Fitted(sums, bradley_terry.fit_sums(sums.cells(), sums.units(), len(sums), exact=exact), upto_seq)


def intervals_of(fitted: Fitted, board: Collection[str]) -> dict[str, Interval]:
    """Of everybody; the fit must have a covariance. Who is not on the board has ranks 0."""
    names, fit = fitted.sums.names, fitted.fit
    on_board = np.array([i for i, name in enumerate(names) if name in board], np.int64)
    whole = len(on_board) == len(names)
    covariance = fit.joint if whole else fit.joint[np.ix_(on_board, on_board)]
    ranges = bradley_terry.rank_ranges(fit.strength[on_board], covariance)
    span = {int(i): ranges[k].tolist() for k, i in enumerate(on_board)}
    width = fit.half_width
    return {name: Interval(published(width[i]), *span.get(i, (0, 0))) for i, name in enumerate(names)}


def rating_rows(
    env: str,
    fitted: Fitted,
    online: Mapping[str, Online],
    board: Collection[str],
    intervals: Mapping[str, Interval],
) -> list[dict[str, Any]]:
    """Rows of the table `ratings`: everybody with a rated game.

    online: ratings after the same games. board: SHA-256 of those who are ranked now; the others, such as replaced
    revisions, keep a rating and have rank 0. intervals: as last published, by SHA-256; who came after that has the
    one with all others held, and any rank.
    """
    names, fit = fitted.sums.names, fitted.fit
    on_board = [i for i, name in enumerate(names) if name in board]
    best_first = sorted(on_board, key=lambda i: -fit.strength[i])
    rank = {i: place for place, i in enumerate(best_first, start=1)}
    outcomes = fitted.sums.outcomes()
    half_width = fit.half_width
    rows = []
    for i, name in enumerate(names):
        place, skill = rank.get(i, 0), online[name].skill
        known = intervals.get(name) or Interval(published(half_width[i]), 0, 0)
        best, worst = (known.rank_best, known.rank_worst) if known.rank_best else (1, len(on_board))
        line = Standing(
            sha256=name,
            rank=place,
            rank_best=min(best, place),
            rank_worst=max(min(worst, len(on_board)), place) if place else 0,
            rating=published(DISPLAY_BASE + fit.strength[i]),
            half_width=known.half_width,
            games=int(outcomes[i].sum()),
            wins=int(outcomes[i, 0]),
            draws=int(outcomes[i, 1]),
            losses=int(outcomes[i, 2]),
            elo=published(online[name].elo),
            openskill_mu=published(skill.mu),
            openskill_sigma=published(skill.sigma),
        )
        variance = published(fit.variance[i])
        rows.append({"env": env, "upto_seq": fitted.upto_seq, "variance": variance, **vars(line)})
    return rows


def field_row(env: str, fitted: Fitted, board: Collection[str], annulments: int) -> dict[str, Any]:
    """Row of the table `fields`: worth of the blue side, and what one number per player cannot say. The fit must have a
    covariance.

    `summary` is JSON: support [{sha256, mass, low, high}] of the maximum-entropy equilibrium among those on the board,
    and of those for whom the games leave it open; skill {sha256: points ahead of it}, unexplained_share of the win
    matrix and what chance would leave, cycles [{players, shares}], all of them among the `STRONGEST`; phi of the
    mirrored pairs, annulments that were left out, loose groups [{players, pairs}] that few matches, in a large field
    none, tie to the others.
    `covariance`: `packed`, in the order of all SHA-256, where the field is small.
    """
    names, fit = fitted.sums.names, fitted.fit
    cells, units = fitted.sums.cells(), fitted.sums.units()
    small = len(names) < bradley_terry.SPARSE_FROM
    side = bradley_terry.fit_sums(cells, units, len(names), side_term=True).side or (0.0, 0.0)
    best = [names[i] for i in np.argsort(-fit.strength, kind="stable") if names[i] in board][:STRONGEST]
    among = fitted.sums.among(frozenset(best))
    matrix = win_matrix(among.cells(), len(among))
    place = [i for i, name in enumerate(names) if name in frozenset(best)]
    belief = believed(matrix, fit.strength[place], fit.phi)
    balance, span = _balance(env, belief, fit.joint[np.ix_(place, place)])
    rest = unexplained(matrix, fit.phi)
    summary = {
        "support": [
            {"sha256": among.names[i], "mass": published(weight), "low": published(low), "high": published(high)}
            for i, (weight, (low, high)) in enumerate(zip(balance.weights, span, strict=True))
            if weight > IN_SUPPORT or high > LISTED
        ],
        "skill": {
            name: published(points)
            for name, points in zip(among.names, balance.points, strict=True)
            if not math.isnan(points)
        },
        "unexplained_share": published(rest.share),
        "unexplained_by_chance": published(rest.by_chance),
        "cycles": [
            {
                "players": [among.names[i] for i in cycle.players],
                "shares": [published(edge.share) for edge in cycle.edges],
            }
            for cycle in cycles(among.units())
        ],
        "phi": published(fit.phi),
        "annulments": annulments,
        "loose": [
            {"players": [names[i] for i in group.players], "pairs": group.pairs}
            for group in (loose_groups if small else separate_groups)(units, len(names))
        ],
    }
    return {
        "env": env,
        "upto_seq": fitted.upto_seq,
        "side_advantage": published(side[0]),
        "side_half_width": published(Z_95 * side[1]),
        "summary": json.dumps(summary, sort_keys=True, separators=(",", ":")),
        "prior_sd": published(fit.prior_sd),
        "intervals_seq": fitted.upto_seq,
        "covariance": packed(fit.joint) if small else None,
    }


def _balance(env: str, belief: Believed, covariance: F64) -> tuple[Equilibrium, F64]:
    """The equilibrium and its weights' intervals. Where rounding defeats the solver nobody has a weight, and skills are
    NaN: ratings go on without."""
    try:
        return equilibrium(belief.advantage), plausible(belief, covariance)
    except np.linalg.LinAlgError as fault:
        logger.warning("%s: published without an equilibrium: %s", env, fault)
        n = len(belief.advantage)
        return Equilibrium(np.zeros(n), np.full(n, np.nan)), np.zeros((n, 2))


def packed(covariance: F64) -> bytes:
    """A symmetric matrix as its lower triangle, row by row, in float32."""
    return covariance[np.tril_indices(len(covariance))].astype("<f4").tobytes()


def unpacked(triangle: bytes) -> F64:
    """The symmetric matrix that `packed` made this of."""
    values = np.frombuffer(triangle, "<f4")
    n = (math.isqrt(8 * len(values) + 1) - 1) // 2
    matrix = np.zeros((n, n))
    matrix[np.tril_indices(n)] = values
    return matrix + np.tril(matrix, -1).T


def variance_of_gap(triangle: bytes, i: int, j: int) -> float:
    """Variance of the difference of two strengths, points squared. triangle: what `packed` made."""
    low, high = sorted((i, j))
    row = high * (high + 1) // 2
    places = [low * (low + 3) // 2, row + high, row + low]
    own, other, shared = map(float, np.frombuffer(triangle, "<f4")[places])
    return max(0.0, own + other - 2.0 * shared)


def next_point(games: int) -> int:
    """The first of them beyond a number of games."""
    count = FIRST_POINT_GAMES
    while count <= games:
        count += max(FIRST_POINT_GAMES, int(count * POINT_GROWTH))
    return count


def point_rows(
    env: str, fitted: Fitted, online: Mapping[str, Online], before: Mapping[str, int], at_ms: int
) -> list[dict[str, Any]]:
    """Rows of `rating_points` after these games, for those who played since their last point.

    before: games of each player at its last point. at_ms: when the last match ended. The ratings are those of all games
    so far fitted together, as if published then; in large fields with the half-width that holds all others.
    """
    half_width, games = fitted.fit.half_width, fitted.sums.outcomes().sum(axis=1).tolist()
    return [
        {
            "env": env,
            "sha256": name,
            "seq": fitted.upto_seq,
            "at_ms": at_ms,
            "rating": published(DISPLAY_BASE + fitted.fit.strength[i]),
            "half_width": published(half_width[i]),
            "games": games[i],
            "elo": online[name].elo,
            "openskill_mu": online[name].skill.mu,
            "openskill_sigma": online[name].skill.sigma,
        }
        for i, name in enumerate(fitted.sums.names)
        if games[i] != before.get(name, 0)
    ]


def published(value: float) -> float:
    """A number as it is stored."""
    return round(float(value), DECIMALS)
