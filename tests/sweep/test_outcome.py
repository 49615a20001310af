"""What a sweep tells of its trials: which is the best, how far each came, what decides, and what stands in pictures."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

pytest.importorskip("optuna", reason="sweeps take palus[sweep]")

import optuna
from matplotlib.colors import to_hex
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from palus.cli import app
from palus.errors import ConfigError
from palus.store import open_store
from palus.sweep import outcome
from palus.sweep.objective import Objective
from palus.sweep.plan import Plan
from palus.sweep.space import Dimension
from palus.sweep.study import opened_storage

RATE = Dimension("x.learning_rate", "log", (1e-6, 1.0))
EPOCHS = Dimension("x.num_epoch", "int", (1, 10))
UNITS = Dimension("x.hidden_units", "choice", (32, 64, [16, 16]))
PLAN = Plan({}, (RATE, EPOCHS), (Objective("reward"),))
DISTRIBUTIONS = {RATE.path: FloatDistribution(1e-6, 1.0, log=True), EPOCHS.path: IntDistribution(1, 10)}


def trial(
    rate: float, epochs: int, *values: float, curve: Mapping[str, float] | None = None, done: float = 0.95
) -> FrozenTrial:
    """A complete one, with the values that it ended with, or a pruned one."""
    told = {} if curve is None else {"curves": {"reward": curve}, "done": done}
    state = TrialState.COMPLETE if values else TrialState.PRUNED
    params = {RATE.path: rate, EPOCHS.path: epochs}
    return optuna.create_trial(
        state=state, values=list(values) or None, params=params, distributions=DISTRIBUTIONS, user_attrs=told
    )


def study(*trials: FrozenTrial, objectives: int = 1) -> optuna.Study:
    made = optuna.create_study(directions=["maximize"] * objectives)
    made.add_trials(trials)
    return made


def test_who_is_best_and_how_far_the_others_came() -> None:
    made = study(
        trial(1e-3, 1, 0.8, curve={"19": 0.7, "20": 0.8}),
        trial(1e-2, 2, curve={"2": 0.1, "9": 1.0, "10": 2.0}, done=0.5),  # as text, 2 stands behind 10
        trial(1e-4, 3, 0.5),
    )
    told = [(row.state, row.best, row.values, row.done) for row in outcome.rows(made, PLAN)]
    assert told == [("complete", True, [0.8], 1.0), ("pruned", False, [2.0], 0.5), ("complete", False, [0.5], 1.0)]
    assert outcome.best_trials(study(trial(1e-2, 2, curve={"2": 9.0}))) == []
    both = study(trial(1e-3, 1, 1.0, 0.0), trial(1e-3, 2, 0.0, 1.0), trial(1e-3, 3, 0.5, -1.0), objectives=2)
    assert {own.number for own in outcome.best_trials(both)} == {0, 1}


def test_of_equals_the_curves_show_the_one_that_the_table_calls_best() -> None:
    made = study(*(trial(1e-3, epochs, 1.0, curve={"20": 1.0}) for epochs in (4, 5, 6)))
    assert [row.number for row in outcome.rows(made, PLAN) if row.best] == [0]
    legend = outcome._pictures(made, PLAN, 0)["curves"].axes[0].get_legend()
    assert legend is not None
    assert [text.get_text().partition(":")[0] for text in legend.get_texts()] == ["trial 0"]


def test_important_is_what_decides_whether_a_trial_is_good_and_it_stands_first() -> None:
    """Good are all of the lowest rate, bad those of the others that have most epochs."""
    made = study(
        *(
            trial(10.0 ** (k - 9), epochs, 1.0 if k == 3 else -1.0 if epochs > 8 else 0.0)
            for k in range(3, 10)
            for epochs in range(1, 11)
        )
    )
    weights = outcome.importances(made, PLAN, 0)
    assert weights[RATE.path] > 0.9 and sum(weights.values()) == pytest.approx(1)
    figures = outcome._pictures(made, PLAN, 0)
    assert [axes.get_xlabel() for axes in figures["slices"].axes] == ["learning_rate", "num_epoch"]
    bars = figures["importances"].axes[0]
    assert [label.get_text() for label in bars.get_yticklabels()] == ["learning_rate", "num_epoch"]


def test_what_decides_is_told_of_each_objective() -> None:
    plan = Plan({}, (RATE, EPOCHS), (Objective("reward"), Objective("elo")))
    made = study(
        *(trial(10.0 ** (k - 9), epochs, float(k), float(epochs)) for k in range(3, 10) for epochs in range(1, 11)),
        objectives=2,
    )
    assert outcome.importances(made, plan, 0)[RATE.path] > 0.9 < outcome.importances(made, plan, 1)[EPOCHS.path]


def test_of_several_best_trials_each_has_its_run_file(tmp_path: Path) -> None:
    plan = Plan({}, (RATE, EPOCHS), (Objective("reward"), Objective("elo")))
    outcome.write_outcome(study(trial(1e-3, 1, 1.0, 0.0), trial(1e-2, 2, 0.0, 1.0), objectives=2), plan, tmp_path)
    files = {path.name: yaml.safe_load(path.read_text()) for path in tmp_path.glob("*.yaml")}
    assert {name: file["x"]["num_epoch"] for name, file in files.items()} == {"best-0000.yaml": 1, "best-0001.yaml": 2}


def test_run_files_of_trials_that_were_best_before_go_and_nobody_else_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "_pictures", lambda *_: {})
    plan = Plan({}, (RATE, EPOCHS), (Objective("reward"), Objective("elo")))
    made = study(trial(1e-3, 1, 1.0, 1.0), objectives=2)

    def there() -> set[str]:
        outcome.write_outcome(made, plan, tmp_path)
        return {path.name for path in tmp_path.glob("*.yaml")}

    assert there() == {"best.yaml"}
    for name in ("best-1.yaml", "best-of-all.yaml"):
        (tmp_path / name).write_text("# Trial 1 of the sweep of somebody else: 1;\n")
    made.add_trial(trial(1e-2, 2, 0.0, 2.0))
    assert there() == {"best-0000.yaml", "best-0001.yaml", "best-1.yaml", "best-of-all.yaml"}
    made.add_trial(trial(1e-2, 3, 0.0, 3.0))
    assert there() == {"best-0000.yaml", "best-0002.yaml", "best-1.yaml", "best-of-all.yaml"}


def test_of_the_curves_the_best_complete_one_is_red_and_what_is_not_complete_dotted() -> None:
    made = study(
        trial(1e-3, 1, 0.8, curve={"10": 0.4, "20": 0.8}),
        trial(1e-2, 2, curve={"5": 0.9}),
        trial(1e-4, 3, 0.5, curve={"10": 0.6, "20": 0.5}),
    )
    axes = outcome._pictures(made, PLAN, 0)["curves"].axes[0]
    red = to_hex("crimson")
    drawn = {tuple(line.get_ydata()): (to_hex(line.get_color()) == red, line.get_linestyle()) for line in axes.lines}
    assert drawn == {(0.4, 0.8): (True, "-"), (0.9,): (False, ":"), (0.6, 0.5): (False, "-")}
    assert [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 1] == [[25.0]]
    [label] = [text.get_text() for text in axes.get_legend().get_texts()]
    assert label == "trial 0: learning_rate 0.001, num_epoch 1"


def test_trials_stand_at_their_values_and_a_choice_at_its_number() -> None:
    made: Any = [
        optuna.create_trial(
            value=0.0, params={UNITS.path: label}, distributions={UNITS.path: CategoricalDistribution([label])}
        )
        for label in ("[16, 16]", 32)
    ]
    assert outcome._places(made, UNITS) == [2.0, 0.0]
    assert outcome._places([trial(1e-3, 4, 0.0)], EPOCHS) == [4]


def test_what_lies_between_trials_is_as_straight_as_the_picture_s_axes() -> None:
    """The axis of a rate is logarithmic: three may lie on a line there alone, and half-way is the geometric mean."""
    between, values = outcome._between, [0.0, 8.0, 0.0]
    assert between(RATE, [1e-4, 1e-3, 1e-2], EPOCHS, [1, 2, 3], values) is None
    assert between(RATE, [0.1, 0.2, 0.3], EPOCHS, [1, 2, 3], values) is not None
    assert between(UNITS, [0.0, 1.0, 2.0], EPOCHS, [1, 5, 3], values) is None
    found = between(RATE, [1e-4, 1e-2, 1e-4], EPOCHS, [1, 1, 3], values)
    assert found is not None
    points, levels = found
    assert np.asarray(levels) == pytest.approx(8 * np.log(points.x / 1e-4) / np.log(1e-2 / 1e-4))
    assert (points.y.min(), points.y.max()) == pytest.approx((1, 3))


def test_pictures_of_a_second_objective_show_the_second() -> None:
    plan = Plan({}, (RATE, EPOCHS), (Objective("reward"), Objective("elo")))
    made = study(
        trial(1e-3, 1, 1.0, 9.0), trial(1e-2, 4, 2.0, 7.0), trial(1e-1, 2, 3.0, 8.0), objectives=2,
    )  # fmt: skip
    figures = outcome._pictures(made, plan, 1)
    assert list(figures["slices"].axes[0].collections[0].get_offsets()[:, 1]) == [9.0, 7.0, 8.0]
    assert list(figures["contours"].axes[0].collections[-1].get_array()) == [9.0, 7.0, 8.0]
    begun = trial(1e-3, 1)
    begun.set_user_attr("curves", {"reward": {}, "elo": {"5": 4.0, "10": 6.0}})
    made = study(begun, objectives=2)
    assert outcome.rows(made, plan)[0].values == [None, 6.0]
    assert list(outcome._pictures(made, plan, 1)) == ["curves"] and outcome._pictures(made, plan, 0) == {}


def test_a_database_of_something_else_is_told_and_left_as_it_is(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "arena")):
        pass
    file, empty = tmp_path / "arena/palus.db", tmp_path / "empty.db"
    empty.touch()
    before = file.read_bytes()
    for database, create, told in (
        (file, False, "other tables than"),
        (file, True, "other"),
        (empty, False, "no study"),
    ):
        with (
            pytest.raises(ConfigError, match=f"the database holds {told}"),
            opened_storage(str(database), create=create),
        ):
            pass
    assert (file.read_bytes(), empty.read_bytes()) == (before, b"")
    said = CliRunner().invoke(app, ["sweep", "status", f"sqlite:///{tmp_path}/typo.db"])
    assert said.exit_code == 2 and "typo.db: no such file" in said.stderr
    assert not (tmp_path / "typo.db").exists()
