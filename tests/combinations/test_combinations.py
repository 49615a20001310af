"""Any trainer on any collector with any network: each new pair learns what only it can learn, through `train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import yaml
from typer.testing import CliRunner

from palus.cli import app
from palus.config import load_run
from palus.nn import int8
from palus.progress import PROGRESS
from palus.train import Run, train
from palus.trust import Trust

pytest.importorskip("pettingzoo", reason="needs the extra doom")

TRUST = Trust(frozenset({"small_games"}))
SMALL: dict[str, Any] = {
    "hyperparameters": {"batch_size": 128, "buffer_size": 512, "learning_rate": 0.01, "beta": 0.002},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "time_horizon": 16,
    "summary_freq": 100_000,
    "checkpoint_interval": 1_000_000,
}


SAC: dict[str, Any] = SMALL | {
    "trainer_type": "sac",
    "hyperparameters": {
        "batch_size": 128,
        "learning_rate": 0.005,
        "steps_per_update": 8,
        "init_entcoef": 0.1,
        "tau": 0.02,
    },
}


@pytest.fixture(autouse=True)
def games_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {
        k: merged(base[k], v) if isinstance(v, dict) and isinstance(base.get(k), dict) else v for k, v in over.items()
    }
    return base | both


def write_run(
    folder: Path,
    game: str,
    steps: int,
    behaviors: dict[str, dict[str, Any]],
    parameters: dict[str, float] | None = None,
    **palus: Any,
) -> Path:
    """The file of a run, small but for what `behaviors` says."""
    tree = {
        "behaviors": {
            name: merged(SAC if more["trainer_type"] == "sac" else SMALL, {"max_steps": steps, **more})
            for name, more in behaviors.items()
        },
        "checkpoint_settings": {"run_id": "run", "results_dir": str(folder)},
        "env_settings": {"seed": 3},
        "environment_parameters": parameters,
        "palus": {"env": game, "matmul": "highest", "threads": 1, **palus},
    }
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(tree))
    return file


def learned(*what: Any, **palus: Any) -> list[float]:
    """Train the run of `write_run` from nothing; each learner's mean reward over its last hundred episodes."""
    file = write_run(*what, **palus)
    means: list[float] = []

    def watch(parts: Run) -> None:
        close = parts.close

        def note_and_close() -> None:
            means.extend(trainee.record.mean("reward") or 0.0 for trainee in parts.trainees)
            close()

        parts.close = note_and_close  # type: ignore[method-assign]

    assert train(load_run(file), trust=TRUST, on_start=watch).finished
    return means


IN_PROCESS = {"sampling": {"workers": 0}}


@pytest.mark.slow
def test_ppo_with_an_lstm_remembers_and_without_it_cannot(tmp_path: Path) -> None:
    memory = {"memory_size": 32, "sequence_length": 8}
    with_memory = {"trainer_type": "ppo", "network_settings": {"memory": memory}}
    (tmp_path / "without").mkdir()
    (found,) = learned(tmp_path, "small_games:Recall", 24_000, {"R": with_memory}, **IN_PROCESS)
    assert found > 0.9
    (forgetful,) = learned(
        tmp_path / "without", "small_games:Recall", 6_000, {"R": {"trainer_type": "ppo"}}, **IN_PROCESS
    )
    assert forgetful < 0.7
    session = ort.InferenceSession(tmp_path / "run" / "R.onnx")
    assert "recurrent_in" in [i.name for i in session.get_inputs()]


def test_ppo_learns_from_pictures(tmp_path: Path) -> None:
    (found,) = learned(tmp_path, "small_games:Pictures", 6_000, {"P": {"trainer_type": "ppo"}}, **IN_PROCESS)
    assert found > 0.95


@pytest.fixture
def acting_in_int8(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a behavior says to look at the pictures of `small_games` in int8, small as they are."""
    if not int8.largest_factor():
        pytest.skip("this CPU, or this torch, has no exact products of int8")
    monkeypatch.setattr(int8, "FEWEST_PRODUCTS", 0)
    monkeypatch.setattr(int8, "WORTH_IT", 0.0)
    network = {"vis_encode_type": "convnet_impala", "image_units": 16, "memory": None}
    return {"network_settings": network}


@pytest.mark.slow
@pytest.mark.parametrize(("trainer", "steps"), [("ppo", 6_000), ("appo", 12_000)])
def test_pictures_are_learned_from_where_policies_act_in_int8(
    trainer: str, steps: int, tmp_path: Path, acting_in_int8: dict[str, Any]
) -> None:
    behavior = {"trainer_type": trainer} | acting_in_int8
    (found,) = learned(tmp_path, "small_games:Pictures", steps, {"P": behavior}, **IN_PROCESS)
    assert found > 0.95


@pytest.mark.parametrize("trainer", ["ppo", pytest.param("appo", marks=pytest.mark.slow)])
def test_a_run_goes_on_in_the_int8_that_it_began_with(
    trainer: str, tmp_path: Path, acting_in_int8: dict[str, Any]
) -> None:
    file = write_run(
        tmp_path, "small_games:Pictures", 1024, {"P": {"trainer_type": trainer} | acting_in_int8}, **IN_PROCESS
    )

    def ended(name: str, *words: str, cut: bool = False) -> dict[str, Any]:
        """The learner of a run that was saved in the middle, and perhaps gone on with from there."""
        run = load_run(file, (f"checkpoint_settings.results_dir={tmp_path / name}", *words))
        parts = Run(run, trust=TRUST)
        for goal in (512, 1024):  # at the first it is still learning
            with parts.report:
                while parts.step < goal:
                    parts.iterate()
                parts.save()
            if cut and goal == 512:
                parts.close()
                parts = Run(run, resume=True, trust=TRUST)
        parts.close()
        return parts.trainees[0].learner.state_dict()

    whole, resumed = ended("whole"), ended("cut", cut=True)
    assert whole["int8"]["picture"] == resumed["int8"]["picture"]
    for name, array in whole["network"].items():
        np.testing.assert_array_equal(array, resumed["network"][name])
    assert "int8" not in ended("exact", "palus.acting=exact")


@pytest.mark.parametrize(
    "trainer", ["ppo", "appo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("poca", "sac"))]
)
def test_a_forbidden_choice_is_never_made_and_the_best_of_the_rest_is_learned(trainer: str, tmp_path: Path) -> None:
    feed_forward = {"trainer_type": trainer, "network_settings": {"memory": None}}
    steps = 6_000 if trainer == "sac" else 12_000
    (found,) = learned(tmp_path, "MenuToy", steps, {"MenuToy": feed_forward})
    assert found > 0.85 * 4 * 11 / 12  # four rounds; the game raises at a forbidden dish
    session = ort.InferenceSession(tmp_path / "run" / "MenuToy.onnx")
    masks = np.tile(np.float32([1, 0, 1, 0]), (64, 1))
    seen = np.linspace(0, 1, 64, dtype=np.float32)[:, None]
    (chances,) = session.run(["action_probabilities"], {"obs_0": seen, "action_masks": masks})
    assert (chances[:, [1, 3]] == 0).all() and np.allclose(chances.sum(1), 1)


@pytest.mark.slow
def test_ppo_aims_in_a_gymnasium_game_with_continuous_actions(tmp_path: Path) -> None:
    options = {"env_options": {"id": "small_games:Aim-v0"}}
    behavior = {"trainer_type": "ppo", "hyperparameters": {"num_epoch": 6}}
    (found,) = learned(tmp_path, "palus.envs.gymnasium:make", 16_000, {"Aim": behavior}, **IN_PROCESS, **options)
    assert found > 0.5


@pytest.mark.slow
def test_sac_aims_there_too_and_its_file_stays_within_the_range(tmp_path: Path) -> None:
    """The game's range is +-2, so half of tanh is aimed with."""
    options = {"env_options": {"id": "small_games:Aim-v0"}, "num_matches": 8}
    behavior = {"trainer_type": "sac", "time_horizon": 8}
    (found,) = learned(tmp_path, "palus.envs.gymnasium:make", 6_000, {"Aim": behavior}, **IN_PROCESS, **options)
    assert found > 0.7
    session = ort.InferenceSession(tmp_path / "run" / "Aim.onnx")
    (seen,) = session.get_inputs()
    shown = np.linspace(-1, 1, 21, dtype=np.float32)[:, None]
    (best,) = session.run(["deterministic_continuous_actions"], {seen.name: shown})
    assert np.abs(best - shown).mean() < 0.2 and np.abs(best).max() <= 2


def test_ppo_learns_a_pettingzoo_game_in_worker_processes(tmp_path: Path) -> None:
    options = {"env_options": {"module": "small_games"}, "sampling": {"workers": 2}}
    (found,) = learned(tmp_path, "palus.envs.pettingzoo:make", 12_000, {"Echo": {"trainer_type": "ppo"}}, **options)
    assert found > 3.6


@pytest.mark.slow
def test_mapoca_credits_those_who_left_in_worker_processes(tmp_path: Path) -> None:
    sampling = {"collector": "workers", "workers": 2}
    (found,) = learned(tmp_path, "RescueToy", 24_000, {"RescueToy": {"trainer_type": "poca"}}, sampling=sampling)
    assert found > 0.45  # the group's 1 is paid to one of two


@pytest.mark.slow
def test_appo_learns_a_batched_game_in_process(tmp_path: Path) -> None:
    (found,) = learned(
        tmp_path, "DuelToy", 24_000, {"DuelToy": {"trainer_type": "appo"}}, env_options={"cooperative": True}
    )
    assert found > 0.9


def test_appo_ends_soccer_in_workers(tmp_path: Path) -> None:
    soccer = {"SoccerTwos": {"trainer_type": "appo", "self_play": {"save_steps": 500}}}
    workers = {"sampling": {"collector": "workers", "workers": 2}}
    assert len(learned(tmp_path, "SoccerTwos", 2_000, soccer, baseline_interval=0, **workers)) == 1


@pytest.mark.slow
def test_appo_learns_soccer_from_both_sides_of_matches_in_one_process(tmp_path: Path) -> None:
    """1.5M frames, 300,000 decisions; a policy that has not learned is as good as `random`."""
    behavior = {
        "trainer_type": "appo",
        "hyperparameters": {
            "batch_size": 2048, "buffer_size": 8192, "learning_rate": 0.001, "beta": 0.01, "epsilon": 0.2,
            "num_epoch": 2,
        },
        "network_settings": {
            "hidden_units": 64, "num_layers": 2, "memory": None, "encoding": "joint", "symmetric": True,
            "normalize": False,
        },
        "time_horizon": 32,
        "self_play": {"save_steps": 500_000, "swap_steps": 10_000},
    }  # fmt: skip
    options = {"baselines": ["random"], "baseline_interval": 10_000_000, "baseline_pairs": 50}
    learned(tmp_path, "SoccerTwos", 1_500_000, {"SoccerTwos": behavior}, parameters={"ball_touch": 0.5}, **options)
    told = [json.loads(line) for line in (tmp_path / "run" / PROGRESS).read_text().splitlines()]
    (share,) = [line["values"]["Baselines/random"] for line in told if "Baselines/random" in line.get("values", {})]
    assert share > 0.7


@pytest.mark.parametrize("collector", ["in_process", pytest.param("workers", marks=pytest.mark.slow)])
def test_two_behaviors_that_see_different_things_both_learn(collector: str, tmp_path: Path) -> None:
    both = {"Striker": {"trainer_type": "ppo"}, "Keeper": {"trainer_type": "ppo"}}
    sampling = {"collector": collector, "workers": 2}
    striker, keeper = learned(tmp_path, "PenaltyToy", 16_000, both, sampling=sampling)
    assert striker > 3.4 and keeper > 3.4  # chance: 4/3 and 1
    names = sorted(path.name for path in (tmp_path / "run").glob("*.onnx"))
    assert names == ["Keeper.onnx", "Striker.onnx"]


def test_a_run_of_two_behaviors_one_of_them_by_default_is_trained_shown_and_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = {
        "default_settings": merged(SMALL, {"trainer_type": "ppo", "max_steps": 8_000}),
        "behaviors": {"Keeper": merged(SMALL, {"trainer_type": "ppo", "max_steps": 12_000})},
        "env_settings": {"seed": 3},
        "palus": {"env": "PenaltyToy", "matmul": "highest", "threads": 1, "sampling": {"workers": 0}},
    }
    Path("run.yaml").write_text(yaml.safe_dump(tree))
    typed("train", "run.yaml", "--run-id", "both")
    saved = yaml.safe_load(Path("results/both/configuration.yaml").read_text())["behaviors"]
    assert {name: behavior["max_steps"] for name, behavior in saved.items()} == {"Keeper": 12_000, "Striker": 8_000}
    found = json.loads(typed("enjoy", "results/both", "--max-num-episodes", 40, "--json"))
    means = {name: behavior["mean"] for name, behavior in found["behaviors"].items()}
    assert means.keys() == {"Striker", "Keeper"} and min(means.values()) > 3.4  # chance: 4/3 and 1
    assert "Keeper: " in typed("enjoy", "results/both")
    for name in ("Striker", "Keeper"):
        Path(f"results/both/{name}.onnx").unlink()
    typed("push", "results/both", "ada/both", "--hub", "folder:pool")
    typed("pull", "ada/both", "theirs", "--hub", "folder:pool")
    again = json.loads(typed("enjoy", "theirs", "--max-num-episodes", 40, "--json"))
    assert again["objectives"] == found["objectives"]
    for name, shapes in {"Striker": [4], "Keeper": [2, 1]}.items():
        session = ort.InferenceSession(f"theirs/{name}.onnx")
        assert [i.shape[1] for i in session.get_inputs() if i.name.startswith("obs_")] == shapes
    Path("theirs/Striker/policy.npz").unlink()
    assert "no latest policy of Striker" in typed("enjoy", "theirs", code=2)


def test_an_agent_with_masks_is_measured_and_orders_nothing_that_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    learned(tmp_path, "MenuToy", 2_000, {"MenuToy": {"trainer_type": "ppo"}})
    assert json.loads(typed("enjoy", "run", "--json"))["mean"] > 0  # the game raises at a forbidden dish


def typed(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout
