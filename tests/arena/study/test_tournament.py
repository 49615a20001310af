"""Leaderboards follow from match records and put players of known strength in order."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import SOCCER, idle, reader_policy

from palus.arena.models.entity import Entity
from palus.arena.models.policies import RandomPlayer
from palus.arena.referee.result import MatchResult, Side, match_ids
from palus.arena.study.tournament import leaderboard, rank_players
from palus.ratings.elo import expected_score


def invented(strengths: dict[str, float], pairs: int) -> list[MatchResult]:
    """Match records of players whose odds follow from their strengths."""
    rng = np.random.default_rng(0)
    results = []
    names = list(strengths)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            for seed in range(pairs):
                for leg, (blue, purple) in enumerate(((a, b), (b, a)), start=1):
                    sides = (Side(Entity("", blue), "stochastic"), Side(Entity("", purple), "stochastic"))
                    won = rng.random() < expected_score(strengths[blue], strengths[purple])
                    own, unit = match_ids("SoccerTwos", seed, leg, sides)
                    verdict = "win1" if won else "win2"
                    score = (int(won), int(not won))
                    results.append(
                        MatchResult(own, unit, "SoccerTwos", seed, leg, sides, verdict, "goal", score, 100, (), "", 0.0)
                    )
    return results


def test_players_of_known_strength_come_out_in_order():
    strengths = {"weak": -200.0, "strong": 200.0, "middle": 0.0}
    board = leaderboard(invented(strengths, pairs=100))
    assert [(s.rank, s.name, s.rank_range) for s in board.standings] == [
        (1, "strong", (1, 1)),
        (2, "middle", (2, 2)),
        (3, "weak", (3, 3)),
    ]
    assert [s.games for s in board.standings] == [400] * 3
    for standing in board.standings:
        assert abs(standing.rating - 1200 - strengths[standing.name]) < 1.5 * standing.half_width < 60
        assert not standing.provisional
    assert abs(board.blue_advantage[0]) < board.blue_advantage[1]


def test_order_of_records_does_not_matter():
    results = invented({"a": 50.0, "b": 0.0, "c": -50.0}, pairs=5)
    forwards, backwards = leaderboard(results).standings, leaderboard(results[::-1]).standings
    assert [(s.name, s.rank_range, s.games) for s in forwards] == [(s.name, s.rank_range, s.games) for s in backwards]
    np.testing.assert_allclose([s.rating for s in forwards], [s.rating for s in backwards], atol=1e-6)


def test_few_games_are_provisional():
    assert all(s.provisional for s in leaderboard(invented({"a": 0.0, "b": 0.0}, pairs=3)).standings)
    assert leaderboard([]).standings == ()


def test_round_robin_plays_every_pairing_and_keeps_old_results_when_a_player_joins():
    runner, still, drawing = reader_policy(), idle(), RandomPlayer(SOCCER)
    finished: list[int] = []
    board = rank_players([runner, still, drawing], 3, seed=0, progress=lambda title, n: finished.append(n))
    assert len(board.results) == sum(finished) == 18
    assert board.standings[0].name == "reader"
    assert rank_players([still, runner], 3, seed=0).results == tuple(
        r for r in board.results if {s.entity.repo for s in r.sides} == {"idle", "reader"}
    )
    with pytest.raises(ValueError, match="different names"):
        rank_players([runner, reader_policy()], 1, seed=0)
