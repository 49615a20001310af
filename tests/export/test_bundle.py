"""The folder of a policy: what its bundle.json says, and in which order it is written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from palus import __version__
from palus.errors import StorageError
from palus.export import bundle
from palus.export.bundle import Provenance, record_results, write_bundle
from palus.types import BehaviorSpec

SPECS = {
    "Goalie": BehaviorSpec.of_vectors("Goalie", (4, 2), (3, 5)),
    "Striker": BehaviorSpec.of_vectors("S", (7,), (2,)),
}
FACTS = {
    "schema": 1, "palus_version": __version__, "behavior": "Goalie", "observation_sizes": [4, 2], "branches": [3, 5],
    "sha256": hashlib.sha256(b"of the goalie").hexdigest(), "env_id": "Game", "trainer_type": "ppo", "steps": 9,
    "wall_seconds": None, "elo": None, "results": {}, "result_pairs": None,
}  # fmt: skip


def facts_in(folder: Path) -> object:
    return json.loads((folder / "bundle.json").read_text("utf-8"))


def test_a_bundle_tells_of_its_first_behavior_and_takes_results_later(tmp_path: Path) -> None:
    models = {"Striker": b"of the striker", "Goalie": b"of the goalie"}
    assert (
        write_bundle(tmp_path, models, SPECS, "behaviors: {}", Provenance("Game", "ppo", 9)) == tmp_path / "Goalie.onnx"
    )
    assert facts_in(tmp_path) == FACTS
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.onnx")} == {
        "Goalie.onnx": b"of the goalie", "Striker.onnx": b"of the striker"
    }  # fmt: skip
    record_results(tmp_path, {"random": 0.75}, 100)
    assert facts_in(tmp_path) == FACTS | {"results": {"random": 0.75}, "result_pairs": 100}
    assert write_bundle(tmp_path, {"Striker": b""}, SPECS, "behaviors: {}", Provenance("Game", "ppo", 9)) is None
    assert facts_in(tmp_path) == FACTS | {"sha256": None}


def test_a_folder_with_a_model_has_all_that_tells_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the models of a run finds no bundle.json of a former one beside them."""

    def full(path: Path, text: str) -> None:
        raise StorageError(f"{path}: the disk is full")

    monkeypatch.setattr(bundle, "write_text", full)
    with pytest.raises(StorageError, match="the disk is full"):
        write_bundle(tmp_path, {"Goalie": b"new"}, SPECS, "behaviors: {}", Provenance("Game"))
    assert not list(tmp_path.iterdir())
