"""Runs on torch's path: what they write is what a run on the CPU writes, and either goes on with the other's."""

import numpy as np
import onnxruntime
import pytest
import torch

from palus.config import load_run
from palus.export.policy_file import read_policy
from palus.nn.place import Placement
from palus.train import Run, train

FAST = ["palus.matmul=highest", "palus.threads=1", "env_settings.seed=7", "palus.baseline_interval=0"]
SETTINGS = ["network_settings.normalize=true", "max_steps=4096", "self_play.save_steps=1024"]


def elsewhere(monkeypatch):
    """From now on torch's path computes, on the CPU."""
    monkeypatch.setattr("palus.run.parts.place_of", lambda setting: Placement(torch.device("cpu"), compiled=False))


@pytest.mark.parametrize(("trainer", "first_here"), [("ppo", True), ("poca", False), ("sac", True)])
def test_a_run_goes_on_on_another_device(tmp_path, monkeypatch, trainer, first_here):
    more = [
        f"trainer_type={trainer}",
        *SETTINGS,
        *(["hyperparameters.steps_per_update=200"] if trainer == "sac" else []),
    ]
    settings = [f"behaviors.SoccerTwos.{setting}" for setting in more]
    run = load_run("debug", [*FAST, *settings, f"checkpoint_settings.results_dir={tmp_path}"])
    with monkeypatch.context() as patched:
        if not first_here:
            elsewhere(patched)
        parts = Run(run)
        with parts.report:
            parts.iterate()
            parts.save()
        began = parts.trainees[0].learner
        assert began.place.compiled == first_here
    if first_here:
        elsewhere(monkeypatch)
    again = Run(run, resume=True).trainees[0].learner
    assert again.place.compiled != first_here
    for name, array in began.network.arrays().items():
        np.testing.assert_array_equal(again.network.arrays()[name], array)
    np.testing.assert_array_equal(again.optimizer.mean, began.optimizer.mean)
    result = train(run, resume=True)
    assert result.finished
    folder = tmp_path / "debug" / "SoccerTwos"
    file = read_policy(folder / "policy.npz")
    session = onnxruntime.InferenceSession(file.model)
    given = {seen.name: np.ones((2, seen.shape[-1]), np.float32) for seen in session.get_inputs()}
    assert all(np.isfinite(found).all() for found in session.run(None, given))


def test_rays_travel_in_compact_form_and_mean_the_same(tmp_path, monkeypatch):
    elsewhere(monkeypatch)
    found = []
    for number, compact in enumerate((True, False)):
        monkeypatch.setattr("palus.learn.learner.Learner.takes_rays", property(lambda learner, own=compact: own))
        run = load_run("debug", [*FAST, "behaviors.SoccerTwos.trainer_type=poca",
                                 f"checkpoint_settings.results_dir={tmp_path / str(number)}"])  # fmt: skip
        parts = Run(run)
        rollouts = [parts.collector.collect().rollouts[0]]
        names = {name: (array.dtype, array.shape[2]) for name, array in rollouts[0].observations.items()}
        with parts.report:
            parts.iterate()
        found.append(parts.trainees[0].learner.network.weights.master.clone())
        parts.close()
        whole = {"obs_0": (np.float32, 264), "obs_1": (np.float32, 72)}
        kinds = {" tags": np.uint8, " distances": np.float32}
        rays = {"obs_0": 33, "obs_1": 9}
        short = {name + end: (kind, rays[name]) for name in rays for end, kind in kinds.items()}
        assert names == (short if compact else whole)
    assert torch.equal(*found)
