"""Every key of ML-Agents 1.1.0's schema is known here with its default; expected values come from its specification."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from palus.config import environment, run_file, trainer
from palus.config.network import Memory, NetworkSettings, SignalNetworkSettings

ON_POLICY = {
    "batch_size": 1024, "buffer_size": 10240, "learning_rate": 3e-4, "learning_rate_schedule": "linear", "beta": 5e-3,
    "epsilon": 0.2, "lambd": 0.95, "num_epoch": 3, "beta_schedule": "linear", "epsilon_schedule": "linear",
}  # fmt: skip
NETWORK = {
    "normalize": False, "hidden_units": 128, "num_layers": 2, "vis_encode_type": "simple", "memory": None,
    "goal_conditioning_type": "hyper", "deterministic": False,
}  # fmt: skip
REQUIRED = object()
SIGNAL = {"gamma": 0.99, "strength": 1.0}
LEARNED = SIGNAL | {"learning_rate": 3e-4, "encoding_size": None}
BEHAVIOR = {
    "checkpoint_interval": 500000, "init_path": None, "keep_checkpoints": 5, "even_checkpoints": False,
    "max_steps": 500000, "time_horizon": 64, "summary_freq": 50000, "threaded": False, "self_play": None,
    "behavioral_cloning": None,
}  # fmt: skip
REFERENCE: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (trainer.PpoHyperparameters, ON_POLICY | {"shared_critic": False}),
    (trainer.PocaHyperparameters, ON_POLICY),
    (
        trainer.SacHyperparameters,
        {
            "batch_size": 128, "buffer_size": 50000, "learning_rate": 3e-4, "learning_rate_schedule": "constant",
            "buffer_init_steps": 0, "tau": 0.005, "steps_per_update": 1.0, "save_replay_buffer": False,
            "init_entcoef": 1.0, "reward_signal_steps_per_update": 1.0,
        },
    ),
    *((kind, BEHAVIOR) for kind in (trainer.PpoBehavior, trainer.PocaBehavior, trainer.SacBehavior)),
    (NetworkSettings, NETWORK),
    (SignalNetworkSettings, NETWORK),
    (Memory, {"sequence_length": 64, "memory_size": 128}),
    (trainer.Extrinsic, SIGNAL),
    (trainer.Curiosity, LEARNED),
    (trainer.Gail, LEARNED | {"demo_path": REQUIRED, "use_actions": False, "use_vail": False}),
    (trainer.Rnd, LEARNED | {"learning_rate": 1e-4}),
    (
        trainer.BehavioralCloning,
        {
            "demo_path": REQUIRED, "steps": 0, "strength": 1.0, "samples_per_update": 0, "num_epoch": None,
            "batch_size": None,
        },
    ),
    (
        trainer.SelfPlay,
        {
            "save_steps": 20000, "team_change": 100000, "swap_steps": 2000, "window": 10,
            "play_against_latest_model_ratio": 0.5, "initial_elo": 1200.0,
        },
    ),
    (
        run_file.EnvSettings,
        {
            "env_path": None, "env_args": None, "base_port": 5005, "num_envs": 1, "num_areas": 1, "timeout_wait": 60,
            "seed": -1, "max_lifetime_restarts": 10, "restarts_rate_limit_n": 1, "restarts_rate_limit_period_s": 60,
        },
    ),
    (
        run_file.EngineSettings,
        {
            "width": 84, "height": 84, "quality_level": 5, "time_scale": 20.0, "target_frame_rate": -1,
            "capture_frame_rate": 60, "no_graphics": False, "no_graphics_monitor": False,
        },
    ),
    (
        run_file.CheckpointSettings,
        {
            "run_id": "ppo", "initialize_from": None, "load_model": False, "resume": False, "force": False,
            "train_model": False, "inference": False, "results_dir": "results",
        },
    ),
    (run_file.TorchSettings, {"device": None}),
    (environment.ConstantParameters, {"seed": -1, "value": 0.0}),
    (environment.UniformParameters, {"seed": -1, "min_value": 0.0, "max_value": 1.0}),
    (environment.GaussianParameters, {"seed": -1, "mean": 1.0, "st_dev": 1.0}),
    (environment.MultiRangeUniformParameters, {"seed": -1, "intervals": ((0.0, 1.0),)}),
    (environment.Lesson, {"name": REQUIRED, "value": REQUIRED, "completion_criteria": None}),
    (
        environment.CompletionCriteria,
        {
            "behavior": REQUIRED, "measure": "reward", "min_lesson_length": 0, "signal_smoothing": True,
            "threshold": 0.0, "require_reset": False,
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("section", "expected"), REFERENCE, ids=lambda case: getattr(case, "__name__", ""))
def test_every_key_has_the_default_of_the_reference(section: type[BaseModel], expected: dict[str, Any]) -> None:
    required = {name: "x" if name != "value" else 0.0 for name, default in expected.items() if default is REQUIRED}
    filled = section.model_validate(required)
    assert {name for name, field in section.model_fields.items() if field.is_required()} == set(required)
    found = {name: getattr(filled, name) for name in expected if name not in required}
    assert found == {name: default for name, default in expected.items() if default is not REQUIRED}


def test_the_top_level_is_the_references_and_palus() -> None:
    top = ["default_settings", "behaviors", "env_settings", "engine_settings", "environment_parameters"]
    assert list(run_file.RunFile.model_fields) == [*top, "checkpoint_settings", "torch_settings", "debug", "palus"]
