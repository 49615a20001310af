"""Adam's moments out of ML-Agents' own checkpoints.

The files in data/mlagents/optimizers were written by mlagents 1.1.0 (`remake.py` there) after one step of every
optimiser whose gradient was the parameter itself, at a learning rate of 0: a first moment is 0.1 of its parameter, a
second one 0.001 of its square, so that a number in another's place shows.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from palus.config import load_run
from palus.learn import ALGORITHMS
from palus.learn.learner import Learner
from palus.run.initial import initial_state
from palus.run.mlagents_checkpoint import MlAgentsCheckpoint, learner_state, read_ml_agents
from palus.run.mlagents_optimizer import MISFITS, optimizer_state
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

DATA = Path(__file__).parent / "data" / "mlagents" / "optimizers"
UNIT = 1 / 3
"""Of a number of PPO's and MA-POCA's in a game whose range is +-1."""


def learner_of(trainer: str, range_end: float = 3.0) -> Learner:
    network = f"{{normalize: true, hidden_units: 4, num_layers: 1, range_end: {range_end}}}"
    behavior = load_run("debug", [f"behaviors.SoccerTwos={{trainer_type: {trainer}, network_settings: {network}}}"])
    actions = ActionSpec((Continuous(2, -1.0, 1.0), Discrete(2)), True)
    spec = BehaviorSpec("B", (ObservationSpec("obs_0", (3,)),), actions)
    return ALGORITHMS[trainer](behavior.behaviors["SoccerTwos"], spec, torch.float32, 5)


def told(learner: Learner, checkpoint: MlAgentsCheckpoint) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Name -> weight, first and second moment of a learner that goes on from a checkpoint."""
    state = learner_state(checkpoint, learner)
    state["optimizer"] = optimizer_state(checkpoint, learner, DATA)
    learner.begin_from(state)
    moments = [x.split([w.numel() for w in learner.network.weights.masters.values()])
               for x in (learner.optimizer.mean, learner.optimizer.square)]  # fmt: skip
    weights = learner.network.weights.masters
    return {name: (w.numpy(), m.view_as(w).numpy(), v.view_as(w).numpy())
            for (name, w), m, v in zip(weights.items(), *moments, strict=True)}  # fmt: skip


@pytest.mark.parametrize(("trainer", "range_end"), [("ppo", 3.0), ("poca", 3.0), ("sac", 0.0), ("ppo", 0.0)])
def test_every_moment_is_that_of_its_weight(trainer: str, range_end: float) -> None:
    learner, checkpoint = learner_of(trainer, range_end), read_ml_agents(DATA / f"{trainer}.pt")
    found = told(learner, checkpoint)
    assert learner.optimizer.steps == 1
    unit = UNIT if trainer != "sac" and not range_end else 1.0  # of ours, what their means' 1 is worth
    for name, (weight, mean, square) in found.items():
        if name == "critic.log_coefficients":  # begins anew, there too; its moments are of 0
            assert not weight.any() and not mean.any() and not square.any()
            continue
        gradient = weight.copy()
        if name == "action_parameterization.learned_stddev":
            gradient = weight - np.log(unit)
        elif name.startswith("action_parameterization.distribution_linear"):
            gradient[:2] /= unit**2
        elif name == "critic.action.weight":  # of poca's critic: what is seen, numbers, choices
            gradient[:, 3:5] *= UNIT**2
        assert np.abs(gradient).max() > 0
        np.testing.assert_allclose(mean, 0.1 * gradient, rtol=1e-5, atol=1e-7, err_msg=name)
        np.testing.assert_allclose(square, 0.001 * gradient**2, rtol=1e-5, atol=1e-9, err_msg=name)


def test_a_checkpoint_whose_optimiser_never_stepped_gives_fresh_moments() -> None:
    learner, checkpoint = learner_of("ppo"), read_ml_agents(DATA / "ppo.pt")
    for optimizer in checkpoint.optimizers.values():
        optimizer["state"] = {}
    told(learner, checkpoint)
    assert learner.optimizer.steps == 0 and not learner.optimizer.mean.any()


def test_moments_that_do_not_fit_are_told_of_and_begin_anew(tmp_path: Path) -> None:
    content = torch.load(DATA / "ppo.pt", weights_only=True)
    saved = content["Optimizer:value_optimizer"]

    def fresh(change: object) -> str:
        broken = copy.deepcopy(content)
        optimizer = broken["Optimizer:value_optimizer"]
        change(optimizer)  # type: ignore[operator]
        torch.save(broken, tmp_path / "checkpoint.pt")
        warnings: list[str] = []
        learner = learner_of("ppo")
        state, _ = initial_state(tmp_path / "checkpoint.pt", "B", learner, warnings.append)
        learner.begin_from(state)
        assert learner.optimizer.steps == 0 and not learner.optimizer.mean.any()
        (line,) = warnings
        assert "the optimiser's state does not fit" in line and line.endswith("Adam's moments begin anew.")
        return line

    last = max(saved["state"])
    count = len(saved["param_groups"][0]["params"])
    assert f"an optimiser of {count - 1} parameters; expected {count}" in fresh(
        lambda own: own["param_groups"][0]["params"].pop()
    )
    assert "moments of shape (3, 3) and" in fresh(lambda own: own["state"][last].update(exp_avg=torch.zeros(3, 3)))
    assert "no finite numbers" in fresh(lambda own: own["state"][last]["exp_avg_sq"].fill_(-1.0))
    fresh(lambda own: own["state"].update({count: own["state"][last]}))
    fresh(lambda own: own["state"][last].pop("step"))
    fresh(lambda own: own.update(state=torch.zeros(3)))
    fresh(lambda own: own.update(param_groups=3))


def test_the_wrong_trainer_s_optimiser_is_a_misfit() -> None:
    checkpoint = read_ml_agents(DATA / "ppo.pt")
    with pytest.raises(MISFITS):
        optimizer_state(checkpoint, learner_of("poca"), DATA)
