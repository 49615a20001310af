"""A small run's folder as training leaves it: a bundle, two checkpoints, TensorBoard events, the status file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import yaml
from tensorboardX import SummaryWriter, summary

from palus.export.bundle import Provenance, write_bundle
from palus.hub.model_card import refresh_card
from palus.nn.graph import mlp_policy
from palus.types import BehaviorSpec

SPEC = BehaviorSpec.of_vectors("SoccerTwos", (264, 72), (3, 3, 3))
ELO = (1200.0, 1250.5, 1325.0)


def policy_weights(seed: int = 0, spec: BehaviorSpec = SPEC) -> dict[str, np.ndarray]:
    """A policy of 8 hidden units that no training has touched. In SoccerTwos it runs at the ball where it sees it,
    which ends most matches in seconds; seeds differ in what else it does."""
    rng = np.random.default_rng(seed)
    shapes = {"layer0": (8, sum(spec.observation_sizes)), "branch0": (3, 8), "branch1": (3, 8), "branch2": (3, 8)}
    weights = {f"{name}_weight": rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    weights |= {f"{name}_bias": np.zeros(shape[0], np.float32) for name, shape in shapes.items()}
    if spec == SPEC:
        _chase(weights)
    return weights


def _chase(weights: dict[str, np.ndarray]) -> None:
    """Forward, and round to where rays of the newest frame meet the ball: ahead, then right and left in turn."""
    for name in ("layer0_weight", "branch2_weight"):
        weights[name] *= 0.1
    ball = 2 * 11 * 8 + 8 * np.arange(11)  # of three frames of 11 rays, each of 6 tags, nothing and how far
    for unit, rays in enumerate((ball[1::2], ball[2::2], ball[:1])):
        weights["layer0_weight"][unit, rays] = 3.0
    weights["branch2_weight"][[2, 1, 0], [0, 1, 2]] = 4.0
    weights["branch0_bias"][1] = weights["branch1_bias"][0] = 3.0
    weights["branch2_bias"][1] = 0.5


def policy_model(seed: int = 0, spec: BehaviorSpec = SPEC) -> bytes:
    """The file of that policy."""
    data: bytes = mlp_policy(policy_weights(seed, spec), spec).SerializeToString()
    return data


def make_run(folder: Path, seed: int = 0) -> Path:
    """Write the run and return its folder."""
    configuration = yaml.safe_dump({"behaviors": {"SoccerTwos": {"trainer_type": "poca", "max_steps": 3000000}}})
    provenance = Provenance("SoccerTwos", "poca", 3000000, 90.0, 1325.0, {"random": 0.75})
    write_bundle(folder, {"SoccerTwos": policy_model(seed)}, {"SoccerTwos": SPEC}, configuration, provenance)
    refresh_card(folder)
    (folder / "SoccerTwos").mkdir()
    for steps in (1000000, 2000000):
        (folder / "SoccerTwos" / f"SoccerTwos-{steps}.onnx").write_bytes(policy_model(seed + steps))
    (folder / "SoccerTwos" / "checkpoint.pt").write_bytes(b"PK not opened by anybody")
    (folder / "SoccerTwos" / "snapshots").mkdir()
    (folder / "SoccerTwos" / "snapshots" / "snapshot-00001.npz").write_bytes(b"an opponent of self-play")
    (folder / "run_logs").mkdir()
    (folder / "run_logs" / "training_status.json").write_text(json.dumps({"SoccerTwos": {"elo": 1325.0}}))
    write_events(folder / "SoccerTwos", "Self-play/ELO", ELO)
    return folder


def write_events(folder: Path, tag: str, values: tuple[float, ...]) -> None:
    """TensorBoard events: one value of `tag` per million steps."""
    with SummaryWriter(str(folder)) as writer:
        writer.add_text("Hyperparameters", "something that is no curve")
        for i, value in enumerate(values, start=1):
            content = summary.scalar("value", value)
            content.value[0].tag = tag
            writer.file_writer.add_summary(content, i * 1000000)
