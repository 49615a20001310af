"""`palus train --minutes`: a run is sized to the machine, and the measuring leaves nothing behind."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from train_command import FAST, SETTINGS, palus

from palus.config import load_run
from palus.launch.pace import fitted, fitting_share, scratch


def test_minutes_size_a_run_to_the_machine_and_never_beyond_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    killed = tmp_path / "tmp" / "palus-trial-of-one-that-was-killed"
    killed.mkdir(parents=True)
    os.utime(killed, (time.time() - 100,) * 2)
    words = ("debug", *FAST, "--results-dir", tmp_path / "r", "--check", "--json")
    for wanted, minutes in ((1e12, 0.05), (1024, 60)):
        told = palus(*words, f"{SETTINGS}max_steps={wanted}", "--minutes", minutes)
        configuration = json.loads(told.stdout)["configuration"]
        steps = configuration["behaviors"]["SoccerTwos"]["max_steps"]
        assert configuration["palus"]["max_minutes"] == minutes, "the clock ends what is slower than measured"
        assert f"SoccerTwos: {steps:,} of {int(wanted):,} steps fit into {minutes:g} minutes here." in told.stderr
        assert 1 < steps < 1e8 if wanted == 1e12 else steps == 1024
    assert not (tmp_path / "r").exists(), "measured elsewhere"
    assert not list((tmp_path / "tmp").glob("palus-trial-*")), "and nothing is left there"
    assert fitting_share(1000.0, 10.0, 1e6) == pytest.approx(0.75 * 0.6)  # 600,000 steps at the rate of the start
    assert fitting_share(1000.0, 10.0, 1e5) == 1.0
    assert "--minutes sizes a run before it begins" in palus("debug", "--minutes", 1, "--resume", code=2).output


@pytest.mark.parametrize(("striker", "fits"), [("1e9", 450_000), ("0", 0)])
def test_minutes_leave_a_behavior_that_is_to_learn_nothing_as_it_is(striker, fits, monkeypatch):
    class Measured:
        """Both play a thousand steps an iteration, which takes a second."""

        def __init__(self, run):
            self.trainees = [
                SimpleNamespace(policy=k, name=name, behavior=behavior)
                for k, (name, behavior) in enumerate(run.behaviors.items())
            ]
            self.steps = dict.fromkeys(range(2), 1000)  # of the iteration that compiles

        def iterate(self):
            self.steps = {policy: step + 1000 for policy, step in self.steps.items()}

    seconds = itertools.count()
    monkeypatch.setattr("palus.launch.pace.time", SimpleNamespace(perf_counter=lambda: float(next(seconds))))
    monkeypatch.setattr("palus.launch.pace.trial", lambda run, trust: nullcontext(Measured(run)))
    settings = ["behaviors.Goalie.max_steps=0", f"behaviors.Striker.max_steps={striker}"]
    sized = fitted(load_run("strikers-vs-goalie", settings), 10.0)
    assert sized.behaviors["Goalie"].max_steps == 0
    assert sized.behaviors["Striker"].max_steps == pytest.approx(fits, abs=1)


def test_what_is_measured_learns_at_once_and_leaves_the_run_s_folder_and_origin_alone(tmp_path):
    sac = "{trainer_type: sac, hyperparameters: {buffer_init_steps: 500}}"
    other = ["checkpoint_settings={initialize_from: first, resume: true}", "palus.baseline_interval=9"]
    run = load_run("debug", [*other, f"default_settings={sac}", f"behaviors.SoccerTwos={sac}"])
    own = scratch(run, str(tmp_path))
    settings = own.checkpoint_settings
    assert (settings.results_dir, settings.initialize_from, settings.resume) == (str(tmp_path), None, False)
    assert own.behaviors["SoccerTwos"].hyperparameters.buffer_init_steps == 0, "not after the minute that is measured"
    assert own.default_settings.hyperparameters.buffer_init_steps == 0
    assert own.palus.baseline_interval == 0
