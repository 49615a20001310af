"""The division of games among workers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pitch import Always, Pitch

from palus.config import load_run
from palus.config.appo import Sampling
from palus.errors import ConfigError
from palus.rollout import plan
from palus.rollout.making import demands_of
from palus.rollout.plan import WorkerPlan, cores_for, plan_matches, plan_workers, rows_per_match, worker_games
from palus.train import Run


def test_games_of_a_split_lie_together() -> None:
    plan = plan_workers(Sampling(workers=2), rows=16, agents=2)
    assert plan == WorkerPlan(workers=2, splits=2, games=2)
    assert [plan.games_of(worker, split) for split in (0, 1) for worker in (0, 1)] == [
        range(2),
        range(2, 4),
        range(4, 6),
        range(6, 8),
    ]


@pytest.mark.parametrize(("rows", "workers"), [(32, 4), (20, 2), (12, 3), (4, 2)])
def test_by_default_as_many_cores_work_as_divide_the_games(rows, workers, monkeypatch) -> None:
    monkeypatch.setattr(plan, "physical_cores", lambda: 4)
    assert plan_workers(Sampling(), rows, agents=1).workers == workers


@pytest.mark.parametrize(
    ("splits", "rows", "beside", "found"),
    [(0, 32, False, 2), (0, 32, True, 1), (0, 6, False, 1), (2, 32, True, 2), (4, 32, False, 4)],
)
def test_games_are_split_where_nothing_else_fills_the_cores(splits, rows, beside, found) -> None:
    plan = plan_workers(Sampling(workers=2, splits=splits), rows, agents=1, beside=beside)
    assert plan == WorkerPlan(2, found, rows // 2 // found)


def test_without_workers_there_is_one_split_and_one_game_may_be_all() -> None:
    assert plan_workers(Sampling(workers=0), rows=256, agents=256) == WorkerPlan(workers=0, splits=1, games=1)


@pytest.mark.parametrize(
    ("settings", "rows", "agents", "message"),
    [
        ({"workers": 3}, 32, 1, "32 games of 1 agents.* 3 workers x any number of games; make them a multiple of 3 "),
        ({"workers": 3, "splits": 2}, 32, 1, "3 workers x any number of games in 2 splits.* a multiple of 6"),
        ({"workers": 2, "games_per_worker": 8}, 32, 1, "2 workers x 8 games; make them 16 "),
        ({"workers": 2}, 33, 2, "33 rows, but a game has 2 agents"),
    ],
)
def test_games_that_do_not_divide_are_refused_with_the_arithmetic(settings, rows, agents, message) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_workers(Sampling(**settings), rows, agents)


def test_workers_are_pinned_only_where_every_core_gets_as_many(monkeypatch) -> None:
    monkeypatch.setattr(plan, "usable_cpus", lambda: [2, 5])
    assert cores_for(4, device=False) == ([2, 5, 2, 5], None)
    assert cores_for(3, device=False) == ([None] * 3, None)


def test_one_worker_fewer_than_cores_leaves_one_to_whoever_decides_on_a_device(monkeypatch) -> None:
    monkeypatch.setattr(plan, "usable_cpus", lambda: [2, 5, 7])
    assert cores_for(2, device=True) == ([5, 7], 2)
    assert cores_for(2, device=False) == ([None, None], None)  # elsewhere learners want all cores
    assert cores_for(3, device=True) == ([2, 5, 7], None)


@pytest.mark.parametrize(
    ("more", "games"),
    [
        ([], 2),  # one for each split
        (["palus.sampling.workers=0"], 1),
        (["palus.sampling={workers: 3, games_per_worker: 4}"], 12),
        (["palus.num_matches=8", "palus.sampling.workers=2"], 8),
    ],
)
def test_games_of_a_trainer_with_a_replay_buffer_do_not_follow_from_its_size(more: list[str], games: int) -> None:
    sac = ["behaviors.SoccerTwos.trainer_type=sac", "palus.num_matches=0"]
    run = load_run("debug", [*sac, *more])
    assert worker_games(run, learning=2) == games
    plan = plan_workers(run.palus.sampling, 4 * games, agents=4)
    assert plan.processes * plan.splits * plan.games == games


@pytest.mark.parametrize(
    ("more", "matches", "steps"),
    # of two learning rows each; 2000 // (2 x 80), and the least that fills 2000
    [([], 12, 84), (["behaviors.SoccerTwos.time_horizon=50"], 20, 50), (["palus.num_matches=3"], 3, 334)],
)
def test_matches_of_one_process_and_the_decisions_of_a_rollout_fill_the_buffer(
    more: list[str], matches: int, steps: int
) -> None:
    sizes = ["behaviors.SoccerTwos.hyperparameters={buffer_size: 2000, batch_size: 100}", "palus.num_matches=0"]
    run = load_run("debug", [*sizes, "behaviors.SoccerTwos.time_horizon=1000", *more])
    assert plan_matches(run, rows=2) == (matches, steps)


RECALLS = "behaviors.SoccerTwos.network_settings.memory={memory_size: 8, sequence_length: 6}"


@pytest.mark.parametrize(
    ("more", "matches", "steps"),
    [
        ([], 12, 2),  # 1000 / 80; four gradient steps, one for ten of 24 rows at once
        (["palus.num_matches=1"], 1, 20),
        (["palus.num_matches=1", "behaviors.SoccerTwos.time_horizon=7"], 1, 7),
        (["palus.num_matches=1", RECALLS], 1, 24),  # in whole sequences
        (["palus.num_matches=64", RECALLS], 64, 6),
    ],
)
def test_a_trainer_with_a_replay_buffer_learns_as_soon_as_a_few_gradient_steps_are_due(
    more: list[str], matches: int, steps: int
) -> None:
    pace = "behaviors.SoccerTwos.hyperparameters={steps_per_update: 10}"
    sac = ["behaviors.SoccerTwos.trainer_type=sac", "behaviors.SoccerTwos.time_horizon=1000", pace]
    run = load_run("debug", [*sac, "palus.num_matches=0", *more])
    assert plan_matches(run, rows=2) == (matches, steps)
    # Unity's games, whose agents are not known: of all together, or with memory of each.
    demand = demands_of(run, {0: ("SoccerTwos", Always(0))}, {0: 1})[0]
    recalls, horizon = RECALLS in more, run.behaviors["SoccerTwos"].time_horizon
    assert demand == (min(horizon, 42 if recalls else 40), 6 if recalls else horizon, False, recalls)
    four = demands_of(run.changed(env_settings={"num_envs": 4}), {0: ("SoccerTwos", Always(0))}, {0: 1})[0]
    assert four.rows == 4 * min(horizon, 12 if recalls else 10)
    alike = {**run.behaviors, "Late": run.behaviors["SoccerTwos"]}
    assert plan_matches(run.changed(behaviors=alike), rows=2) == (matches, steps)
    # Others that share its rollouts would learn nothing from a few decisions.
    both = {**run.behaviors, "Late": load_run("debug").behaviors["SoccerTwos"]}
    assert plan_matches(run.changed(behaviors=both), rows=2) == (matches, horizon)


@pytest.mark.parametrize(
    ("past", "mirrors", "all_teams", "rows"),
    [(True, False, False, 2), (False, False, False, 4), (True, True, False, 4), (True, False, True, 4)],
)
def test_who_meets_its_past_learns_on_one_team_unless_all_do(
    past: bool, mirrors: bool, all_teams: bool, rows: int
) -> None:
    assert rows_per_match(Pitch([1]).spec, "Pitch", past=past, mirrors=mirrors, all_teams=all_teams) == rows


def test_ranks_of_one_machine_share_its_cores(monkeypatch) -> None:
    monkeypatch.setattr(plan, "physical_cores", lambda: 4)
    assert plan_workers(Sampling(), 32, agents=1, neighbours=2).workers == 2


def test_rollouts_of_games_in_workers_are_as_short(tmp_path: Path) -> None:
    pace = "behaviors.SoccerTwos.hyperparameters={steps_per_update: 10}"
    sac = ["behaviors.SoccerTwos.trainer_type=sac", "behaviors.SoccerTwos.time_horizon=1000", pace]
    more = ["palus.sampling={collector: workers, workers: 0}", "palus.num_matches=2", "palus.threads=1"]
    places = [f"checkpoint_settings.results_dir={tmp_path}", "behaviors.SoccerTwos.self_play=null"]
    with closing(Run(load_run("debug", [*sac, *more, *places]), log=lambda level, text: None)) as run:
        (rollout,) = run.collector.collect().rollouts.values()
    assert rollout.active.shape == (5, 8)  # four gradient steps, one for ten of the eight rows at once
