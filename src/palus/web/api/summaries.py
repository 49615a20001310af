"""Rows of the log as shapes: a match from outside, a match from one player, tallies, head-to-head with intervals."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from palus.arena.referee.games import game_of
from palus.ratings.bradley_terry import POINTS_TO_LOGIT
from palus.ratings.interval import Z_95
from palus.web.api.log_columns import FORFEITS, POINTS, VERDICTS
from palus.web.api.roster import Player
from palus.web.api.view import View
from palus.web.shapes import Shape

Rows = NDArray[np.int64]
F64 = NDArray[np.float64]

_PRIOR_SCATTER = 1.0
"""Scatter of the four imaginary units by which `palus.ratings.interval.dispersion` holds phi near 1."""

Outcome = Literal["win", "draw", "loss", "void"]
SideName = Literal["blue", "purple"]
Verdict = Literal["win1", "win2", "draw", "forfeit1", "forfeit2", "void"]


class Tally(Shape):
    """Games of one player. share: points taken / games, 0 without games."""

    games: int
    wins: int
    draws: int
    losses: int
    share: float


class MatchLine(Shape):
    """A match seen from one player. score: own goals, the opponent's; of this game alone, not the pair."""

    id: str
    at_ms: int
    leg: int
    side: SideName
    opponent: Player
    outcome: Outcome
    forfeit: bool
    score: tuple[int, int]
    duration_s: float
    rated: bool
    has_replay: bool


class MatchSummary(Shape):
    """A match seen from outside, for lists of the newest ones."""

    id: str
    seq: int
    at_ms: int
    env: str
    blue: Player
    purple: Player
    result: Verdict
    score: tuple[int, int]
    duration_s: float
    rated: bool


class HeadToHead(Shape):
    """Games against one opponent. low..high: 95 % interval of the share, over mirrored pairs."""

    opponent: Player
    games: int
    wins: int
    draws: int
    losses: int
    share: float
    low: float
    high: float
    expected: float | None = Field(description="share that the ratings predict")


def match_summary(view: View, row: int) -> MatchSummary:
    """A match as lists of the newest ones show it."""
    log = view.log
    return MatchSummary(
        id=log.id_text(row),
        seq=int(log["seq"][row]),
        at_ms=int(log["finished_ms"][row]),
        env=_env(view, row),
        blue=_player(view, "blue", row),
        purple=_player(view, "purple", row),
        result=VERDICTS[log["verdict"][row]],  # type: ignore[arg-type]  # VERDICTS are the literals of Verdict
        score=(int(log["blue_goals"][row]), int(log["purple_goals"][row])),
        duration_s=float(log["ticks"][row]) * game_of(_env(view, row)).tick_s,
        rated=bool(view.counts[row]),
    )


def match_line(view: View, row: int, entity: int) -> MatchLine:
    """A match as the page of one player shows it. entity: index into the log's entities."""
    log = view.log
    is_blue = bool(log["blue"][row] == entity)
    points = float(POINTS[log["verdict"][row]])
    score = (int(log["blue_goals"][row]), int(log["purple_goals"][row]))
    return MatchLine(
        id=log.id_text(row),
        at_ms=int(log["finished_ms"][row]),
        leg=int(log["leg"][row]),
        side="blue" if is_blue else "purple",
        opponent=_player(view, "purple" if is_blue else "blue", row),
        outcome=_outcome(points if is_blue else 1.0 - points),
        forfeit=bool(FORFEITS[log["verdict"][row]]),
        score=score if is_blue else (score[1], score[0]),
        duration_s=float(log["ticks"][row]) * game_of(_env(view, row)).tick_s,
        rated=bool(view.counts[row]),
        has_replay=bool(log["has_replay"][row]),
    )


def _env(view: View, row: int) -> str:
    name: str = view.log.envs.texts[view.log["env"][row]]
    return name


def _player(view: View, side: str, row: int) -> Player:
    log = view.log
    return view.roster.player(log.entities.texts[log[side][row]], log.repos.texts[log[f"{side}_repo"][row]])


def _outcome(points: float) -> Outcome:
    if np.isnan(points):
        return "void"
    return "win" if points == 1.0 else "loss" if points == 0.0 else "draw"


def tally(points: NDArray[Any]) -> Tally:
    """points: of the player, one per game."""
    games = len(points)
    wins, losses = int((points == 1.0).sum()), int((points == 0.0).sum())
    share = float(points.mean()) if games else 0.0
    return Tally(games=games, wins=wins, draws=games - wins - losses, losses=losses, share=share)


def expected_share(rating: float, opponent: float) -> float:
    """Share of the points that the joint rating predicts against an opponent."""
    return float(1.0 / (1.0 + np.exp(-POINTS_TO_LOGIT * (rating - opponent))))


def head_to_head(view: View, player: Player, opponents: Rows, points: F64, units: Rows) -> list[HeadToHead]:
    """Games against each opponent, the most played first.

    opponents: [G] entity of the other side. points: [G] of the player. units: [G] number of the mirrored pair.
    """
    if not len(points):
        return []
    entities, of = np.unique(opponents, return_inverse=True)
    games = np.bincount(of)
    wins, losses = np.bincount(of, points == 1.0), np.bincount(of, points == 0.0)
    share = np.bincount(of, points) / games
    low, high = share_intervals(of, points, units, len(entities))
    lines = []
    for i in np.lexsort((entities, -games)):
        opponent = view.roster.player(view.log.entities.texts[entities[i]])
        known = player.rating is not None and opponent.rating is not None
        lines.append(
            HeadToHead(
                opponent=opponent,
                games=int(games[i]),
                wins=int(wins[i]),
                draws=int(games[i] - wins[i] - losses[i]),
                losses=int(losses[i]),
                share=float(share[i]),
                low=float(low[i]),
                high=float(high[i]),
                expected=expected_share(player.rating or 0.0, opponent.rating or 0.0) if known else None,
            )
        )
    return lines


def share_intervals(of: Rows, points: F64, units: Rows, groups: int) -> tuple[F64, F64]:
    """95 % intervals of the share of points in each group: `palus.ratings.interval.score_interval` for many at once.

    of: [G] group of each game. units: [G] mirrored pair of each game. Returns low and high, [groups].
    """
    pairs, pair = np.unique(np.stack([of, units]), axis=1, return_inverse=True)
    pair, group = pair.reshape(-1), pairs[0]
    games_of_pair = np.bincount(pair)
    score = np.bincount(pair, points) / games_of_pair
    count = np.bincount(group, minlength=groups).astype(np.float64)
    games_per_unit = np.bincount(group, games_of_pair, groups) / count
    mean = np.bincount(group, score, groups) / count
    squares = np.bincount(group, (score - mean[group]) ** 2, groups)
    variance = np.where(count > 1, squares / np.maximum(count - 1, 1), 0.0)
    several = count > 1
    scatter = _PRIOR_SCATTER + np.where(several, games_per_unit * count * variance, 0.0)
    expected = _PRIOR_SCATTER + np.where(several, count * mean * (1.0 - mean) + variance, 0.0)
    games = count * games_per_unit * expected / scatter
    scale = 1.0 + Z_95**2 / games
    center = (mean + Z_95**2 / (2.0 * games)) / scale
    half = Z_95 * np.sqrt(mean * (1.0 - mean) / games + Z_95**2 / (4.0 * games * games)) / scale
    return np.maximum(0.0, center - half), np.minimum(1.0, center + half)
