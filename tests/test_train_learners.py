"""Several learners of a behavior in real runs: populations of any trainer, with self-play too, and a league's roles."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_resume import assert_same

from palus.arena.referee.result import PairingSummary
from palus.config import load_run
from palus.errors import CheckpointError
from palus.export.policy_file import find_policies, read_policy
from palus.league.book import BASELINE
from palus.league.population import Turn
from palus.rollout.rollout import FROZEN, Pace
from palus.run.baselines import ActingPolicy
from palus.run.saving import Saving
from palus.train import Run, train
from test_train_league import PLAY, TOY, run_file

PPO: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 480, "batch_size": 120, "learning_rate_schedule": "constant", "beta": 0.0001},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "time_horizon": 4,
}


def weights(parts: Run, policy: int) -> Any:
    return parts.trainees[policy].learner.network.weights.master.numpy().copy()


def finished(run: Any) -> Run:
    runs: list[Run] = []
    assert train(run, on_start=runs.append).finished
    return runs[0]


@pytest.mark.slow
def test_a_population_finds_a_learning_rate_where_the_run_files_is_far_too_small(tmp_path: Path) -> None:
    """MenuToy pays 2 for guessing and 11/3 for the best order."""
    numbers = PPO["hyperparameters"] | {"learning_rate": 2e-4}
    behavior = PPO | {"hyperparameters": numbers, "max_steps": 5000}
    population = {"size": 3, "period": 500, "start": 500, "mutation_rate": 1.0, "perturb_min": 3, "perturb_max": 6}
    alone = finished(run_file(tmp_path, "MenuToy", {"MenuToy": behavior}, "checkpoint_settings.run_id=alone"))
    assert (alone.trainees[0].record.mean("reward") or 9.0) < 2.3
    many = finished(run_file(tmp_path, "MenuToy", {"MenuToy": behavior | {"population": population}}))
    best = max(many.trainees, key=lambda trainee: trainee.score or 0.0)
    assert best.score is not None and best.score > 3.3
    assert best.learner.behavior.hyperparameters.learning_rate > 5 * 2e-4
    assert find_policies(tmp_path / "run")["MenuToy"].metric == best.score
    assert {path.name for path in (tmp_path / "run").glob("MenuToy/*/policy.npz")} == {"policy.npz"}
    assert not [*(tmp_path / "run").glob("MenuToy/policy_*/*.onnx")]


def test_in_self_play_the_policy_that_loses_to_the_others_takes_over_who_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = PPO["hyperparameters"] | {"learning_rate": 0.02 / 300}
    settings = {"size": 2, "period": 2000, "start": 2400, "replace_fraction": 0.5, "mutation_rate": 1.0}
    behavior = PPO | {
        "hyperparameters": numbers, "max_steps": 10**6, "self_play": PLAY | {"team_change": 10**9},
        "population": settings | {"perturb_min": 300, "perturb_max": 300},
    }  # fmt: skip
    parts = Run(run_file(tmp_path, "DuelToy", {"DuelToy": behavior}))
    (bad, good), (worse, better) = parts.trainees, parts.league.pools.values()
    assert good.learner.behavior.hyperparameters.learning_rate == pytest.approx(0.02)
    while worse.origin != better.origin and bad.step < 9000:
        points, before, past = (good.points or 0.0, bad.points or 1.0), weights(parts, 0), worse.window[-1:]
        player = parts.baselines.player
        parts.iterate()
    assert (good.score, bad.score) == (good.points, bad.points)
    assert bad.step >= 2400 and points[0] > 0.6 > 0.45 > points[1]
    assert (weights(parts, 0) == weights(parts, 1)).all() and not (weights(parts, 0) == before).all()
    assert worse.window[-1:] > past and parts.book.records[FROZEN + worse.window[-1]].parent == 0
    assert bad.points == pytest.approx(good.points, abs=0.1)  # the other's form is its own now
    assert isinstance(player, ActingPolicy) and player.network is good.learner.network  # as who would be exported
    parts.save()
    monkeypatch.setattr(parts.league, "points", {0: 0.9, 1: 0.1}.get)
    parts._compare()
    player = parts.baselines.player
    assert isinstance(player, ActingPolicy) and player.network is bad.learner.network  # the better one by now
    parts.close()
    page = json.loads((tmp_path / "run" / "league" / "league.json").read_text())
    assert [row["origin"] for row in page["learners"]] == [better.origin] * 2


def both(folder: Path, several: dict[str, Any], **palus: Any) -> Any:
    behaviors = {
        "Striker": TOY | {"self_play": PLAY | {"save_steps": 60, "team_change": 200}},
        "Keeper": TOY | {"self_play": PLAY | {"save_steps": 60, "team_change": 200}},
    }
    for name, own in several.items():
        behaviors[name] = behaviors[name] | own
    return run_file(folder, "PenaltyToy", behaviors, **palus)


OFTEN = {"period": 100, "start": 100, "mutation_rate": 1.0, "replace_fraction": 0.4, "replace_gap": 0.0}
POPULATIONS = {
    "Striker": {"population": OFTEN | {"size": 2}},
    "Keeper": {"population": OFTEN | {"size": 3}, "hyperparameters": TOY["hyperparameters"] | {"learning_rate": 0.005}},
}
ROLES = {"league": {"opponents": "pfsp_hard", "roles": {"main_exploiter": 1, "league_exploiter": 1}}}


def test_each_behavior_has_a_population_of_its_own(tmp_path: Path) -> None:
    parts = Run(both(tmp_path, POPULATIONS))
    labels = [trainee.label for trainee in parts.trainees]
    assert labels == [f"Striker policy {k}" for k in (0, 1)] + [f"Keeper policy {k}" for k in (0, 1, 2)]
    rates = [trainee.learner.behavior.hyperparameters.learning_rate for trainee in parts.trainees]
    assert [rates[0], rates[2]] == [0.02, 0.005]
    assert all(1 / 1.51 < rate / 0.02 < 1.51 for rate in rates[:2])
    assert all(1 / 1.51 < rate / 0.005 < 1.51 for rate in rates[2:])
    assert rates[1] / rates[0] != pytest.approx(rates[3] / rates[2])  # nor are their draws the same
    begun = [weights(parts, policy) for policy in range(2)]
    assert not (begun[0] == begun[1]).all()  # each begins with weights of its own, and would begin anew with them
    anew = parts.maker.untrained(parts.trainees[1].behavior, parts.spec, "Striker", 1)
    assert (anew.network.weights.master.numpy() == begun[1]).all()
    for _ in range(18):
        parts.iterate()
    rates = [trainee.learner.behavior.hyperparameters.learning_rate for trainee in parts.trainees]
    assert rates == [parts._numbers[k]["learning_rate"] for k in range(5)] and len(set(rates)) > 3
    origins = [parts.book.records[pool.origin or 0].behavior for pool in parts.league.pools.values()]
    assert origins == ["Striker"] * 2 + ["Keeper"] * 3
    parts.close()


@pytest.mark.parametrize("donor", [None, 0, 2])
def test_whoever_has_its_turn_takes_over_from_whom_it_is_told_and_learns_on_with_its_numbers(donor: int | None) -> None:
    behavior, taken, tuned = load_run("debug").behaviors["SoccerTwos"], list[tuple[int, int]](), list[Any]()
    trainees = [
        SimpleNamespace(
            name="SoccerTwos", number=k, step=100, score=float(k), behavior=behavior,
            learner=SimpleNamespace(tune=lambda own: tuned.append(own)),
        )
        for k in range(3)
    ]  # fmt: skip
    population = SimpleNamespace(
        is_due=lambda number, step: (number, step) == (1, 100),
        turn=lambda number, step, scores: Turn(donor, {"learning_rate": 0.5}) if scores == [0.0, 1.0, 2.0] else None,
    )
    run: Any = SimpleNamespace(
        populations={"SoccerTwos": population}, trainees=trainees, _shape_rewards=lambda: None,
        _take_over=lambda own, other: taken.append((own.number, other.number)),
    )  # fmt: skip
    Run._evolve(run)
    assert taken == ([] if donor is None else [(1, donor)])
    assert [own.hyperparameters.learning_rate for own in tuned] == [0.5]


@pytest.mark.parametrize(
    ("step", "taken", "plays_only", "learns"),
    [(99, 3, False, True), (100, 3, False, False), (99, 0, False, False), (99, 3, True, False)],
)
def test_whoever_is_done_only_plays_or_took_no_decision_learns_nothing(
    step: int, taken: int, plays_only: bool, learns: bool
) -> None:
    learned, told, nothing = list[int](), list[Any](), (lambda *_: None)
    learner = SimpleNamespace(
        update=lambda rollout, step: learned.append(step) or {"loss": 1.0}, calibrate=nothing, steps_in=lambda n, _: n
    )
    trainee: Any = SimpleNamespace(
        policy=0, behavior=SimpleNamespace(max_steps=100), plays_only=plays_only, learner=learner, shown_step=200,
        record=SimpleNamespace(add=lambda *given: told.append(given)),
    )  # fmt: skip
    run: Any = SimpleNamespace(
        timers=SimpleNamespace(block=nullcontext), computing=SimpleNamespace(postponed=SimpleNamespace(do=nothing)),
        learning_seconds=0.0, spec=SimpleNamespace(frameskip=1),
    )  # fmt: skip
    pace = Pace(np.array([taken]), np.array([0]))
    collected: Any = SimpleNamespace(rollouts={0: None}, pace_of=lambda _: pace, episodes=[], entropies={0: 0.5})
    Run._learn(run, trainee, collected, step)
    assert learned == ([step] if learns else [])
    assert told == [([], {"loss": 1.0} if learns else {}, 0.5, [])]


def test_the_slowest_of_those_who_learn_says_how_far_a_run_is_and_that_of_a_behavior_when_it_is_saved() -> None:
    steps = [("Striker", 250), ("Striker", 120), ("Striker", 390), ("Keeper", 310), ("Idle", 0)]
    goal = {"Striker": 1000, "Keeper": 900, "Idle": 0}
    trainees = [SimpleNamespace(name=n, step=s, behavior=SimpleNamespace(max_steps=goal[n])) for n, s in steps]
    settings = {name: SimpleNamespace(checkpoint_interval=100) for name in ("Striker", "Keeper", "Idle")}
    parts: Any = SimpleNamespace(trainees=trainees, run=SimpleNamespace(behaviors=settings))
    assert Run.checkpoints.fget(parts) == {"Striker": 1, "Keeper": 3, "Idle": 0}
    assert Run.step.fget(parts) == 120
    assert not Run.finished.fget(parts)


@pytest.mark.parametrize("kind", ["populations", "roles"])
def test_a_run_of_several_learners_goes_on_after_a_stop_as_if_there_had_been_none(tmp_path: Path, kind: str) -> None:
    run = both(tmp_path, POPULATIONS if kind == "populations" else {}, **ROLES if kind == "roles" else {})
    one = Run(run)
    for _ in range(12):
        one.iterate()
    one.save()
    one._kept.close()  # lets another process in, as a kill would
    two = Run(run, resume=True)
    assert [trainee.score for trainee in two.trainees] == [trainee.score for trainee in one.trainees] != [None] * 5
    for parts in (one, two):
        for _ in range(10):
            parts.iterate()
    states = [parts._state() for parts in (one, two)]
    assert_same(*states)
    records = one.book.records.values()
    if kind == "roles":
        assert {record.role for record in records} == {"main", "main_exploiter", "league_exploiter"}
        assert sum(record.origin is None for record in records) > 8  # more than began untrained
    else:
        lines = [(record.parent, one.book.records[record.origin].parent) for record in records if record.origin]
        assert any(parent != own for parent, own in lines)
    one.close()
    two.close()


def test_matches_against_fixed_opponents_are_those_of_the_best_learner_and_half_a_point_is_a_draw(
    tmp_path: Path,
) -> None:
    parts = Run(both(tmp_path, POPULATIONS))
    parts.trainees[0].points, parts.trainees[1].points = 0.4, 0.6
    with parts.report:
        parts.enter({"random": PairingSummary(0.75, (0.5, 1.0), 2, 2, 0, 2, 10.0, None, None)})
    assert parts.book.evaluation == {(1, BASELINE): (3.0, 4)} and parts.book.names == {BASELINE: "random"}
    parts.close()


def test_who_has_no_score_yet_is_exported_only_where_nobody_has_one() -> None:
    scores = [("Striker", None), ("Striker", -3.0), ("Striker", -2.0), ("Keeper", None), ("Keeper", None)]
    trainees = [SimpleNamespace(name=name, score=score) for name, score in scores]
    best = Saving.exported.fget(SimpleNamespace(trainees=trainees))
    assert [trainees.index(trainee) for trainee in best] == [2, 3]


def test_a_run_is_not_resumed_with_other_roles(tmp_path: Path) -> None:
    parts = Run(both(tmp_path, {}, **ROLES))
    parts.save()
    parts.close()
    with pytest.raises(CheckpointError, match="does not fit this run file"):
        Run(both(tmp_path, {}), resume=True)


def test_exploiters_of_a_matrix_game_are_frozen_begin_anew_and_are_met(tmp_path: Path) -> None:
    numbers = PPO["hyperparameters"] | {"buffer_size": 384, "learning_rate": 0.02}
    play = PLAY | {"save_steps": 300, "swap_steps": 0, "window": 100, "team_change": 10**9}
    behavior = PPO | {"hyperparameters": numbers, "time_horizon": 1, "max_steps": 2000, "self_play": play}
    parts = Run(run_file(tmp_path, "RockPaperScissors", {"RockPaperScissors": behavior}, num_matches=64, **ROLES))
    main, hunter, seeker = parts.trainees
    assert [t.label.split()[1] for t in (main, hunter, seeker)] == ["main", "main_exploiter", "league_exploiter"]
    untrained = weights(parts, 1)
    while not parts.league.resets:
        before = weights(parts, 1)
        parts.iterate()
    assert parts.league.resets == [1] and (weights(parts, 1) == untrained).all() and not (before == untrained).all()
    frozen = FROZEN + parts.league.pools[1].window[-1]
    assert hunter.learner.network.version > 0 and hunter.step > 300
    while (0, frozen) not in parts.league.payoffs.cells and not parts.finished:
        parts.iterate()
    assert parts.league.payoffs.cells[0, frozen][1] > 0
    parts.save()
    parts.close()
    files = [tmp_path / "run" / "RockPaperScissors" / name / "policy.npz" for name in ("policy_0", "policy_1")]
    assert main.score == main.points is not None and hunter.points is not None and hunter.score is None
    mains, hunters = (read_policy(file) for file in files)
    exported = find_policies(tmp_path / "run")["RockPaperScissors"]
    assert (exported.steps, mains.steps) == (main.step, main.step) != (hunters.steps, hunters.steps)
    assert all(np.array_equal(array, mains.arrays[name]) for name, array in exported.arrays.items())
