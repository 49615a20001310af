"""Evaluation counts a fixed set of whole episodes, whatever runs beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from countdown import Countdown

from palus.rollout.trajectories import EpisodeEnd
from palus.run.evaluate import evaluate


class CountsItsDecisions:
    """Acts by its memory: the n-th decision of an episode is n, at most 8."""

    state_size = 1

    def __call__(self, observations: Mapping[str, Any], states: Any, episodes: Any, decisions: Any) -> Any:
        assert np.array_equal(states[:, 0], decisions), "memory begins anew with every episode and is kept within it"
        return np.minimum(decisions, 8).astype(np.float32)[:, None], states + 1


def test_episodes_do_not_depend_on_how_many_games_run_side_by_side() -> None:
    made: list[Countdown] = []

    def make() -> Countdown:
        made.append(Countdown())
        return made[-1]

    alone, together = (evaluate(make, CountsItsDecisions(), episodes=40, games=g, seed=3) for g in (1, 7))
    assert alone.episodes == together.episodes
    assert len(alone.episodes) == 40  # 20 games of two agents
    assert all(game.closed for game in made)
    seeds = np.random.SeedSequence(3).generate_state(20)
    starts = np.array([np.random.default_rng(int(s)).integers(1, 30, 2) for s in seeds])
    assert together.mean == pytest.approx(starts.mean())  # short episodes are counted no more often than long ones
    assert together.std == pytest.approx(starts.std())
    first = EpisodeEnd(0, 0, 0, int(4 * starts[0, 0]), float(np.minimum(np.arange(starts[0, 0]), 8).sum()), {})
    assert (together.episodes[0].reward, together.episodes[0].frames) == (first.reward, first.frames)
    assert together.frames == 4 * starts.sum()


def test_stops_at_the_frames_and_counts_only_what_ended() -> None:
    found = evaluate(Countdown, CountsItsDecisions(), episodes=400, games=4, seed=1, max_frames=200)
    assert 200 <= found.frames < 200 + 4 * 2 * 4
    assert sum(e.frames for e in found.episodes) < found.frames
    nothing = evaluate(Countdown, CountsItsDecisions(), episodes=4, games=1, seed=2, max_frames=1)
    assert nothing.episodes == ()
    assert np.isnan(nothing.mean)


def test_a_game_without_a_recorder_gives_one_picture_per_decision() -> None:
    pictures: list[Any] = []
    found = evaluate(Countdown, CountsItsDecisions(), episodes=2, games=3, recorder=pictures.append)
    assert len(pictures) == max(e.frames for e in found.episodes) // 4
