"""Self-play from start to end: what it must learn, and what it must fail to learn."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from palus.config import RunFile, load_run
from palus.rollout.rollout import FROZEN, Rollout
from palus.train import Run, train
from palus.trust import Trust

TRUST = Trust(frozenset({"line_game"}))
LINE = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 120, "batch_size": 40, "learning_rate": 0.02, "beta": 0.0001},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "max_steps": 2000,
    "summary_freq": 1000,
}
SAMPLING = {"collector": "in_process"}


def run_file(folder: Path, game: str, behaviors: dict[str, Any], *overrides: str, **palus: Any) -> RunFile:
    tree = {
        "behaviors": behaviors,
        "checkpoint_settings": {"run_id": "run", "results_dir": str(folder)},
        "env_settings": {"seed": 4},
        "palus": {"env": game, "matmul": "highest", "threads": 1, "num_matches": 10, "sampling": SAMPLING, **palus},
    }
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(tree, sort_keys=False))
    return load_run(file, overrides)


def final_rewards(folder: Path, names: tuple[str, str], ratio: float, **self_play: int) -> list[float]:
    """Each team's mean in the last rollout's matches of a run counted as ML-Agents counts."""
    play = {"save_steps": 5000, "swap_steps": 5000, "play_against_latest_model_ratio": ratio, **self_play}
    options = {"league": {"counting": "reference"}, "env_options": {"names": list(names)}}
    run = run_file(folder, "line_game:LineGame", {name: {**LINE, "self_play": play} for name in names}, **options)
    ended: dict[int, deque[float]] = {0: deque(maxlen=30), 1: deque(maxlen=30)}

    def watch(parts: Run) -> None:
        collect = parts.collector.collect

        def told() -> Any:
            collected = collect()
            for episode in collected.episodes:
                ended[episode.agent].append(episode.reward)
            return collected

        parts.collector.collect = told  # type: ignore[method-assign]

    result = train(run, trust=TRUST, on_start=watch)
    assert result.finished and result.steps >= 2000
    return [float(np.mean(rewards)) for rewards in ended.values()]


def test_asymmetric_self_play_learns_on_both_sides(tmp_path: Path) -> None:
    assert min(final_rewards(tmp_path, ("Line", "Opponent"), 1.0, team_change=2000)) > 0.9


def test_asymmetric_self_play_fails_on_one_side_where_it_plays_as_it_was_at_first(tmp_path: Path) -> None:
    rewards = final_rewards(tmp_path, ("Line", "Opponent"), 0.0, team_change=2000)
    assert max(rewards) > 0.9 and min(rewards) < 0.6


def test_symmetric_self_play_learns_on_both_sides(tmp_path: Path) -> None:
    assert min(final_rewards(tmp_path, ("Line", "Line"), 1.0, team_change=500, swap_steps=100)) > 0.9


def test_symmetric_self_play_fails_on_one_side_where_it_plays_as_it_was_at_first(tmp_path: Path) -> None:
    rewards = final_rewards(tmp_path, ("Line", "Line"), 0.0, team_change=500, swap_steps=100)
    assert max(rewards) > 0.9 and min(rewards) < 0.6


TOY = {**LINE, "hyperparameters": {**LINE["hyperparameters"], "learning_rate_schedule": "linear"}, "max_steps": 960}
PLAY = {"save_steps": 150, "team_change": 300, "swap_steps": 100, "window": 3}


def penalties(folder: Path, *overrides: str, **palus: Any) -> RunFile:
    both = {name: {**TOY, "self_play": PLAY} for name in ("Striker", "Keeper")}
    return run_file(folder, "PenaltyToy", both, *overrides, **palus)


def test_a_behavior_and_its_schedules_stand_still_while_another_learns_and_the_run_ends_when_all_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, told, learned_from = Run(penalties(tmp_path)), [], []
    striker, keeper = parts.trainees
    update = keeper.learner.update

    def watched(rollout: Rollout, step: int) -> dict[str, float]:
        learned_from.append(rollout.agent_steps)
        return update(rollout, step)

    monkeypatch.setattr(keeper.learner, "update", watched)
    while not parts.finished:
        before = striker.step, keeper.step
        parts.iterate()
        learned = striker.step - before[0], keeper.step - before[1]
        rates = [t.record.updates[-1]["Policy/Learning Rate"] if t.record.updates else None for t in parts.trainees]
        told.append((*learned, *rates))
    parts.close()
    # 300 steps are over in the third rollout of 120; the ten matches that began before it was learned from have 4 more.
    steps = [(120, 0), (120, 0), (120, 0), (40, 80), (0, 120), (0, 120), (80, 40), (120, 0)]
    assert [row[:2] for row in told[:8]] == steps
    strikers, keepers = zip(*[row[2:] for row in told[:8]], strict=True)
    assert strikers == pytest.approx([0.02 * (1 - step / 960) for step in (0, 120, 240, 360, 360, 360, 400, 480)])
    assert keepers[:3] == (None, None, None)  # the keeper's schedule begins with its first turn
    assert keepers[3:] == pytest.approx([0.02 * (1 - step / 960) for step in (0, 80, 200, 320, 320)])
    assert (striker.step, keeper.step) == (1000, 1040)
    assert learned_from[:5] == [80, 120, 120, 40, 80] and min(learned_from) > 0
    league = parts.league
    assert {league.snapshots[k].behavior for k in league.pools[0].window} == {"Striker"}
    assert {s.parent: s.behavior for s in league.snapshots.values()} == {0: "Striker", 1: "Keeper"}


@pytest.mark.parametrize("options", [{}, {"counting": "reference"}, {"learn": "all_teams"}])
def test_an_asymmetric_run_goes_on_after_a_stop_as_if_there_had_been_none(
    tmp_path: Path, options: dict[str, str]
) -> None:
    run = penalties(tmp_path, league=options)
    one = Run(run)
    for _ in range(4):
        one.iterate()
    one.save()
    one._kept.close()  # lets another process in, as a kill would
    two = Run(run, resume=True)
    for parts in (one, two):
        for _ in range(5):
            parts.iterate()
    assert one.steps == two.steps and one.league.state_dict() == two.league.state_dict()
    for a, b in zip(one.trainees, two.trainees, strict=True):
        assert (a.learner.network.weights.master == b.learner.network.weights.master).all()
    if options.get("learn") == "all_teams":
        assert all(0 < step < 9 * 120 for step in one.steps.values())
    one.close()
    two.close()


def test_a_snapshot_that_a_kill_left_is_not_taken_for_another_behaviors_of_the_same_number(tmp_path: Path) -> None:
    one = Run(penalties(tmp_path))
    one.save()
    while one.league.snapshot_count < 3:
        one.iterate()
    one.close()  # as a kill does: the checkpoint knows nothing of snapshot 2, a striker
    two = Run(penalties(tmp_path, "behaviors.Striker.self_play.save_steps=9999"), resume=True)
    while two.league.snapshot_count < 3:
        two.iterate()
    two.close()
    assert two.league.snapshots[2].behavior == "Keeper"
    assert two.saving.find(2) == tmp_path / "run" / "Keeper" / "snapshots" / "snapshot-00002.npz"


def test_snapshots_that_nobody_meets_any_more_leave_the_memory(tmp_path: Path) -> None:
    """And the newest file alone is kept there, to be loaded next."""
    parts = Run(penalties(tmp_path, "behaviors.Striker.self_play.save_steps=40"))
    while parts.league.snapshot_count < 12:
        parts.iterate()
    policies, needed = parts.collector.policies, parts.league.needed(parts.in_play)
    held = {policy - FROZEN for policy in policies.known if policy >= FROZEN}
    assert {policy - FROZEN for policy in policies.retired} == held - needed  # go with the next rollout
    assert max(needed) in held and len(held) < 10
    newest = parts.league.snapshot_count - 1
    assert [*parts.saving._held] == [parts.saving.find(newest)]
    parts.close()


@pytest.mark.parametrize("collector", ["in_process", "workers"])
def test_a_free_for_all_of_three_trains_and_is_rated(tmp_path: Path, collector: str) -> None:
    play = {**PLAY, "team_change": 200, "play_against_latest_model_ratio": 0.0}
    behavior = {**TOY, "max_steps": 480, "time_horizon": 40, "self_play": play}
    sampling = {"collector": collector, "workers": 0}
    parts = Run(run_file(tmp_path, "Foraging", {"Forager": behavior}, sampling=sampling))
    sides = []
    while not parts.finished:
        parts.iterate()
        sides.append(parts.league.turns.learning_side)
    assert parts.trainees[0].step == 480 and sides == [0, 1, 1, 2]
    assert parts.league.turns.ghost_steps == {"Forager": 960}
    assert parts.league.elo[0] != 1200.0 and parts.trainees[0].points is None  # nobody to be compared with
    assert {(0, FROZEN), (FROZEN, 0)} <= parts.league.payoffs.cells.keys()
    parts.close()


@pytest.mark.parametrize(("counting", "as_at_first"), [("reference", True), ("matches", False)])
def test_what_is_due_in_a_rollout_has_the_weights_that_played_it_where_steps_are_counted_to_the_letter(
    tmp_path: Path, counting: str, as_at_first: bool
) -> None:
    parts = Run(penalties(tmp_path, "behaviors.Striker.self_play.save_steps=70", league={"counting": counting}))
    parts.iterate()  # 120 steps, and what is learned from them
    snapshots = [parts.saving.load_policy(parts.saving.find(k)) for k in parts.league.pools[0].window]
    first, second = (snapshot.weights.master for snapshot in snapshots)
    assert bool((first == second).all()) == as_at_first
    parts.close()
