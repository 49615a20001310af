"""Round robins and the leaderboard that follows from their results.

The leaderboard is a function of match records alone: computed again from the same log it is the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from palus.arena.models.players import Player
from palus.arena.referee.games import DEFAULT_GAME
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import MatchResult
from palus.ratings import bradley_terry
from palus.ratings.bradley_terry import DISPLAY_BASE
from palus.ratings.connections import loose_groups
from palus.ratings.games import Games, units_of
from palus.ratings.interval import Z_95, is_provisional, score_interval


@dataclass(frozen=True)
class TournamentLine:
    """One line of a leaderboard.

    rank: by rating, 1 is the top. rank_range: best and worst rank that the results leave open (95 %).
    rating: 1200 + Bradley-Terry strength, 400 points = 10:1 odds, mean of all players 1200. half_width: of its 95 %
    interval. score, interval: share of points over all games and its 95 % interval over mirrored pairs.
    provisional: fewer than 20 games, or an interval wider than 100 points to each side.
    """

    rank: int
    rank_range: tuple[int, int]
    name: str
    sha256: str | None
    rating: float
    half_width: float
    score: float
    interval: tuple[float, float]
    games: int
    provisional: bool


@dataclass(frozen=True)
class Leaderboard:
    """Standings, best first, and what they rest on.

    blue_advantage: worth of the blue side in points and the half width of its 95 % interval; a fair field's contains 0.
    loose: names of groups that few pairs tie to the others, with the number of these pairs.
    """

    standings: tuple[TournamentLine, ...]
    results: tuple[MatchResult, ...]
    blue_advantage: tuple[float, float]
    loose: tuple[tuple[tuple[str, ...], int], ...] = ()


def rank_players(
    players: Sequence[Player],
    pairs: int,
    seed: int,
    *,
    env_id: str = DEFAULT_GAME,
    progress: Callable[[str, int], None] | None = None,
    stopped: Callable[[], bool] | None = None,
) -> Leaderboard:
    """Round robin of `pairs` mirrored pairs per pairing, then the joint fit.

    A pairing's matches depend on the seed and the two names, so that adding a player leaves old results as they were.
    progress: called with (who plays, matches just finished). stopped: asked by `play_pairs`; once it says so, the
    board is of the pairs that are over, without players that met nobody.
    Raises ValueError when two players share a name.
    """
    names = [player.name for player in players]
    if len(set(names)) != len(names):
        raise ValueError(f"players need different names, got {names}")
    results: list[MatchResult] = []
    for a, b in combinations(sorted(players, key=lambda p: p.name), 2):
        title = f"{a.name} - {b.name}"
        tick = None if progress is None else (lambda finished, t=title, call=progress: call(t, finished))
        pairing_seed = int.from_bytes(hashlib.sha256(f"{seed}\n{a.name}\n{b.name}".encode()).digest()[:7])
        results += play_pairs(a, b, pairs, pairing_seed, env_id=env_id, progress=tick, stopped=stopped)
    return leaderboard(results)


def leaderboard(results: Sequence[MatchResult]) -> Leaderboard:
    """Bradley-Terry leaderboard of everybody in these records. Void games do not count."""
    identities = sorted({(s.entity.repo, s.entity.sha256) for r in results for s in r.sides})
    if not identities:
        return Leaderboard((), (), (0.0, 0.0))
    games = _games(results, identities)
    fit = bradley_terry.fit(games, len(identities))
    ranges = bradley_terry.rank_ranges(fit.strength, fit.joint)
    half_width = fit.half_width
    side = bradley_terry.fit(games, len(identities), side_term=True).side or (0.0, 0.0)
    units = units_of(games)
    played = np.bincount(np.concatenate([games.first, games.second]), minlength=len(identities)).tolist()
    standings = []
    for rank, i in enumerate(np.argsort(-fit.strength, kind="stable").tolist(), start=1):
        shares = np.concatenate([units.share[units.low == i], 1.0 - units.share[units.high == i]])
        standings.append(
            TournamentLine(
                rank=rank,
                rank_range=(int(ranges[i, 0]), int(ranges[i, 1])),
                name=identities[i][0],
                sha256=identities[i][1] or None,
                rating=DISPLAY_BASE + float(fit.strength[i]),
                half_width=float(half_width[i]),
                score=float(shares.mean()) if len(shares) else 0.5,
                interval=score_interval(shares),
                games=played[i],
                provisional=is_provisional(played[i], float(half_width[i])),
            )
        )
    loose = tuple(
        (tuple(identities[i][0] for i in group.players), group.pairs) for group in loose_groups(units, len(identities))
    )
    return Leaderboard(tuple(standings), tuple(results), (side[0], Z_95 * side[1]), loose)


def _games(results: Sequence[MatchResult], identities: list[tuple[str, str]]) -> Games:
    index = {identity: i for i, identity in enumerate(identities)}
    units: dict[str, int] = {}
    rows = [
        (
            *(index[side.entity.repo, side.entity.sha256] for side in r.sides),
            r.points,
            units.setdefault(r.unit_id, len(units)),
        )
        for r in results
        if r.points is not None
    ]
    table = np.array(rows, np.float64).reshape(-1, 4)
    whole = table.astype(np.int64)
    return Games(first=whole[:, 0], second=whole[:, 1], points=table[:, 2], unit=whole[:, 3])
