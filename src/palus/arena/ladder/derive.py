"""Everything published about strength, as a pure function of the rated games and of who is on the board.

Nothing here reads a clock, a database or chance: the same games give the same numbers, to the bit. What is written to
the derived tables is `palus.arena.ladder.refresh`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palus.ratings import bradley_terry, elo
from palus.ratings.bradley_terry import DISPLAY_BASE, Fit
from palus.ratings.connections import loose_groups
from palus.ratings.cycles import cycles
from palus.ratings.games import Field, Games, Played, arrange, tally
from palus.ratings.interval import Z_95
from palus.ratings.nash import IN_SUPPORT, believed, equilibrium, plausible, unexplained, win_matrix
from palus.ratings.online import Skill
from palus.store.derived import Standing

DECIMALS = 6
"""Digits that are published: a million times finer than any interval, coarser than how libraries round."""

LISTED = 0.01
"""Weight in the equilibrium that the games must leave open for a player to be named with it."""

FIRST_POINT_GAMES, POINT_GROWTH = 20, 0.04
"""The history of ratings has a point every 20 games at first, later whenever the log has grown by 4 %."""


@dataclass(frozen=True)
class Fitted:
    """The joint fit of one env's rated games. upto_seq: last of them in the log; 0 when there is none."""

    field: Field
    fit: Fit
    upto_seq: int


def fit_games(history: Sequence[Played]) -> Fitted:
    """The main rating. The order of the history changes nothing."""
    field = arrange(history)
    return Fitted(field, bradley_terry.fit(field.games, len(field)), max((game.order for game in history), default=0))


def rating_rows(
    env: str,
    history: Sequence[Played],
    fitted: Fitted,
    skills: Mapping[str, Skill],
    board: Collection[str],
) -> list[dict[str, Any]]:
    """Rows of the table `ratings`: everybody with a rated game.

    skills: online ratings after the same history. board: SHA-256 of those who are ranked now; the others, such as
    replaced revisions, keep a rating and have rank 0.
    """
    names, fit = fitted.field.names, fitted.fit
    on_board = np.array([i for i, name in enumerate(names) if name in board], np.int64)
    covariance = fit.covariance[np.ix_(on_board, on_board)]
    ranges = bradley_terry.rank_ranges(fit.strength[on_board], covariance)
    best_first = on_board[np.argsort(-fit.strength[on_board], kind="stable")].tolist()
    rank = {i: place for place, i in enumerate(best_first, start=1)}
    span = {int(i): ranges[k].tolist() for k, i in enumerate(on_board)}
    elo_of = elo.replay(history)
    outcomes = tally(fitted.field.games, len(names))
    half_width = fit.half_width
    lines = [
        Standing(
            sha256=name,
            rank=rank.get(i, 0),
            rank_best=span.get(i, (0, 0))[0],
            rank_worst=span.get(i, (0, 0))[1],
            rating=_published(DISPLAY_BASE + fit.strength[i]),
            half_width=_published(half_width[i]),
            games=int(outcomes[i].sum()),
            wins=int(outcomes[i, 0]),
            draws=int(outcomes[i, 1]),
            losses=int(outcomes[i, 2]),
            elo=_published(elo_of[name]),
            openskill_mu=_published(skills[name].mu),
            openskill_sigma=_published(skills[name].sigma),
        )
        for i, name in enumerate(names)
    ]
    return [{"env": env, "upto_seq": fitted.upto_seq, **vars(line)} for line in lines]


def field_row(env: str, fitted: Fitted, board: Collection[str], annulments: int) -> dict[str, Any]:
    """Row of the table `fields`: worth of the blue side, and what one number per player cannot say.

    `summary` is JSON: support [{sha256, mass, low, high}] of the maximum-entropy equilibrium among those on the board,
    and of those for whom the games leave it open; skill {sha256: points ahead of it}, unexplained_share of the win
    matrix and what chance would leave, cycles [{players, shares}], phi of the mirrored pairs, annulments that were left
    out, loose groups [{players, pairs}] that few matches tie to the others. `covariance`: `packed`, in the order of all
    SHA-256.
    """
    field = fitted.field
    side = bradley_terry.fit(field.games, len(field), side_term=True).side or (0.0, 0.0)
    names, games = _among(field, board)
    matrix = win_matrix(games, len(names))
    place = [field.names.index(name) for name in names]
    belief = believed(matrix, fitted.fit.strength[place], fitted.fit.phi)
    balance = equilibrium(belief.advantage)
    span = plausible(belief, fitted.fit.covariance[np.ix_(place, place)])
    rest = unexplained(matrix, fitted.fit.phi)
    summary = {
        "support": [
            {"sha256": names[i], "mass": _published(weight), "low": _published(low), "high": _published(high)}
            for i, (weight, (low, high)) in enumerate(zip(balance.weights, span, strict=True))
            if weight > IN_SUPPORT or high > LISTED
        ],
        "skill": {name: _published(points) for name, points in zip(names, balance.points, strict=True)},
        "unexplained_share": _published(rest.share),
        "unexplained_by_chance": _published(rest.by_chance),
        "cycles": [
            {"players": [names[i] for i in cycle.players], "shares": [_published(edge.share) for edge in cycle.edges]}
            for cycle in cycles(games)
        ],
        "phi": _published(fitted.fit.phi),
        "annulments": annulments,
        "loose": [
            {"players": [field.names[i] for i in group.players], "pairs": group.pairs}
            for group in loose_groups(field.games, len(field))
        ],
    }
    return {
        "env": env,
        "upto_seq": fitted.upto_seq,
        "side_advantage": _published(side[0]),
        "side_half_width": _published(Z_95 * side[1]),
        "summary": json.dumps(summary, sort_keys=True, separators=(",", ":")),
        "covariance": packed(fitted.fit.covariance),
    }


def packed(covariance: NDArray[np.float64]) -> bytes:
    """A symmetric matrix as its lower triangle, row by row, in float32."""
    return covariance[np.tril_indices(len(covariance))].astype("<f4").tobytes()


def variance_of_gap(triangle: bytes, i: int, j: int) -> float:
    """Variance of the difference of two strengths, points squared. triangle: what `packed` made."""
    values = np.frombuffer(triangle, "<f4")

    def entry(row: int, column: int) -> float:
        low, high = sorted((row, column))
        return float(values[high * (high + 1) // 2 + low])

    return max(0.0, entry(i, i) + entry(j, j) - 2.0 * entry(i, j))


def point_counts(games: int) -> Iterator[int]:
    """Numbers of games, up to this one, after which the history of ratings has a point."""
    count = FIRST_POINT_GAMES
    while count <= games:
        yield count
        count += max(FIRST_POINT_GAMES, int(count * POINT_GROWTH))


def point_rows(
    env: str, history: Sequence[Played], start: int, end: int, at_ms: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Rows of `rating_points` after the first `end` games, for those who played since game `start`.

    history: in the order of the log. at_ms: log number -> when that match ended. The ratings are those of all games
    so far fitted together, as if published then.
    """
    fitted = fit_games(history[:end])
    recent = {name for game in history[start:end] for name in (game.first, game.second)}
    half_width = fitted.fit.half_width
    games = tally(fitted.field.games, len(fitted.field)).sum(axis=1)
    return [
        {
            "env": env,
            "sha256": name,
            "seq": fitted.upto_seq,
            "at_ms": at_ms[fitted.upto_seq],
            "rating": _published(DISPLAY_BASE + fitted.fit.strength[i]),
            "half_width": _published(half_width[i]),
            "games": int(games[i]),
        }
        for i, name in enumerate(fitted.field.names)
        if name in recent
    ]


def _among(field: Field, board: Collection[str]) -> tuple[list[str], Games]:
    """The games that players of the board played against each other, renumbered."""
    kept = [i for i, name in enumerate(field.names) if name in board]
    number = np.full(len(field), -1, np.int64)
    number[kept] = np.arange(len(kept))
    games = field.games
    inside = (number[games.first] >= 0) & (number[games.second] >= 0)
    first, second = number[games.first[inside]], number[games.second[inside]]
    return [field.names[i] for i in kept], Games(first, second, games.points[inside], games.unit[inside])


def _published(value: float) -> float:
    return round(float(value), DECIMALS)
