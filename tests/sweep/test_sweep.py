"""A sweep on a real database: trials that train or end at once, workers that join, and what comes out."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from postgres import postgres_server, postgres_url  # noqa: F401
from small_sweep import EPOCHS, KEY, RATE, RUN, SPACE, Make, Quick, Reward, number_of, plan, rate
from typer.testing import CliRunner

pytest.importorskip("optuna", reason="sweeps take palus[sweep]")

import optuna

from palus.cli import app
from palus.errors import ConfigError, PalusError
from palus.launch.apart import Ending
from palus.sweep import outcome
from palus.sweep.objective import Objective
from palus.sweep.outcome import importances, rows, write_outcome
from palus.sweep.study import make_study, opened_storage, trial_folder


def test_as_many_trials_as_were_asked_and_not_one_more(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]
) -> None:
    """Also when another worker begins one between the look and the start."""
    at_once(lambda run, share: math.log10(rate(run)) * share)
    own = plan(prunes=False)
    late = worker(own, 3)
    look, intruded = late._look, []

    def and_meanwhile() -> Sequence[optuna.trial.FrozenTrial]:
        found = look()
        if len(found) == 2 and not intruded:
            with pytest.warns(UserWarning, match="Heartbeat"):
                intruded.append(worker(own, 3).study.ask({}))
        return found

    late._look = and_meanwhile  # type: ignore[method-assign,assignment]
    late.stopped = lambda: len(late.study.trials) > 3  # the intruder never ends
    assert not late.work()
    assert [row.number for row in rows(late.study, own)] == [0, 1, 2]
    assert len(late.study.trials) == 4 and not trial_folder(tmp_path, 3).exists()


def test_hopeless_trials_end_early_and_pictures_show_all(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]
) -> None:
    """Each trial is worse than the one before: from the sixth on they are below the median once they are judged."""
    at_once(lambda run, share: share - number_of(run))
    own = plan()
    done = worker(own, 7)
    assert done.work()
    told = rows(done.study, own)
    assert [row.state for row in told] == ["complete"] * 5 + ["pruned"] * 2
    assert [row.done for row in told[4:]] == [1.0, 0.45, 0.45]  # the first quarter is warming up
    assert told[0].labels == {RATE: 1e-6, EPOCHS: 3} and [row.best for row in told] == [True, *[False] * 6]
    assert sum(importances(done.study, own, 0).values()) == pytest.approx(1)
    names = {path.name for path in write_outcome(done.study, own, tmp_path)}
    assert names == {"best.yaml", "curves.png", "importances.png", "slices.png", "contours.png"}


def test_of_several_seeds_too_nobody_ends_within_a_quarter_of_the_whole_budget(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: share - number_of(run))
    done = worker(plan(seeds=2), 6)
    assert done.work()
    told = rows(done.study, done.plan)
    assert (told[5].state, told[5].done) == ("pruned", 0.35)  # it is judged at marks 4, 9 and 14 of 40


def test_a_trial_that_has_used_up_its_budget_is_complete_however_it_ends(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    """The sixth is as good as the others until its last mark, by which it is below their median."""
    at_once(lambda run, share: min(share, 0.96) if number_of(run) == 5 else share)
    done = worker(plan(), 6)
    assert done.work()
    assert [(row.state, row.values) for row in rows(done.study, done.plan)][4:] == [
        ("complete", [1.0]), ("complete", [0.96])
    ]  # fmt: skip


def test_of_seeds_that_have_not_come_so_far_the_former_ones_stand(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    """Interrupted at a fifth of its second seed."""
    at_once(lambda run, share: 10 * share + 4 * run.env_settings.seed)
    own = worker(plan(seeds=2), 1)
    own.stopped = lambda: any(trial.user_attrs.get("done", 0) > 0.5 for trial in own.study.trials)
    assert not own.work()
    told = own.study.trials[0].user_attrs
    assert told["done"] == 0.6
    curve = told["curves"]["reward"]
    assert len(curve) == 20 and (curve["4"], curve["5"], curve["20"]) == (4.0, 2.5, 10.0)


def test_what_comes_out_goes_beside_the_study_s_file(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outcome, "_pictures", lambda *_: {})
    at_once(lambda run, share: share)
    assert worker(plan(), 1, Path("elsewhere/menu"), "elsewhere/menu/study.db").work()
    for url in ("elsewhere/menu/study.db", f"sqlite:///{tmp_path}/elsewhere/menu/study.db", "elsewhere/menu"):
        result = CliRunner().invoke(app, ["sweep", "show", url])
        assert result.exit_code == 0, result.output
        Path("elsewhere/menu/best.yaml").unlink()
    assert not Path("results").exists()
    Path("elsewhere/menu/.study").write_text("of another sweep, beside which the database of this one lies, too")
    assert CliRunner().invoke(app, ["sweep", "show", "elsewhere/menu/study.db"]).exit_code == 0
    assert Path("results/menu/best.yaml").is_file() and not Path("elsewhere/menu/best.yaml").exists()


def test_who_looked_at_a_study_from_afar_can_join_it(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outcome, "_pictures", lambda *_: {})
    at_once(lambda run, share: share)
    url = f"sqlite+pysqlite:///{tmp_path}/study.db"  # as one of PostgreSQL, by whose address nobody finds a folder
    assert worker(plan(), 1, tmp_path / "there", url).work()
    show = ["sweep", "show", url]
    assert CliRunner().invoke(app, show).exit_code == 0
    assert worker(plan(), 2, Path("results/menu"), url).work()
    shutil.rmtree("results/menu")
    Path("results/menu").mkdir()
    Path("results/menu/configuration.yaml").write_text("of a run")
    refused = CliRunner().invoke(app, show)
    assert refused.exit_code == 2 and "results/menu: holds no sweep, but something else" in refused.stderr
    assert CliRunner().invoke(app, [*show, "--output", "elsewhere"]).exit_code == 0
    assert {path.name for path in Path("results/menu").iterdir()} == {"configuration.yaml"}


def test_a_study_s_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "why? 100%41 {x} #1" / "study.db"
    for _ in range(2):
        with opened_storage(str(file)) as storage:
            make_study(storage, "menu", plan())
    assert file.is_file() and [path.name for path in tmp_path.iterdir()] == [file.parent.name]


def test_seeds_are_averaged_and_the_same_in_every_trial(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: float(run.env_settings.seed * 10 * share))
    own = plan(seeds=3)
    done = worker(own, 1)
    assert done.work()
    [row] = rows(done.study, own)
    assert row.values == [10.0]  # of 0, 10 and 20
    assert {path.name for path in trial_folder(tmp_path, 0).iterdir()} == {"seed-0", "seed-1", "seed-2"}
    reported = done.study.trials[0].intermediate_values
    assert len(reported) == 60 and (reported[20], reported[30], reported[60]) == (0.0, 2.5, 10.0)


def test_of_several_objectives_none_is_lost(worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]) -> None:
    at_once(lambda run, share: math.log10(rate(run)))
    own = plan(objectives=(Objective("reward"), Objective("reward", "MenuToy")))
    done = worker(own, 3)
    assert done.work()
    assert all(row.values[0] == row.values[1] for row in rows(done.study, own))
    assert "curves-reward-MenuToy.png" in {path.name for path in write_outcome(done.study, own, tmp_path)}


def test_runs_that_report_no_such_number_end_the_sweep(
    worker: Make, tmp_path: Path, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: 0.0)
    with pytest.raises(PalusError, match=r"the first 3 trials all failed.*reported no group_reward, but Environment"):
        worker(plan(objectives=(Objective("group_reward"),)), 9).work()


def test_a_sweep_whose_first_trial_was_good_outlives_any_number_that_fail(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: share if number_of(run) == 0 else None)
    done = worker(plan(prunes=False), 5)
    assert done.work()
    assert [row.state for row in rows(done.study, done.plan)] == ["complete", *["failed"] * 4]


def test_a_run_that_diverges_is_pruned_and_says_why(
    worker: Make, at_once: Callable[[Reward], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its numbers were to blame: the sampler learns from it, which it does not from one that failed."""
    at_once(lambda run, share: share)
    monkeypatch.setattr(Quick, "ending", Ending("its loss is no number", diverged=True))
    done = worker(plan(), 1)
    assert done.work()
    [row] = rows(done.study, done.plan)
    assert (row.state, row.why) == ("pruned", "it diverged: its loss is no number")


def test_who_asks_for_fewer_trials_leaves_those_of_others_alone(
    worker: Make, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: share)
    done = worker(plan(), 2)
    assert done.work()
    done.study.enqueue_trial({RATE: 1e-3, EPOCHS: 1})  # by one who asks for more
    assert worker(plan(), 2).work()
    assert [row.state for row in rows(done.study, done.plan)] == ["complete", "complete", "waiting"]


@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_who_joins_with_another_plan_is_told_what_differs(
    worker: Make, tmp_path: Path, where: str, request: pytest.FixtureRequest, at_once: Callable[[Reward], None]
) -> None:
    at_once(lambda run, share: 0.0)
    url = request.getfixturevalue("postgres_url") if where == "postgresql" else f"sqlite:///{tmp_path}/s.db"
    assert worker(plan(), 2, tmp_path / "here", url).work()
    assert len(worker(plan(), 2, tmp_path / "there", url).study.trials) == 2
    with opened_storage(url) as storage:
        optuna.create_study(storage=storage, study_name="foreign").add_trial(optuna.create_trial(value=1.0))
        with pytest.raises(ConfigError, match="not made by `palus sweep`"):
            make_study(storage, "foreign", plan())
    with pytest.raises(ConfigError, match=r"menu is another one: seeds 1, here 2; minutes 0.0, here 5.0\. Type"):
        worker(plan(seeds=2, minutes=5.0), 2, tmp_path / "there", url)


def test_a_sweep_that_is_refused_a_folder_makes_no_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("menu.yaml").write_text(json.dumps(RUN))
    Path("space.yaml").write_text(SPACE)
    Path("results/menu").mkdir(parents=True)
    Path("results/menu/configuration.yaml").write_text("of a run")
    for options in ([], ["--study", "study.db"]):
        result = CliRunner().invoke(app, ["sweep", "menu.yaml", "--objective", "reward", *options])
        assert result.exit_code == 2 and "holds no sweep, but something else" in result.stderr
    assert not [*tmp_path.rglob("study.db")]


def test_a_folder_of_something_else_is_left_alone(worker: Make, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="holds no sweep, but something else"):
        worker(plan(), 1)
    (tmp_path / "thesis.txt").unlink()
    (tmp_path / ".study").write_text("of yesterday")
    with pytest.raises(ConfigError, match="holds another sweep"):
        worker(plan(), 1)


def test_mistakes_are_told_before_anything_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("menu.yaml").write_text(json.dumps(RUN))
    Path("space.yaml").write_text(f"{KEY}.learning_rat: {{log: [1e-6, 1e-2]}}\n")

    def said(*words: str) -> str:
        result = CliRunner().invoke(app, ["sweep", *words])
        assert result.exit_code == 2, result.output
        return result.stderr

    assert "learning_rat: unknown key; did you mean learning_rate?" in said("menu.yaml", "--objective", "reward")
    assert "objective rewards: there is none" in said("menu.yaml", "--objective", "rewards")
    assert "--name a/b: expected letters" in said("menu.yaml", "--name", "a/b")
    assert "nowhere.db: no such file" in said("status", "nowhere.db")
    assert ".: found a folder without study.db; give the database URL" in said("status", ".")
    assert ".: found a folder, expected a YAML file" in said("menu.yaml", "--objective", "reward", "--space", ".")
    assert not Path("results").exists()
    Path("space.yaml").write_text(SPACE)
    begun = ("menu.yaml", "--objective", "reward")
    for option, path in (("--results-dir", "menu.yaml"), ("--study", "menu.yaml/x/study.db")):
        assert "the folder cannot be made (" in said(*begun, option, path)
    assert "choose another" in said(*begun, "--study", "study.db", "--results-dir", "menu.yaml")
