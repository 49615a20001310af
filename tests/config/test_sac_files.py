"""The run files that ML-Agents 22 ships for SAC mean here what they mean there. Facts of the files, not their text."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import yaml

from palus.config import notes, unsupported
from palus.config.trainer import SacBehavior
from palus.learn.sac import SAC
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete

HYPER = ("batch_size", "buffer_size", "buffer_init_steps", "tau", "steps_per_update", "init_entcoef")
NETWORK, LENGTHS = ("normalize", "hidden_units", "num_layers"), ("max_steps", "time_horizon", "summary_freq")
FILES: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], tuple[float, float], tuple[int, ...]]] = {
    "3DBall": ((64, 200000, 0, 0.005, 10.0, 0.5), (True, 64, 2), (0.99, 1.0), (100000, 1000, 12000)),
    "3DBallHard": ((256, 500000, 0, 0.005, 10.0, 1.0), (True, 64, 2), (0.99, 1.0), (500000, 1000, 12000)),
    "Basic": ((64, 50000, 0, 0.005, 10.0, 0.01), (False, 20, 2), (0.99, 1.0), (500000, 10, 2000)),
    "Crawler": ((256, 500000, 0, 0.005, 20.0, 1.0), (True, 512, 3), (0.995, 1.0), (5000000, 1000, 30000)),
    "GridFoodCollector": ((256, 2048, 0, 0.005, 10.0, 0.05), (False, 256, 1), (0.99, 1.0), (2000000, 64, 60000)),
    "GridWorld": ((128, 50000, 1000, 0.005, 10.0, 0.5), (False, 128, 1), (0.9, 1.0), (500000, 5, 20000)),
    "Hallway": ((512, 200000, 0, 0.005, 10.0, 0.1), (False, 128, 2), (0.99, 1.0), (10000000, 64, 10000)),
    "PushBlock": ((128, 50000, 0, 0.005, 10.0, 0.05), (False, 256, 2), (0.99, 1.0), (2000000, 64, 100000)),
    "Pyramids": ((128, 2000000, 1000, 0.01, 10.0, 0.01), (False, 512, 3), (0.995, 2.0), (3000000, 128, 30000)),
    "Walker": ((1024, 2000000, 0, 0.005, 30.0, 1.0), (True, 512, 4), (0.995, 0.1), (150000000, 1000, 30000)),
    "BigWallJump": ((256, 100000, 0, 0.005, 10.0, 0.1), (False, 256, 2), (0.99, 1.0), (20000000, 128, 1000)),
    "Worm": ((256, 500000, 0, 0.005, 20.0, 1.0), (True, 512, 3), (0.995, 1.0), (5000000, 1000, 30000)),
}
"""By behavior: hyperparameters, network_settings, gamma and strength, and the steps of the run."""
MORE: dict[str, dict[str, Any]] = {
    "Hallway": {"network_settings": {"memory": {"sequence_length": 64, "memory_size": 128}}},
    "Pyramids": {"reward_signals": {"gail": {"strength": 0.01, "use_actions": True, "demo_path": "Pyramid.demo"}}},
    "Walker": {"network_settings": {"goal_conditioning_type": "none"}},
}
REFUSED = {
    "Hallway": ["behaviors.Hallway.network_settings.memory: sac has no memory yet; remove it, or use ppo"],
    "Pyramids": ["behaviors.Pyramids.reward_signals.gail: not supported yet; keep extrinsic alone"],
}
SPEC = BehaviorSpec(
    "X", BehaviorSpec.of_vectors("X", (4,), (2,)).observations, ActionSpec((Continuous(1), Discrete(2)))
)


@pytest.mark.parametrize("name", FILES)
def test_a_stock_file_has_the_values_of_the_reference_and_its_learner_is_made(name: str, load: Any) -> None:
    hyper, network, signal, lengths = FILES[name]
    numbers = dict(zip(HYPER, hyper, strict=True))
    written = numbers | {
        "learning_rate": 0.0003, "learning_rate_schedule": "constant", "save_replay_buffer": False,
        "reward_signal_steps_per_update": numbers["steps_per_update"],
    }  # fmt: skip
    layers = dict(zip(NETWORK, network, strict=True)) | {"vis_encode_type": "simple"}
    extrinsic = dict(zip(("gamma", "strength"), signal, strict=True))
    more, steps = MORE.get(name, {}), dict(zip(LENGTHS, lengths, strict=True))
    tree = {
        "trainer_type": "sac", "hyperparameters": written, "keep_checkpoints": 5, **steps,
        "network_settings": layers | more.get("network_settings", {}),
        "reward_signals": {"extrinsic": extrinsic} | more.get("reward_signals", {}),
    }  # fmt: skip
    run = load(yaml.safe_dump({"behaviors": {name: tree}}), ["palus.env=MenuToy"])
    behavior = run.behaviors[name]
    assert isinstance(behavior, SacBehavior)
    found = behavior.model_dump(mode="json")
    for section, values in (("hyperparameters", written), ("network_settings", layers)):
        assert {key: found[section][key] for key in values} == values
    assert {key: found["reward_signals"]["extrinsic"][key] for key in extrinsic} == extrinsic
    assert {key: found[key] for key in steps} == steps
    assert unsupported(run) == REFUSED.get(name, [])
    assert not [line for line in notes(run) if "hyperparameters" in line]  # nothing that acts is said not to
    if name not in REFUSED:
        learner = SAC(behavior, SPEC, torch.float32, 0)
        assert learner.buffer.capacity == numbers["buffer_size"]
        assert learner.coefficients.tolist() == pytest.approx([numbers["init_entcoef"]] * 2)
