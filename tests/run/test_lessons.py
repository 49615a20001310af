"""Lessons of environment parameters: when they end, what a change does, what is saved of them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from events import read_values
from typer.testing import CliRunner

from palus.cli import app
from palus.config import RunFile, load_run
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import FROZEN, Collected, Episode
from palus.run.lessons import Lessons
from palus.train import Run
from palus.trust import Trust


def lessons(*criteria: str, more: str = "") -> Lessons:
    """Lessons of `p`, with these criteria and a last one that has none, worth 0, 1, ..."""
    return Lessons(run_with("".join(f"{c}|" for c in criteria).split("|"), more))


def run_with(criteria: list[str], more: str = "") -> RunFile:
    own = [
        f"{{name: l{n}, value: {n}" + (f", completion_criteria: {{behavior: SoccerTwos, {c}}}" if c else "") + "}"
        for n, c in enumerate(criteria)
    ]
    return load_run("debug", [f"environment_parameters={{p: {{curriculum: [{', '.join(own)}]}}{more}}}"])


def ended(*rewards: float) -> list[tuple[str, float]]:
    return [("SoccerTwos", reward) for reward in rewards]


def number(found: Lessons, share: float, *rewards: float) -> int:
    found.advance({"SoccerTwos": share}, ended(*rewards))
    return found.numbers["p"]


def test_a_lesson_by_reward_ends_when_the_mean_of_its_last_episodes_exceeds_the_threshold() -> None:
    found = lessons("threshold: 1.0, min_lesson_length: 3, signal_smoothing: false")
    assert number(found, 0.0, 9.0, 9.0) == 0  # too few
    assert number(found, 0.0, -20.0) == 0
    assert number(found, 0.0, 1.0, 1.0, 1.0) == 0  # exactly the threshold does not exceed it
    assert number(found, 0.0, 1.5) == 1


def test_a_smoothed_measure_is_three_quarters_new() -> None:
    found = lessons("threshold: 0.94")
    # 0.75, 0.9375, 0.984375: a test after each episode and one more at the end
    assert number(found, 0.0, 1.0) == 0
    assert number(found, 0.0, 1.0) == 1


def test_a_lesson_by_progress_asks_for_episodes_too_and_several_may_end_at_once() -> None:
    by = "measure: progress, threshold:"
    found = lessons(f"{by} 0.25", f"{by} 0.5", f"{by} 0.75, min_lesson_length: 2")
    assert number(found, 0.25) == 0
    assert number(found, 0.6) == 2
    assert number(found, 0.9, 0.0) == 2
    assert number(found, 0.9, 0.0) == 3


def test_a_lesson_by_the_progress_of_a_behavior_that_has_not_appeared_waits_for_it() -> None:
    found = lessons("measure: progress, threshold: 0.25")
    assert found.advance({}, []) == [] and found.numbers["p"] == 0
    assert number(found, 0.5) == 1


def test_a_change_empties_all_buffers() -> None:
    own = "threshold: 0.5, min_lesson_length: 2, signal_smoothing: false"
    other = "{name: a, value: 0, completion_criteria: {behavior: SoccerTwos, min_lesson_length: 3, threshold: 0.5}}"
    found = lessons(own, own, more=f", q: {{curriculum: [{other}, {{name: b, value: 1}}]}}")
    assert found.advance({"SoccerTwos": 0.0}, ended(1.0, 1.0, 9.0, 9.0, 9.0)) == ["p"]
    assert found.numbers == {"p": 1, "q": 0}  # the three after the change were played in the old lesson
    assert found.advance({"SoccerTwos": 0.0}, ended(1.0)) == []


def test_only_a_lesson_that_asks_for_it_resets() -> None:
    found = lessons("require_reset: true, threshold: 0.1", "threshold: 0.1")
    assert number(found, 0.0, 1.0) == 1 and found.resets
    assert number(found, 0.0, 1.0) == 2 and not found.resets


def test_of_lessons_that_end_at_once_one_is_enough_to_reset() -> None:
    over = "{name: a, value: 0, completion_criteria: {behavior: SoccerTwos, threshold: 0.1}}"
    found = lessons("require_reset: true, threshold: 0.1", more=f", q: {{curriculum: [{over}, {{name: b, value: 1}}]}}")
    assert found.advance({"SoccerTwos": 0.0}, ended(1.0)) == ["p", "q"] and found.resets


def test_what_is_saved_goes_on() -> None:
    first, second, third = (lessons("threshold: 0.94", "threshold: 1.5, min_lesson_length: 2") for _ in range(3))
    number(first, 0.0, 1.0)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [number(own, 0.0, 1.0) for own in (first, second)] == [1, 1]
    assert [number(own, 0.0, 2.0) for own in (first, second)] == [1, 1]
    third.load_state_dict(first.state_dict())  # one episode of the two
    assert [number(own, 0.0, 2.0) for own in (first, second, third)] == [2, 2, 2]


def test_who_goes_on_with_fewer_lessons_than_it_had_is_in_the_last_one() -> None:
    first, second = lessons("threshold: 0.1", "threshold: 0.1"), lessons("threshold: 0.1")
    assert [number(first, 0.0, 1.0) for _ in range(2)] == [1, 2]
    second.load_state_dict(first.state_dict())
    assert second.numbers == {"p": 1} and second.values == {"p": 1}


def test_the_lines_are_ml_agents() -> None:
    parameters = """
        a: 1.5
        b: {sampler_type: uniform, sampler_parameters: {min_value: 0.5, max_value: 2}}
        c: {sampler_type: gaussian, sampler_parameters: {mean: 0, st_dev: 3}}
        d: {sampler_type: multirangeuniform, sampler_parameters: {intervals: [[0, 1], [2.5, 3]]}}
        e: {sampler_type: constant, sampler_parameters: {value: 2}}
        f: {curriculum: [{name: first, value: 1}]}
    """
    run = load_run("debug", [f"environment_parameters={json.dumps(yaml.safe_load(parameters))}"])
    found = Lessons(run)
    assert found.lines(found.numbers) == [
        "Parameter 'a' is in lesson 'a' and has value 'Float: value=1.5'.",
        "Parameter 'b' is in lesson 'b' and has value 'Uniform sampler: min=0.5, max=2.0'.",
        "Parameter 'c' is in lesson 'c' and has value 'Gaussian sampler: mean=0.0, stddev=3.0'.",
        "Parameter 'd' is in lesson 'd' and has value 'MultiRangeUniform sampler: intervals=[(0.0, 1.0), (2.5, 3.0)]'.",
        "Parameter 'e' is in lesson 'e' and has value 'Float: value=2.0'.",
        "Parameter 'f' is in lesson 'first' and has value 'Float: value=1'.",
    ]


def test_seeds_are_counted_from_the_runs_in_the_order_of_the_file() -> None:
    uniform = "{sampler_type: uniform, sampler_parameters: {%s}}"
    criteria = "completion_criteria: {behavior: SoccerTwos}"
    first = f"{{name: x, value: {uniform % ''}, {criteria}}}"
    text = f"{{a: 1, b: {uniform % ''}, c: {uniform % 'seed: 5'}, d: {{curriculum: [{first}, {{name: y, value: 3}}]}}}}"
    for seed, first_two in ((100, (101, 102)), (-1, (1, 2))):  # of a run without a seed as of seed 0
        values = load_run("debug", [f"environment_parameters={text}", f"env_settings.seed={seed}"]).lessons()
        seeds = {name: own[0].value.sampler_parameters.seed for name, own in values.items() if name != "a"}
        assert seeds == {"b": first_two[0], "c": 5, "d": first_two[1]}


def test_episodes_that_nobody_learned_from_and_outdated_ones_end_no_lesson() -> None:
    """Those of opponents, and of a learner's own policy in a seat that does not learn."""
    heard: list[Any] = []
    lessons = SimpleNamespace(numbers={"size": 0}, advance=lambda progress, told: heard.append((progress, told)))
    trainee = SimpleNamespace(policy=0, name="Line", progress=0.5, record=SimpleNamespace(reward_of=lambda e: e.reward))
    run: Any = SimpleNamespace(lessons=lessons, trainees=[trainee])
    facts = ((0, True, 2.0), (0, False, 9.0), (FROZEN, False, 9.0))
    episodes = [Episode(0, 0, policy, learned, 1, reward, 0.0) for policy, learned, reward in facts]
    for outdated in (False, True):
        Run._teach(run, Collected({}, {}, episodes, [], {}, outdated=outdated))
    assert heard == [({"Line": 0.5}, [("Line", 2.0)]), ({"Line": 0.5}, [])]


PRACTICE = """
behaviors:
  SoccerTwos:
    trainer_type: ppo
    hyperparameters: {batch_size: 128, buffer_size: 512, learning_rate_schedule: constant}
    network_settings: {hidden_units: 8, num_layers: 1}
    max_steps: 6000
    summary_freq: 1000
    checkpoint_interval: 2000
environment_parameters:
  ball_touch:
    curriculum:
      - name: near
        value: {sampler_type: uniform, sampler_parameters: {min_value: 0.5, max_value: 1}}
        completion_criteria: {behavior: SoccerTwos, threshold: -1, min_lesson_length: 6, require_reset: true}
      - name: far
        value: {sampler_type: gaussian, sampler_parameters: {mean: 0.2, st_dev: 0.1}}
env_settings: {seed: 3}
palus: {num_matches: 2, baselines: [], env_options: {max_steps: 100}, matmul: highest, threads: 1}
"""


def trained(folder: Path, *more: str) -> str:
    (folder / "run.yaml").write_text(PRACTICE)
    result = CliRunner().invoke(app, ["train", str(folder / "run.yaml"), "--results-dir", str(folder), *more])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("collector", ["in_process", pytest.param("workers", marks=pytest.mark.slow)])
def test_a_run_practises_its_lessons_and_a_resumed_one_goes_on_as_if_nothing_had_been(
    collector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts, restart = [], InProcessCollector.restart
    monkeypatch.setattr(InProcessCollector, "restart", lambda own: (restarts.append(own), restart(own))[1])
    where = [f"palus.sampling.collector={collector}", "palus.sampling.workers=1"]
    whole = trained(tmp_path, "--run-id", "whole", *where)
    assert "'ball_touch' is in lesson 'near' and has value 'Uniform sampler: min=0.5, max=1.0'." in whole
    assert "'ball_touch' is in lesson 'far' and has value 'Gaussian sampler: mean=0.2, stddev=0.1'." in whole
    assert len(restarts) == (collector == "in_process")  # the first lesson asks for it
    trained(tmp_path, "--run-id", "parts", *where, "behaviors.SoccerTwos.max_steps=2048")
    resumed = trained(tmp_path, "--run-id", "parts", *where, "--resume")
    assert "is in lesson 'far'" in resumed and "is in lesson 'near'" not in resumed
    status = json.loads((tmp_path / "parts" / "run_logs" / "training_status.json").read_text())
    assert status["ball_touch"] == {"lesson_num": 1}
    runs = [read_values(tmp_path / name / "SoccerTwos") for name in ("whole", "parts")]
    seen = [[v for v in run if "Reward" in v[1] or "Lesson" in v[1] or "Losses" in v[1]] for run in runs]
    whole_values, parts_values = ({v[:2]: v[2] for v in values} for values in seen)
    last = {key: value for key, value in whole_values.items() if key[0] == 6000}
    assert len(last) > 3 and last.items() <= parts_values.items() <= whole_values.items()
    assert last[6000, "Environment/Lesson Number/ball_touch"] == 1.0


def test_episodes_that_were_played_beside_the_learner_count_for_no_lesson_that_began_meanwhile(tmp_path: Path) -> None:
    over = {"behavior": "Levels", "threshold": 0.5, "min_lesson_length": 5, "signal_smoothing": False}
    own = [{"name": f"l{n}", "value": float(n), "completion_criteria": over} for n in range(3)]
    network = {"hidden_units": 8, "num_layers": 1, "memory": None}
    behavior = {
        "trainer_type": "appo",
        "hyperparameters": {"batch_size": 64, "buffer_size": 128},
        "network_settings": network,
    }
    tree = {
        "behaviors": {"Levels": behavior},
        "environment_parameters": {"level": {"curriculum": [*own, {"name": "last", "value": 3.0}]}},
        "checkpoint_settings": {"results_dir": str(tmp_path), "run_id": "levels"},
        "env_settings": {"seed": 1},
        "palus": {
            "env": "countdown:OneLevel",
            "threads": 1,
            "matmul": "highest",
            "sampling": {"workers": 0, "asynchronous": True},
        },
    }
    (tmp_path / "run.yaml").write_text(json.dumps(tree))
    run, trust = load_run(tmp_path / "run.yaml"), Trust(frozenset({"countdown"}))
    first = Run(run, trust=trust, log=lambda level, text: None)
    first.iterate()
    assert first.lessons.numbers == {"level": 1}
    first.iterate()  # of what was played at level 0
    assert first.lessons.numbers == {"level": 1} and first.lessons.state_dict()["rewards"] == {"Levels": []}
    first.iterate()
    assert first.lessons.numbers == {"level": 1} and first.lessons.state_dict()["rewards"] == {"Levels": [0.0] * 5}
    first.close()
    first = Run(run, force=True, trust=trust, log=lambda level, text: None)
    first.iterate()
    first.save()  # what was played beside the learner is given up, here as where the run is resumed
    first._kept.close()  # lets another process in, as a kill would
    second = Run(run, resume=True, trust=trust, log=lambda level, text: None)
    for each in (first, second):
        each.iterate()
        assert each.lessons.state_dict()["rewards"] == {"Levels": [0.0] * 5}
        each.close()
