"""Runs that begin from another one's weights, that only play, and that act without chance."""

import json
import os
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from palus.cli import app
from palus.config import load_run
from palus.config.source import Source
from palus.errors import CheckpointError
from palus.learn.ranks import ALONE
from palus.nn.distributions import likeliest, sample
from palus.run.folder import FORMAT, read_checkpoint
from palus.run.initial import SEEDS, with_initial_paths, with_seed
from palus.train import Run
from palus.types import ActionSpec, Continuous, Discrete

DATA = Path(__file__).parent / "data" / "mlagents"
TINY = """
behaviors:
  SoccerTwos:
    trainer_type: ppo
    hyperparameters: {batch_size: 128, buffer_size: 256}
    network_settings: {hidden_units: 8, num_layers: 1}
    max_steps: 600
    summary_freq: 256
env_settings: {seed: 3}
palus: {num_matches: 2, baselines: [], env_options: {max_steps: 50}, matmul: highest, threads: 1}
"""


def train(folder: Path, *more: str, code: int = 0) -> str:
    (folder / "run.yaml").write_text(TINY)
    result = CliRunner().invoke(app, ["train", str(folder / "run.yaml"), "--results-dir", str(folder), *more])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def weights(folder: Path) -> dict[str, np.ndarray]:
    ((_, _, learner),) = read_checkpoint(folder / "SoccerTwos" / "checkpoint.pt")["learners"]
    return {name: np.asarray(array) for name, array in learner["network"].items()}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first")
    train(folder, "--run-id", "first")
    return folder


def test_a_run_begins_with_the_weights_of_another_and_with_step_0(first: Path) -> None:
    idle = "behaviors.SoccerTwos.max_steps=0"  # learns nothing, so that it shows what it began with
    by_run = train(first, "--run-id", "second", "checkpoint_settings.initialize_from=first", idle)
    assert f"Initializing from {first}/first/SoccerTwos/checkpoint.pt." in by_run
    by_path = f"behaviors.SoccerTwos.init_path={first}/first/SoccerTwos/checkpoint.pt"
    train(first, "--run-id", "third", by_path, idle, "env_settings.seed=8")
    train(first, "--run-id", "other", idle, "env_settings.seed=8")
    known = weights(first / "first")
    assert same(known, weights(first / "second")) and same(known, weights(first / "third"))
    assert not same(known, weights(first / "other"))
    resumed = train(first, "--run-id", "second", "checkpoint_settings.initialize_from=other", "--resume")
    assert "Initializing" not in resumed


@pytest.mark.parametrize("source", ["first", None])
def test_an_init_path_to_a_behavior_finds_the_file_of_all(source: str | None, tmp_path: Path) -> None:
    (tmp_path / "first" / "Keeper").mkdir(parents=True)
    checkpoint = tmp_path / "first" / "Forward" / "checkpoint.pt"
    checkpoint.parent.mkdir()
    torch.save({"format": FORMAT}, checkpoint)
    path = "checkpoint.pt" if source else f"{tmp_path}/first/Keeper/checkpoint.pt"
    words = {"results_dir": str(tmp_path), "initialize_from": source}
    text = json.dumps({"behaviors": {"Keeper": {"init_path": path}}, "checkpoint_settings": words})
    run = load_run(Source("a file", text))
    assert with_initial_paths(run).behaviors["Keeper"].init_path == str(checkpoint)
    checkpoint.parent.rename(tmp_path / "first" / "none")
    (tmp_path / "first" / "none" / "checkpoint.pt").write_bytes((DATA / "ppo.pt").read_bytes())
    with pytest.raises(CheckpointError, match=r"Keeper/checkpoint\.pt: no such file"):  # ML-Agents has one of each
        with_initial_paths(run)


@pytest.mark.parametrize("trainer", ["ppo", "sac"])
def test_a_run_learns_on_from_the_weights_of_another(trainer: str, first: Path) -> None:
    seldom = ", steps_per_update: 20" if trainer == "sac" else ""
    words = [f"behaviors.SoccerTwos={{trainer_type: {trainer}, max_steps: 600, summary_freq: 256, hyperparameters: "
             f"{{batch_size: 64, buffer_size: 256{seldom}}}, network_settings: {{hidden_units: 8}}}}"]  # fmt: skip
    train(first, "--run-id", f"{trainer} a", *words)
    begun = train(first, "--run-id", f"{trainer} b", f"checkpoint_settings.initialize_from={trainer} a", *words)
    assert " Step: " in begun and not same(weights(first / f"{trainer} a"), weights(first / f"{trainer} b"))


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("checkpoint_settings.initialize_from=nobody", "nobody: no such run to initialize from"),
        ("checkpoint_settings.initialize_from=../x", "initialize_from ../x leads out of results_dir"),
        ("behaviors.SoccerTwos.init_path=x.pt", "init_path x.pt: no such file, or not a .pt"),
        ("behaviors.SoccerTwos.init_path=README.md", "init_path README.md: no such file, or not a .pt"),
        ("behaviors.SoccerTwos.init_path=broken.pt", "not a readable checkpoint"),
        ("behaviors.SoccerTwos.network_settings.hidden_units=16", "does not fit behavior SoccerTwos"),
    ],
)
def test_what_cannot_be_begun_from_is_refused_before_anything_is_written(
    override: str, fault: str, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(first)
    Path("broken.pt").write_bytes(b"nothing")
    where = [] if "init" in override else ["checkpoint_settings.initialize_from=first"]
    assert fault in train(first, "--run-id", "refused", override, *where, code=2)
    assert not (first / "refused").exists()


def test_inference_plays_and_changes_nothing_on_disk(first: Path) -> None:
    before = {path: path.read_bytes() for path in (first / "first").rglob("*") if path.is_file()}
    flags = ("--run-id", "first", "--resume", "checkpoint_settings.inference=true", "--watch", "--no-browser")
    told = train(first, *flags, "palus.max_minutes=0.02")
    assert "The live page ended with the run." in told  # the copy that it showed is gone
    assert "Played with what was learned until step 768; nothing was saved." in told
    assert "Step: 1024." in told and "Not Training." in told and " Training." not in told.replace("Not Training.", "")
    assert f"Resuming from {first / 'first' / 'SoccerTwos'}." in told
    assert not any(word in told for word in ("Model:", "Continue:", "Next:"))
    assert {path: path.read_bytes() for path in (first / "first").rglob("*") if path.is_file()} == before
    status = json.loads((first / "first" / "run_logs" / "training_status.json").read_text())
    assert status["SoccerTwos"]["final_checkpoint"]["steps"] == 768
    assert "a run of this id exists" in train(first, "--run-id", "first", "checkpoint_settings.inference=true", code=2)


def test_inference_learns_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(TINY)
    settings = {"results_dir": str(tmp_path / "results"), "inference": True}
    run = load_run(str(tmp_path / "run.yaml")).changed(checkpoint_settings=settings)
    with closing(Run(run, log=lambda level, text: None)) as parts, parts.report:
        weights = parts.trainees[0].learner.network.weights.master
        untrained = weights.clone()
        parts.iterate()
        assert torch.equal(weights, untrained) and parts.trainees[0].played > 0
        with pytest.raises(CheckpointError, match=f"^{tmp_path}/results/.*/snapshots/snapshot-00099.npz: no such"):
            parts.saving.find(99)
    assert not (tmp_path / "results").exists()


def test_what_keeps_inference_from_playing_is_told_of_the_run_and_not_of_its_copy(first: Path) -> None:
    (first / "empty").mkdir()
    (first / "empty" / "notes.txt").touch()
    for name, override, told in (
        ("empty", "env_settings.seed=3", f"{first}/empty: nothing to resume"),
        ("first", "behaviors.SoccerTwos.network_settings.hidden_units=16", f"{first}/first/configuration.yaml, or"),
    ):
        said = train(first, "--run-id", name, "--resume", "checkpoint_settings.inference=true", override, code=2)
        assert told in said and "palus-play" not in said


def test_inference_plays_a_run_that_nobody_may_write_to(first: Path) -> None:
    home = first / "first" / "SoccerTwos"
    run = load_run(str(first / "first" / "configuration.yaml")).changed(checkpoint_settings={"inference": True})
    (home / "link").symlink_to("a file that is gone")
    home.chmod(0o500)
    try:
        with closing(Run(run, resume=True, log=lambda level, text: None)) as parts:
            assert (parts.folder.root / "SoccerTwos").stat().st_mode & 0o200
    finally:
        home.chmod(0o700)
        (home / "link").unlink()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_run_that_could_not_save_does_not_go_on(first: Path) -> None:
    home = first / "first" / "SoccerTwos"
    home.chmod(0o500)
    try:
        assert "nothing can be written there (Permission denied)" in train(
            first, "--run-id", "first", "--resume", code=2
        )
    finally:
        home.chmod(0o700)


def test_a_deterministic_behavior_takes_the_likeliest_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ActionSpec((Discrete(3), Continuous(2, -1.0, 1.0)))
    parameters = np.array([[0, 2, 1, 0.25, -0.5, 0, 0.5], [3, 2, 1, 0, 0, 0, 0]], np.float32)
    actions, log_probs, entropies = likeliest(parameters, spec, 1, 2, np.arange(2))
    np.testing.assert_array_equal(actions, [[1, 0.25, -0.5], [0, 0, 0]])
    np.testing.assert_allclose(entropies, sample(parameters, spec, 1, 2, np.arange(2))[2], rtol=1e-5)
    np.testing.assert_allclose(log_probs[0, 0], torch.tensor([0.0, 2, 1]).log_softmax(0)[1].item(), rtol=1e-5)
    np.testing.assert_allclose(log_probs[0, 1:], [-0.918939, -0.918939 - 0.5], rtol=1e-5)
    asked = []
    monkeypatch.setattr("palus.rollout.making.likeliest", lambda *a: (asked.append(len(a[0])), likeliest(*a))[1])
    for collector in ("in_process", "workers"):
        asked.clear()
        train(
            tmp_path, "--run-id", collector, "behaviors.SoccerTwos.network_settings.deterministic=true",
            f"palus.sampling.collector={collector}", "palus.sampling.workers=0",
        )  # fmt: skip
        assert asked


def test_a_run_whose_game_is_started_first_goes_on_with_its_seed_and_any_other_is_given_one(tmp_path: Path) -> None:
    checkpoint = tmp_path / "SoccerTwos" / "checkpoint.pt"
    checkpoint.parent.mkdir()
    torch.save({"format": FORMAT, "seed": SEEDS}, checkpoint)  # one that is not drawn
    talks = ["env_settings.env_path=game", "palus.num_matches=0"]

    def seed(*settings: str, resume: bool = True, kept: str = "env_settings.seed=-1") -> int:
        run = load_run(Source("run.yaml", TINY), [kept, *settings])
        return with_seed(run, tmp_path, ALONE, resume).env_settings.seed

    assert seed(*talks) == SEEDS and seed(*talks, kept="env_settings.seed=0") == 0
    drawn = seed(*talks, resume=False), seed(*talks, resume=False), seed()
    assert all(0 <= number < SEEDS for number in drawn) and len(set(drawn)) == 3
    shutil.copy(DATA / "ppo.pt", checkpoint)  # ML-Agents keeps none
    assert 0 <= seed(*talks) < SEEDS
