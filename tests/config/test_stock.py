"""ML-Agents' own run files: each loads, means what it means there, and what cannot be trained yet is named.

What it means there: what is written over the defaults of `test_reference.py`; ML-Agents 1.1.0 itself, asked once for
every file of the table, resolved all of them alike. Whether they train: `tests/test_train_stock.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from stock import OLD_LESSONS, PARAMETERS, stock_files
from test_reference import BEHAVIOR, LEARNED, NETWORK, ON_POLICY, REFERENCE, SIGNAL
from typer.testing import CliRunner

from palus.cli import app
from palus.config import RunFile, load_run, unsupported
from palus.config.load import plain
from palus.config.run_file import EDITOR
from palus.config.source import Source
from palus.config.trainer import BehavioralCloning, Gail, SacHyperparameters, SelfPlay
from palus.types import BehaviorSpec
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

Tree = dict[str, Any]
NEW, OLD = stock_files("new"), stock_files("old")
DEFAULTS: dict[str, Tree] = {kind.__name__: values for kind, values in REFERENCE}
HYPER = {"ppo": ON_POLICY | {"shared_critic": False}, "poca": ON_POLICY, "sac": DEFAULTS[SacHyperparameters.__name__]}
SIGNALS = {"extrinsic": SIGNAL, "curiosity": LEARNED, "gail": DEFAULTS[Gail.__name__]}
SIGNALS["rnd"] = LEARNED | {"learning_rate": 1e-4}
"""Keys that nothing acts on yet, beside memory with SAC and rewards without the game's own."""


def over(base: Tree, own: Tree) -> Tree:
    """A map over another, map by map."""
    return base | {
        k: over(base[k], v) if isinstance(base.get(k), dict) and isinstance(v, dict) else v for k, v in own.items()
    }


def resolved(own: Tree) -> Tree:
    """A behavior as ML-Agents trains it: what it says over the defaults, beta and epsilon as the learning rate."""
    hyper = own.get("hyperparameters", {})
    defaults = HYPER[own["trainer_type"]]
    schedule = hyper.get("learning_rate_schedule", defaults["learning_rate_schedule"])
    copies = {key: schedule for key in ("beta_schedule", "epsilon_schedule") if key in defaults}
    pace = {"reward_signal_steps_per_update": hyper["steps_per_update"]} if "steps_per_update" in hyper else {}
    base = BEHAVIOR | {"hyperparameters": defaults | copies | pace, "network_settings": NETWORK}
    signals = own.get("reward_signals", {"extrinsic": {}})
    base["reward_signals"] = {name: SIGNALS[name] | {"network_settings": NETWORK} for name in signals}
    for key, kind in (("self_play", SelfPlay), ("behavioral_cloning", BehavioralCloning)):
        if key in own:
            base[key] = DEFAULTS[kind.__name__]
    if "self_play" in own:
        base["self_play"] = base["self_play"] | {"team_change": 5 * own["self_play"]["save_steps"]}
    found = over(base, own)
    return found | {"max_steps": float(found["max_steps"])}  # 1.0e7 is a text to YAML


def only(tree: Any, like: Any) -> Any:
    """Of maps what another has, in lists too."""
    if isinstance(tree, list):
        return [only(own, other) for own, other in zip(tree, like, strict=True)]
    return {k: only(tree[k], v) for k, v in like.items()} if isinstance(like, dict) and isinstance(tree, dict) else tree


def loaded(file: Tree, **palus: Any) -> RunFile:
    return load_run(Source("run.yaml", yaml.safe_dump(file | ({"palus": palus} if palus else {}))))


def test_these_are_all_files() -> None:
    assert (len(NEW), len(OLD)) == (39, 49)


@pytest.mark.parametrize("name", NEW)
def test_a_stock_file_means_what_it_means_there(name: str) -> None:
    run, file = loaded(NEW[name]), NEW[name]
    found = plain(run)
    for behavior, own in file["behaviors"].items():
        expected = resolved(over(file.get("default_settings", {}), own))
        assert only(found["behaviors"][behavior], expected) == expected
    parameters = PARAMETERS.get(name, {})
    assert only(found["environment_parameters"] or {}, parameters) == parameters
    assert load_run(Source("configuration.yaml", yaml.safe_dump(found, sort_keys=False))) == run


def test_literals() -> None:
    """By hand, so that table and rules cannot be wrong together."""
    match3 = loaded(NEW["ppo/Match3"])
    for behavior in match3.behaviors.values():
        hyper, network = behavior.hyperparameters, behavior.network_settings
        assert (hyper.batch_size, hyper.lambd, hyper.beta_schedule, hyper.epsilon_schedule) == (
            16,
            0.99,
            "constant",
            "constant",
        )
        assert (network.normalize, network.hidden_units, network.num_layers, network.vis_encode_type) == (
            True,
            4,
            1,
            "match3",
        )
        assert (behavior.time_horizon, behavior.keep_checkpoints, behavior.checkpoint_interval) == (128, 5, 500000)
    pyramids = loaded(NEW["imitation/Pyramids"]).behaviors["Pyramids"]
    assert (pyramids.hyperparameters.beta_schedule, pyramids.summary_freq, pyramids.max_steps) == (
        "linear",
        50000,
        10_000_000,
    )
    assert pyramids.reward_signals.curiosity.network_settings.hidden_units == 256
    goalie = loaded(NEW["poca/StrikersVsGoalie"]).behaviors["Goalie"].self_play
    assert (goalie.swap_steps, goalie.team_change, goalie.save_steps) == (1000, 200000, 50000)
    sac = loaded(NEW["sac/WallJump"]).behaviors["BigWallJump"].hyperparameters
    assert (sac.steps_per_update, sac.reward_signal_steps_per_update, sac.tau) == (20.0, 10.0, 0.005)
    crawler = loaded(
        over(NEW["ppo/Crawler"], {"behaviors": {"Crawler": {"even_checkpoints": True, "keep_checkpoints": 3}}})
    )
    assert crawler.behaviors["Crawler"].checkpoint_interval == 3333333


@pytest.mark.parametrize("name", NEW)
def test_nothing_of_a_stock_file_is_refused(name: str) -> None:
    run = loaded(NEW[name])
    unity = run.changed(env_settings={"env_path": EDITOR})
    assert unsupported(unity) == []


@pytest.mark.parametrize("name", NEW)
def test_check_accepts_a_file_for_the_editor(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = np.zeros(1, np.float32)
    episode = ExpertEpisode({"obs_0": np.zeros((1, 2))}, np.zeros((1, 1)), None, one, one, False)
    for behavior, own in loaded(NEW[name]).behaviors.items():
        for imitating in (own.behavioral_cloning, own.reward_signals.gail):
            if imitating is not None:  # where the file has it, from the working directory
                shown = tmp_path / imitating.demo_path
                shown.parent.mkdir(parents=True, exist_ok=True)
                write_demonstrations(shown, BehaviorSpec.of_vectors(behavior, (2,), (5,)), behavior, [episode])
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(NEW[name]))
    result = CliRunner().invoke(app, ["train", "run.yaml", "--env", EDITOR, "--check"])
    assert result.exit_code == 0 and "The run file is valid" in result.output, result.output


@pytest.mark.parametrize("name", OLD)
def test_an_old_stock_file_is_refused_and_translated(name: str, tmp_path: Path) -> None:
    """Each key is where it stands today, with its number; only sizes of a memory that is not there are left out."""
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(OLD[name]))
    with pytest.raises(Exception, match=r"in the format of ML-Agents up to 0\.16; translate it first: palus migrate"):
        load_run(tmp_path / "old.yaml")
    result = CliRunner().invoke(app, ["migrate", str(tmp_path / "old.yaml"), "--output", str(tmp_path / "new.yaml")])
    assert result.exit_code == 0, result.output
    found = plain(load_run(tmp_path / "new.yaml"))
    assert found["behaviors"].keys() == OLD[name]["behaviors"].keys()
    for behavior, old in OLD[name]["behaviors"].items():
        expected = resolved(nested(old))
        assert only(found["behaviors"][behavior], expected) == expected
        thresholds, lists = OLD_LESSONS.get((name, behavior), ([], {}))
        for parameter, values in lists.items():
            lessons = found["environment_parameters"][parameter]["curriculum"]
            assert [(lesson["name"], lesson["value"]) for lesson in lessons] == [
                (f"Lesson{n}", v) for n, v in enumerate(values)
            ]
            criteria = [lesson["completion_criteria"] for lesson in lessons[:-1]]
            assert [c["threshold"] for c in criteria] == thresholds
            assert {(c["behavior"], c["measure"], c["min_lesson_length"]) for c in criteria} == {
                (behavior, "progress", 100)
            }
    left = re.findall(r"\.\(([^)]*)\) -> left out", result.stderr)
    allowed = {"memory_size, sequence_length", "sequence_length, memory_size", "gamma"}
    assert set(left) <= allowed, left
    if name == "ppo/3DBall_randomize":
        ranges = {k: v["sampler_parameters"] for k, v in found["environment_parameters"].items()}
        assert {k: (v["min_value"], v["max_value"]) for k, v in ranges.items()} == {
            "mass": (0.5, 10.0), "gravity": (7.0, 12.0), "scale": (0.75, 3.0),
        }  # fmt: skip


def nested(old: Tree) -> Tree:
    """A behavior of the flat format, its keys where they stand today."""
    network, memory = {"normalize", "hidden_units", "num_layers", "vis_encode_type"}, {"sequence_length", "memory_size"}
    top = {"max_steps", "time_horizon", "summary_freq", "reward_signals", "self_play", "behavioral_cloning"}
    new: Tree = {"trainer_type": old["trainer"], "network_settings": {}, "hyperparameters": {}}
    for key, value in old.items():
        if key in top:
            new[key] = value
        elif key in network:
            new["network_settings"][key] = value
        elif key in memory and old["use_recurrent"]:
            new["network_settings"].setdefault("memory", {})[key] = value
        elif key in HYPER[old["trainer"]]:
            new["hyperparameters"][key] = value
    for signal in new["reward_signals"].values():
        if "encoding_size" in signal:
            signal["network_settings"] = {"hidden_units": signal.pop("encoding_size")}
    play = new.get("self_play", {})
    if "play_against_current_self_ratio" in play:
        play["play_against_latest_model_ratio"] = play.pop("play_against_current_self_ratio")
    return new
