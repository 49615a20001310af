"""Short runs end in the bits that are recorded: what a rebuild of the training system has to keep.

Each case is one `palus train`, in plain fp32 and on one thread where it does not say otherwise. Its record in
bits.json: the steps, the rating, a hash of every number that the learners hold (weights, Adam's moments, normalisers),
and a hash of the weights in the ONNX file.

Float sums depend on the processor and on the compilers, so records belong to a kind of machine. Elsewhere a case runs
twice, has to repeat itself, and then skips. A commit that changes bits on purpose says why, and records them anew:

    PALUS_RECORD_BITS=1 .venv/bin/pytest tests/test_bits.py [-k CASE]
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx.numpy_helper
import pytest
import torch
import yaml
from typer.testing import CliRunner

import machine
from palus.cli import app
from palus.nn import int16
from palus.run.folder import RunFolder

Json = dict[str, Any]

RECORDS = Path(__file__).with_name("bits.json")
SOCCER = {
    "hyperparameters": {"buffer_size": 512, "batch_size": 256},
    "max_steps": 1536,
    "checkpoint_interval": 1024,
    "self_play": {
        "save_steps": 500,
        "team_change": 500,
        "swap_steps": 200,
        "window": 3,
        "play_against_latest_model_ratio": 0.5,
    },
}
TOY = {
    "hyperparameters": {"buffer_size": 256, "batch_size": 64, "learning_rate": 0.01},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "max_steps": 768,
    "checkpoint_interval": 512,
}
APPO = {
    "trainer_type": "appo",
    "hyperparameters": {"buffer_size": 256, "batch_size": 128, "learning_rate": 0.01, "num_epoch": 2},
    "network_settings": {
        "hidden_units": 16,
        "num_layers": 1,
        "core_size": 16,
        "image_units": 16,
        "encoder": "resnet_impala",
    },
    "time_horizon": 8,
    "max_steps": 2048,
    "checkpoint_interval": 1024,
}
DOOM = {
    "hyperparameters": {"buffer_size": 128, "batch_size": 64},
    "network_settings": {"image_units": 64, "core_size": 64},
    "time_horizon": 16,
    "max_steps": 1536,
    "checkpoint_interval": 1024,
}
NORMALIZED = {"network_settings": {"hidden_units": 16, "num_layers": 1, "normalize": True}}
EIGHT = {"num_matches": 8, "baseline_interval": 0}

CASES: dict[str, tuple[str, str, Json, Json]] = {
    "debug": ("debug", "SoccerTwos", {"max_steps": 7000}, {}),
    "soccer-ppo": ("soccertwos-ppo", "SoccerTwos", SOCCER, EIGHT),
    "soccer-poca": ("soccertwos", "SoccerTwos", SOCCER, EIGHT),
    "soccer-int16": ("soccertwos", "SoccerTwos", SOCCER, EIGHT | {"matmul": "int16", "threads": 2}),
    "soccer-strong": (
        "soccertwos-strong",
        "SoccerTwos",
        {"hyperparameters": {"buffer_size": 2048, "batch_size": 1024}, "max_steps": 4096},
        {"num_matches": 32, "baseline_interval": 0},
    ),
    "doom-basic": ("doom-basic", "doom_basic", DOOM, {"sampling": {"workers": 2}, "acting": "exact"}),
    "rescue-ppo": ("", "RescueToy", TOY | NORMALIZED | {"trainer_type": "ppo"}, EIGHT | {"env": "RescueToy"}),
    "rescue-poca": ("", "RescueToy", TOY | {"trainer_type": "poca"}, EIGHT | {"env": "RescueToy"}),
    "duel-two-threads": (
        "",
        "DuelToy",
        TOY | {"trainer_type": "ppo", "self_play": {"save_steps": 200, "team_change": 300, "swap_steps": 50}},
        EIGHT | {"env": "DuelToy", "threads": 2},
    ),
    "counting": (
        "",
        "Counting",
        APPO,
        {
            "env": "counting_game:CountingGame",
            "env_options": {"agents": 2, "length": 7, "truncate": True, "leaves": {"1": 3}},
            "sampling": {"workers": 0},
        },
    ),
    "recall-self-play": (
        "",
        "Recall",
        APPO | {"self_play": {"save_steps": 500, "window": 2}},
        {"env": "sampled:RecallGame", "env_options": {"agents": 2}, "sampling": {"workers": 0}},
    ),
    "recall-population": (
        "",
        "Recall",
        APPO | {"population": {"size": 2, "period": 256, "start": 512, "mutation_rate": 1.0, "replace_gap": 0.0}},
        {"env": "sampled:RecallGame", "sampling": {"workers": 0}},
    ),
}
"""Name -> preset (empty: none), behavior, its settings, those of `palus`."""


def train(case: str, results: Path) -> Json:
    """`palus train` of a case into an empty folder; returns what is recorded of it."""
    preset, behavior, settings, palus = CASES[case]
    changes = {"behaviors": {behavior: settings}, "palus": {"matmul": "highest", "threads": 1, **palus}}
    file = results.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(changes))
    words = [preset, *dotted(changes)] if preset else [str(file), "--trust", "counting_game", "--trust", "sampled"]
    words = ["train", *words, "--results-dir", str(results), "--run-id", case, "--seed", "5"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    facts = json.loads((results / case / "bundle.json").read_text())
    return {
        "steps": facts["steps"],
        "elo": facts["elo"],
        "learner": of_learner(RunFolder(results / case, [behavior]).load()),
        "onnx": of_onnx(results / case / f"{behavior}.onnx"),
    }


def dotted(tree: Json, prefix: str = "") -> Iterator[str]:
    """A tree as overrides of the command line."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value)}"


def of_learner(checkpoint: Json) -> str:
    """The hash of all floats in the learners' part of a checkpoint, sorted by their bits.

    Names, and the order and the cut of vectors, do not count: a rebuild may change those. Every bit of a number does.
    """
    found = list(floats(checkpoint["learners"] if "learners" in checkpoint else checkpoint["learner"]))
    bits = [
        np.concatenate([x.view(f"u{size}").ravel() for x in found if x.itemsize == size] or [[]]) for size in (4, 8)
    ]
    return sha256(*(np.sort(numbers).tobytes() for numbers in bits))


def floats(tree: Any) -> Iterator[np.ndarray]:
    """All arrays of floats in a checkpoint's tree."""
    if isinstance(tree, dict | list | tuple):
        for branch in tree.values() if isinstance(tree, dict) else tree:
            yield from floats(branch)
    elif isinstance(tree, np.ndarray | torch.Tensor) and np.asarray(tree).dtype.kind == "f":
        yield np.ascontiguousarray(tree)


def of_onnx(file: Path) -> str:
    """The hash of the float arrays in a model file, by shape and value; single numbers are the graph's, not weights."""
    arrays = [onnx.numpy_helper.to_array(initializer) for initializer in onnx.load(file).graph.initializer]
    return sha256(*sorted(repr(x.shape).encode() + x.tobytes() for x in arrays if x.dtype.kind == "f" and x.size > 1))


def sha256(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def machine_kind(*packages: str) -> str:
    """What decides the bits of float sums: the processor, and the versions of what computes them."""
    found = machine.describe()
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    model = " ".join(part or "-" for part in found["cpu_family_model"])
    return f"{found['cpu']}, family and model {model} ({' '.join(found['cpu_flags'])}); {versions}"


@pytest.mark.parametrize("case", CASES)
def test_a_run_ends_in_the_recorded_bits(case: str, tmp_path: Path) -> None:
    packages = ["torch", "numba", "numpy", *(["vizdoom"] if case.startswith("doom") else [])]
    if "vizdoom" in packages and importlib.util.find_spec("vizdoom") is None:
        pytest.skip("needs vizdoom: pip install 'palus[doom]'")
    if case.endswith("int16") and not int16.AVAILABLE:
        pytest.skip("such products take a CPU with AVX2")
    records: dict[str, Json] = json.loads(RECORDS.read_text())
    kind, found = machine_kind(*packages), train(case, tmp_path / "first")
    recorded = records.get(kind, {}).get(case)
    anew = bool(os.environ.get("PALUS_RECORD_BITS"))
    if recorded is not None and not anew:
        assert found == recorded
        return
    assert train(case, tmp_path / "second") == found
    if not anew:
        pytest.skip(f"repeats itself; nothing is recorded for {case} on {kind}")
    records.setdefault(kind, {})[case] = found
    RECORDS.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
