"""`palus probe`: best responses to policies whose worst case is known, and the way from the command to the card."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from palus.arena.referee.match import play_pairs
from palus.cli import app
from palus.config import RunFile, load_run
from palus.config.network import NetworkSettings
from palus.envs import GameSource
from palus.envs.matrix import ROCK_PAPER_SCISSORS, exploitability
from palus.errors import CheckpointError, ConfigError, EnvError, ModelError
from palus.hub.probe_file import Probe, parse_probe
from palus.nn.network import Network
from palus.probe import Budget, Response, find_rival, respond, response_run
from palus.run.folder import RunFolder
from palus.run.lessons import Lessons
from palus.train import TrainingResult, train

RPS = "RockPaperScissors"
OFTEN_ROCK = np.array([0.6, 0.2, 0.2])


def run_file(folder: Path, *behaviors: str, env: str, **palus: Any) -> Path:
    """Of small, quick learners."""
    learner = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 128, "buffer_size": 512, "learning_rate": 8e-3, "beta": 1e-3},
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "max_steps": 8000,
        "time_horizon": 64,
        "summary_freq": 4000,
    }
    options = {"env": env, "threads": 1, "matmul": "highest", "num_matches": 32, "baseline_pairs": 2, **palus}
    file = folder / "response.yaml"
    tree = {"behaviors": dict.fromkeys(behaviors, learner), "palus": options, "env_settings": {"seed": 1}}
    file.write_text(json.dumps(tree))
    return file


def mixture(folder: Path, probabilities: np.ndarray) -> Path:
    """A model that always plays the same mixture of strategies."""
    spec = GameSource(RPS).spec.behaviors[0]
    network = Network(spec, NetworkSettings(hidden_units=4, num_layers=1), torch.Generator(), critic="none")
    arrays = {
        name: np.log(probabilities).astype(np.float32) if array.shape == (3,) else np.zeros_like(array)
        for name, array in network.acting_arrays().items()
    }
    fixed = Network.acting(spec, network.settings, arrays)
    answered = fixed.act({"obs_0": torch.ones(1, 1)}, torch.zeros(1, 0))[0].softmax(1)
    assert answered[0].tolist() == pytest.approx(probabilities.tolist())
    folder.mkdir()
    (folder / f"{RPS}.onnx").write_bytes(fixed.onnx().SerializeToString())
    return folder


def probed(folder: Path, model: str, budget: int = 8000, *, game: str = RPS, **keys: Any) -> Response:
    """A response to a model of a game with one behavior."""
    run = load_run(run_file(folder, game, env=game), [f"checkpoint_settings.results_dir={folder}"])
    return respond(model, run, GameSource(game).spec, None, Budget(budget), **keys)


def measured(response: Response, pairs: int) -> Probe:
    found = response.measure(pairs)
    assert found is not None
    return found


def test_a_best_response_takes_what_can_be_taken(tmp_path: Path) -> None:
    model = mixture(tmp_path / "rocks", OFTEN_ROCK)
    found = measured(probed(tmp_path, str(model)), 1000)
    best = (1 + exploitability(ROCK_PAPER_SCISSORS, OFTEN_ROCK)) / 2  # paper: 0.6 - 0.2 points per match
    assert best == pytest.approx(0.7)
    assert found.best.low < best < found.best.high and found.best.high - found.best.low < 0.06
    assert found.bound == pytest.approx(2 * found.best.low - 1) and found.bound > 0.3
    curve = [point.steps for point in found.curve]
    assert (curve[0], curve[-1], found.best.pairs, found.curve[0].pairs) == (0, found.steps, 1000, 250)
    assert len(curve) == 9 and set(np.diff(curve)) == {1024}  # each rollout of so short a run


def test_nothing_is_found_where_nothing_is_to_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def played(a: Any, b: Any, pairs: int, seed: int, **keys: Any) -> Any:
        seeds.append(seed)
        return play_pairs(a, b, pairs, seed, **keys)

    monkeypatch.setattr("palus.probe.play_pairs", played)
    response = probed(tmp_path, "random", 3000)
    found = measured(response, 400)
    *curve, result = seeds
    assert len(curve) == len(found.curve) and len({*curve}) == 1 and result not in curve
    assert found.best.low < 0.5 < found.best.high and found.bound == 0 and found.model_sha256 == ""
    assert max(point.share for point in found.curve) > 0.5  # of so many some are lucky; the result is not their maximum


def test_a_response_meets_its_rival_alone_and_learns_on_both_sides(tmp_path: Path) -> None:
    response = probed(tmp_path, "random", 5000)
    book = json.loads((response.folder.root / "league" / "league.json").read_text())
    (member,) = book["members"]
    assert {opponent for policy, opponent, *_ in book["training"] if policy != member["id"]} == {member["id"]}
    assert book["mix"] == {RPS: {str(member["id"]): 1.0}}
    assert response.legs == (1, 2)


def test_one_side_of_an_asymmetric_game_is_probed_by_the_other(tmp_path: Path) -> None:
    run = load_run(
        run_file(tmp_path, "Striker", "Keeper", env="PenaltyToy"), [f"checkpoint_settings.results_dir={tmp_path}"]
    )
    spec = GameSource("PenaltyToy").spec
    with pytest.raises(ModelError, match="--behavior Striker or Keeper"):
        respond("random", run, spec, None, Budget(2000), force=True)
    response = respond("random", run, spec, "Keeper", Budget(2000), force=True)
    found = measured(response, 40)
    assert (found.behavior, found.symmetric, len(response.legs)) == ("Keeper", False, 1)
    assert response.result.steps == found.steps >= 2000 and found.best.pairs == 40
    book = json.loads((response.folder.root / "league" / "league.json").read_text())
    idle = next(learner for learner in book["learners"] if learner["behavior"] == "Striker")
    assert idle["step"] == 0


def test_what_is_probed_stays_as_it_was_and_a_probe_is_resumed(tmp_path: Path) -> None:
    model = mixture(tmp_path / "rocks", OFTEN_ROCK)
    begun = probed(tmp_path, str(model), 1500).steps
    with pytest.raises(CheckpointError, match="a run of this id exists"):
        probed(tmp_path, str(model), 3000)
    second = probed(tmp_path, str(model), 3000, resume=True)
    assert second.steps >= 3000 > begun and min(second.candidates) == 0
    assert second.measure(4, stopped=lambda: True) is None  # nothing is reported of matches that were cut short
    (model / f"{RPS}.onnx").write_bytes(b"another")
    with pytest.raises(ModelError):
        probed(tmp_path, str(model), 3000, resume=True)
    mixture(tmp_path / "papers", OFTEN_ROCK[::-1])
    (tmp_path / "papers" / f"{RPS}.onnx").replace(model / f"{RPS}.onnx")
    with second.folder.held(), pytest.raises(CheckpointError, match="is training just now"):
        probed(tmp_path, str(model), 3000, force=True)
    with pytest.raises(CheckpointError, match="is another than the one that"):
        probed(tmp_path, str(model), 3000, resume=True)


def test_what_was_copied_is_what_a_response_is_trained_against(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begins(run: RunFile, **how: Any) -> TrainingResult:
        settings = run.checkpoint_settings
        with pytest.raises(CheckpointError, match="is training just now"):  # nobody else copies another there
            RunFolder(Path(settings.results_dir) / settings.run_id, []).held().__enter__()
        return train(run, **how)

    model = str(mixture(tmp_path / "rocks", OFTEN_ROCK))
    monkeypatch.setattr("palus.probe.train", begins)
    with pytest.raises(CheckpointError, match="nothing to resume"):
        probed(tmp_path, model, 512, resume=True)
    probed(tmp_path, model, 512)


def test_a_probe_that_cannot_begin_leaves_nothing_in_the_way_of_the_next_one(tmp_path: Path) -> None:
    model, spec = str(mixture(tmp_path / "rocks", OFTEN_ROCK)), GameSource(RPS).spec
    run = load_run(run_file(tmp_path, RPS, env=RPS), [f"checkpoint_settings.results_dir={tmp_path / 'results'}"])
    with pytest.raises(ModelError, match="Nobody cannot be trained"):
        respond(model, run, spec, "Nobody", Budget(512))
    misfit = run.changed(palus={"env_options": {"speed": 3}})
    with pytest.raises(ConfigError, match="speed: no such option"):
        respond(model, misfit, spec, None, Budget(512))
    assert not (tmp_path / "results").exists()


def test_the_response_is_who_learns_and_the_curriculum_follows_it() -> None:
    run, spec = load_run("strikers-vs-goalie-fast"), GameSource("StrikersVsGoalie").spec
    planned = response_run(run, spec, "Goalie", find_rival("random", spec), Budget(12000))
    assert {name: own.max_steps for name, own in planned.behaviors.items()} == {"Goalie": 12000, "Striker": 0}
    assert planned.behaviors["Goalie"].self_play.save_steps == 1000
    lessons = Lessons(planned)
    lessons.advance({"Goalie": 0.2, "Striker": 1.0}, [])
    assert lessons.numbers == {"ball_touch": 1}
    assert load_run("strikers-vs-goalie-fast").palus.league.learn == "all_teams" != planned.palus.league.learn


def test_games_without_two_sides_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match="a best response is one of two"):
        probed(tmp_path, "random", game="RescueToy")


def test_a_model_whose_folder_takes_no_file_is_probed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rocky = mixture(tmp_path / "rocky", OFTEN_ROCK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != Path("rocky"))
    words = ["probe", "rocky", "--config", str(run_file(tmp_path, RPS, env=RPS)), "--pairs", "4", "--steps", "512"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("rocky cannot be written: probe.json goes into the response's run alone.")
    assert (tmp_path / "results" / "probe-rocky" / "probe.json").is_file() and not (rocky / "probe.json").exists()


def test_from_the_command_to_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from small_run import make_run

    def run(*words: str | Path, code: int = 0) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result.output if code or "--json" not in words else result.stdout

    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "results" / "mine")
    config = run_file(tmp_path, "SoccerTwos", env="SoccerTwos", num_matches=8, env_options={"max_steps": 250})
    words = ("probe", "results/mine", "--config", config, "--pairs", 4, "--seed", 5)
    said = run(*words, "--steps", 2000)
    assert "Its exploitability is at least" in said and "0 steps" in said
    told = parse_probe((tmp_path / "results" / "mine" / "probe.json").read_bytes())
    assert (told.behavior, told.seed, told.trainer_type) == ("SoccerTwos", 5, "ppo")
    again = json.loads(run(*words, "--steps", 2000, "--resume", "--json"))  # nothing is left to train
    assert again["best"] == vars(told.best) and again["steps"] == told.steps
    assert "a run of this id exists" in run(*words, code=2)

    pool = tmp_path / "pool"
    options = ("--hub", pool, "--no-replay", "--no-check")
    run("push", "results/mine", "ada/striker", *options)
    card, published = (pool / "ada" / "striker" / "README.md").read_text(), pool / "ada" / "striker"
    found = parse_probe((published / "probe.json").read_bytes())
    assert f"at least **{found.bound:.2f}** points" in card and found.best.text in card
    assert "](probe.svg)" in card and (published / "probe.svg").read_text().startswith("<svg")
    make_run(tmp_path / "results" / "other", seed=1)
    (tmp_path / "results" / "mine" / "probe.json").replace(tmp_path / "results" / "other" / "probe.json")
    assert "probe.json is about another model" in run("push", "results/other", "ada/other", *options)
    assert "Exploitability" not in (pool / "ada" / "other" / "README.md").read_text()
    assert not list((pool / "ada" / "other").glob("probe*"))


def test_a_response_is_not_watched_by_duels_that_take_longer_than_its_budget(tmp_path: Path) -> None:
    run, spec = load_run(run_file(tmp_path, RPS, env=RPS)), GameSource(RPS).spec
    rival = find_rival(str(mixture(tmp_path / "third", np.full(3, 1 / 3))), spec)
    own = response_run(run, spec, RPS, rival, Budget(8000)).palus
    assert (own.baselines, own.baseline_interval) == ((rival.word,), 4000)
    duel = response_run(run, dataclasses.replace(spec, env_id="doom_duel"), RPS, rival, Budget(8000)).palus
    assert (duel.baselines, duel.baseline_interval) == ((), 0)
