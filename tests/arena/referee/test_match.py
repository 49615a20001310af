"""The referee: fair, repeatable, and hard to upset."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from helpers import LAYOUT, MODELS, SOCCER, Constant, idle, needs_models, reader_policy

from palus import envs
from palus.arena.models.players import load_player
from palus.arena.models.policies import OnnxPlayer, RandomPlayer
from palus.arena.referee.actions import encode_actions, state_hash
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.arena.referee.replay import encode_replay
from palus.arena.referee.result import MatchResult, points_of_a, summarize
from palus.errors import EnvError, ReplayError

RANDOM = RandomPlayer(SOCCER)
BROKEN = Constant("broken", [np.nan] * 9)


def test_results_depend_on_the_seed_and_not_on_how_many_matches_run_side_by_side():
    runner = reader_policy()
    together = play_pairs(runner, RANDOM, 6, seed=3)
    assert len(together) == 12
    assert together == play_pairs(runner, RANDOM, 6, seed=3, num_parallel=3)
    assert together != play_pairs(runner, RANDOM, 6, seed=4)
    assert together[:4] == play_pairs(runner, RANDOM, 2, seed=3)


def test_a_policy_against_itself_plays_the_same_game_twice_and_scores_half():
    results = play_pairs(RANDOM, RANDOM, 8, seed=0)
    assert [r.duration_ticks for r in results[0::2]] == [r.duration_ticks for r in results[1::2]]
    points = np.array(points_of_a(results)).reshape(8, 2)
    np.testing.assert_array_equal(points.sum(axis=1), 1.0)
    summary = summarize(results)
    assert summary.score == 0.5
    assert summary.wins == summary.losses
    once = play_pairs(RANDOM, RANDOM, 8, seed=0, legs=(1,))
    assert list(once) == list(results[0::2])


def test_no_goal_in_a_thousand_decisions_is_a_draw():
    results = play_pairs(idle("a"), idle("b"), 1, seed=0, mode="greedy")
    assert [(r.result, r.cause, r.score, r.points) for r in results] == [("draw", "time_limit", (0, 0), 0.5)] * 2
    assert all(4995 <= r.duration_ticks <= 5000 for r in results)
    assert summarize(results).draws == 2


def test_running_forward_beats_standing_still():
    summary = summarize(play_pairs(reader_policy(), idle(), 15, seed=1))
    assert summary.wins > summary.losses
    assert summary.entropy_b == pytest.approx(0.0, abs=1e-6)
    assert summary.entropy_a == pytest.approx(2.3672, abs=1e-3)
    assert summary.wins + summary.draws + summary.losses == 2 * summary.pairs == 30


def test_player_that_answers_nan_forfeits_and_two_of_them_void_the_match():
    first, second = play_pairs(BROKEN, RANDOM, 1, seed=0)
    assert (first.result, first.cause, first.points, first.duration_ticks) == ("forfeit1", "non_finite", 0.0, 0)
    assert (second.result, second.points) == ("forfeit2", 1.0)
    assert summarize((first, second)).score == 0.0
    voids = play_pairs(BROKEN, Constant("also broken", [np.inf] * 9), 2, seed=0)
    assert [v.points for v in voids] == [None] * 4
    assert summarize(voids).pairs == 0


def test_records_survive_json_and_bad_lines_are_refused():
    result = play_pairs(reader_policy(), RANDOM, 1, seed=5)[0]
    line = result.to_json()
    assert "\n" not in line
    again = MatchResult.from_json(line)
    assert again == result
    assert again.started == result.started
    first_schema = line.replace('"schema":4', '"schema":1').replace('"final_state":null,', "")
    assert MatchResult.from_json(first_schema).points == result.points
    with pytest.raises(ReplayError, match="schema 99"):
        MatchResult.from_json(line.replace('"schema":4', '"schema":99'))
    with pytest.raises(ReplayError, match="not a match record"):
        MatchResult.from_json("{}")


def test_ids_name_the_match_and_its_pair():
    first, second, third, _ = play_pairs(reader_policy(), RANDOM, 2, seed=0)
    assert first.unit_id == second.unit_id != third.unit_id
    assert len({first.id, second.id, third.id}) == 3
    assert [s.entity.repo for s in second.sides] == ["random", "reader"]


def test_recording_shows_the_match_and_does_not_change_it():
    runner = reader_policy()
    recorder = Recorder({0, 3})
    results = play_pairs(runner, RANDOM, 2, seed=2, recorder=recorder)
    assert results == play_pairs(runner, RANDOM, 2, seed=2)
    assert sorted(recorder.recordings) == [0, 3]
    for number, recording in recorder.recordings.items():
        result = results[number]
        assert recording.frames.shape == (result.duration_ticks + 1, 14)
        decisions = -(-result.duration_ticks // 5)
        assert recording.actions.shape == (decisions, 4, 3)
        assert recording.probabilities is not None
        assert recording.probabilities.shape == (decisions, 4, 9)
        assert recording.names == tuple(side.entity.repo for side in result.sides)
        np.testing.assert_allclose(np.abs(recording.frames[0, [1, 4, 7, 10]]), 1.2, atol=1e-6)  # z at kick-off
        if result.cause == "goal":
            assert recording.events[-1].kind == "goal"
            assert recording.events[-1].tick == result.duration_ticks
            side = 1 if recording.result == "blue" else -1
            assert side * recording.frames[-1, 12] > 14.5  # the ball ends at the other side's goal


class Counting(Constant):
    """Remembers how often it was asked for each agent, and falls ill at the tenth decision of a match."""

    state_size = 2

    def answer(self, observations: object, states: np.ndarray, masks: object = None) -> tuple[np.ndarray, np.ndarray]:
        assert states.shape[1] == 2 and (states == states[0, 0]).all()
        return np.where(states[:, :1] < 9, self.row, np.nan), states + 1


@pytest.mark.parametrize(("row", "verdict", "entropy"), [([1.0008, 0, 0], "draw", 0.0), ([5, 5, 5], "forfeit1", None)])
def test_no_answer_of_a_model_leads_its_entropy_out_of_range(row: list[float], verdict: str, entropy: float | None):
    (result,) = play_pairs(Constant("a", row * 3), idle(), 1, seed=3, legs=(1,))
    assert (result.result, result.sides[0].entropy, result.sides[1].entropy) == (verdict, entropy, 0.0)


def test_every_agents_memory_begins_empty_and_is_carried_through_its_match():
    results = play_pairs(Counting("ill", [1, 0, 0] * 3), RANDOM, 3, seed=0, num_parallel=4)
    assert [(r.result, r.duration_ticks) for r in results] == [("forfeit1", 45), ("forfeit2", 45)] * 3


def test_games_without_a_winner_are_refused():
    with pytest.raises(EnvError, match="does not say who wins"):
        play_pairs(idle("a"), idle("b"), 1, seed=0, env_id="RescueToy")


@needs_models
def test_official_policy_takes_nearly_all_points_from_random():
    official = OnnxPlayer(MODELS / "unity-official-soccertwos.onnx", SOCCER)
    summary = summarize(play_pairs(official, RANDOM, 200, seed=0))
    assert summary.score >= 0.97
    assert summary.interval[0] > 0.94
    assert 150 < summary.mean_steps < 220
    assert summary.entropy_b == pytest.approx(3.2958, abs=1e-3)


@needs_models
def test_official_policy_is_strong_greedily_too():
    official = OnnxPlayer(MODELS / "unity-official-soccertwos.onnx", SOCCER)
    assert summarize(play_pairs(official, RANDOM, 20, seed=0, mode="greedy")).score > 0.9


def test_a_stopped_call_returns_the_pairs_that_are_over_as_they_would_have_been() -> None:
    whole = play_pairs(RANDOM, reader_policy(), 8, seed=0)
    over: list[int] = []
    part = play_pairs(
        RANDOM, reader_policy(), 8, seed=0, num_parallel=5, progress=over.append, stopped=lambda: sum(over) >= 7
    )
    assert 2 <= len(part) < 16 and len(part) % 2 == 0
    assert set(part) < set(whole)
    assert [result.leg for result in part] == [1, 2] * (len(part) // 2)
    assert play_pairs(RANDOM, RANDOM, 3, seed=0, stopped=lambda: True) == ()


def test_results_and_recordings_are_the_same_bits_as_ever() -> None:
    """The digests were taken before games that step alone and games in batches had one referee."""
    spec, recorder = envs.make("SoccerTwos", 1).spec, Recorder()
    results = play_pairs(RANDOM, load_player("ball-chaser", spec), 3, 11, recorder=recorder)
    told = [replace(result, started="", wall_ms=0, schema=3).to_json() for result in results]
    assert hashlib.sha256("".join(told).encode()).hexdigest()[:16] == "17be5525810e18e3"
    taken = [recorder.recordings[number] for number in sorted(recorder.recordings)]
    kept = [encode_replay([r]) + encode_actions(r.actions, LAYOUT) + state_hash(r.frames).encode() for r in taken]
    assert hashlib.sha256(b"".join(kept)).hexdigest()[:16] == "1c25bd9bf085a6c0"
