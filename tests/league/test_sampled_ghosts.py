"""Self-play of sampled games: who is cast, which past is kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from palus.config.trainer import SelfPlay
from palus.errors import ConfigError
from palus.league.sampled_ghosts import SampledGhosts
from palus.rollout.trajectories import FROZEN, EpisodeEnd
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec


def spec(agents: int = 4, teams: tuple[int, ...] = (0, 0, 1, 1)) -> GameSpec:
    return GameSpec.alike("duel", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(2),)), agents, teams)


def ghosts(folder: Path, snapshots: int = 5, **settings) -> SampledGhosts:
    made = SampledGhosts(SelfPlay(**{"window": 3, "save_steps": 100, **settings}), "Duel", spec(), folder, 0)
    for n in range(snapshots):
        made.admit(made.save(100 * n, {"w": np.full(2, n, np.float32)}))
    return made


def test_without_a_past_all_sides_learn(tmp_path: Path) -> None:
    assert ghosts(tmp_path, snapshots=0, play_against_latest_model_ratio=0.0)(0) == [0, 0, 0, 0]


def test_one_side_learns_against_one_snapshot_of_the_window(tmp_path: Path) -> None:
    made = ghosts(tmp_path, play_against_latest_model_ratio=0.25)
    casts = Counter(tuple(made(game)) for _ in range(500) for game in range(4))
    old = [made.policy_id(n) for n in (2, 3, 4)]  # 0 and 1 have left the window
    assert len(set(old)) == 3 and min(old) >= FROZEN
    assert set(casts) == {(0, 0, 0, 0), *((o, o, 0, 0) for o in old), *((0, 0, o, o) for o in old)}
    assert casts.pop((0, 0, 0, 0)) == pytest.approx(500, abs=75)
    assert all(count == pytest.approx(250, abs=60) for count in casts.values())


def test_casts_repeat_after_a_restart_of_the_same_number(tmp_path: Path) -> None:
    made = ghosts(tmp_path)
    made.restart(7)
    first = [made(3) for _ in range(30)]
    made.restart(8)
    assert [made(3) for _ in range(30)] != first
    made.restart(7)
    assert [made(3) for _ in range(30)] == first


def test_snapshots_are_due_every_save_steps_and_files_follow_the_window(tmp_path: Path) -> None:
    made = ghosts(tmp_path)
    assert [made.is_due(step) for step in (400, 499, 500)] == [False, False, True]
    made.prune()
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"snapshot-0000{n}.npz" for n in (2, 3, 4)]
    np.testing.assert_array_equal(made.arrays(3)["w"], [3.0, 3.0])
    again = ghosts(tmp_path / "other", snapshots=0)
    again.load_state_dict(made.state_dict())
    assert (again.window, again.count, again.is_due(499)) == ((2, 3, 4), 5, False)


def ends(start: int, objectives: tuple[float, float], policies: tuple[int, int] = (0, FROZEN)) -> list[EpisodeEnd]:
    """Both agents' ends of a duel in game 5."""
    pairs = enumerate(zip(policies, objectives, strict=True))
    return [EpisodeEnd(5, agent, policy, 100, 0.0, {"true_objective": o}, start) for agent, (policy, o) in pairs]


def test_ratings_follow_from_wins_losses_and_draws_as_in_ml_agents(tmp_path: Path) -> None:
    made = SampledGhosts(SelfPlay(save_steps=100), "Duel", spec(2, (0, 1)), tmp_path, 0)
    made.admit(made.save(0, {}))
    made.rate(ends(1, (1.0, 0.0)))
    assert (made.elo, made.ratings) == (1200.5, {FROZEN: 1199.5})
    made.rate(ends(2, (0.0, 1.0), (FROZEN, 0)))  # won from the other side: expected were 0.50143911
    assert made.elo == pytest.approx(1200.99856089, abs=1e-8)
    made.rate(ends(3, (0.0, 1.0)))  # lost
    assert made.elo == pytest.approx(1200.49568683, abs=1e-8)
    made.rate(ends(4, (0.0, 0.0)))  # a draw against a weaker one costs
    assert made.elo == pytest.approx(1200.49426013, abs=1e-8)
    assert made.elo + made.ratings[FROZEN] == pytest.approx(2400.0)


def test_matches_are_rated_when_all_their_ends_are_there_and_only_against_the_past(tmp_path: Path) -> None:
    made = SampledGhosts(SelfPlay(save_steps=100), "Duel", spec(2, (0, 1)), tmp_path, 0)
    made.admit(made.save(0, {}))
    made.rate(ends(1, (1.0, 0.0), (0, 0)))
    made.rate(ends(2, (1.0, 0.0))[:1])  # its other half was lost with a worker
    made.rate(ends(3, (0.0, 0.0))[1:])
    assert made.elo == 1200.0
    made.rate(ends(3, (1.0, 0.0))[:1])
    assert made.elo == 1200.5
    again = SampledGhosts(SelfPlay(), "Duel", spec(2, (0, 1)), tmp_path, 0)
    again.load_state_dict(made.state_dict())
    assert (again.elo, again.ratings) == (1200.5, {FROZEN: 1199.5})
    made.admit(made.save(100, {}))
    assert made.ratings[FROZEN + 1] == 1200.5  # a snapshot begins where the policy was


def test_one_winner_of_many_is_compared_with_each(tmp_path: Path) -> None:
    made = SampledGhosts(SelfPlay(), "Duel", spec(3, (0, 1, 2)), tmp_path, 0)
    match = ((0, 0, 0.0), (1, FROZEN, 1.0), (2, FROZEN, 0.0))
    made.rate([EpisodeEnd(0, agent, policy, 9, 0.0, {"true_objective": o}) for agent, policy, o in match])
    assert made.elo == 1200.0 - 0.25  # lost to one, drew with the other


def test_a_game_with_one_side_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one side only"):
        SampledGhosts(SelfPlay(), "Duel", spec(2, (0, 0)), tmp_path, 0)
