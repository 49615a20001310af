"""The contract between training and everything that plays: a folder that runs without torch.

<Behavior>.onnx       the policy        configuration.yaml   the resolved run file
README.md             the model card    bundle.json          what a program wants to know (schema below)

Its card is written from bundle.json (`palus.hub.model_card`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from palus import __version__
from palus.files import write_bytes, write_text
from palus.types import BehaviorSpec

SCHEMA = 1
MAX_BYTES = 1 << 20
"""What is read of a bundle.json that may come from anywhere."""


@dataclass(frozen=True)
class Provenance:
    """Where a policy comes from.

    results: opponent -> share of points, as last evaluated, over so many mirrored pairs each. What is not known is None
    or empty.
    """

    env_id: str
    trainer_type: str | None = None
    steps: int | None = None
    wall_seconds: float | None = None
    elo: float | None = None
    results: Mapping[str, float] = field(default_factory=dict)
    result_pairs: int | None = None


def write_bundle(
    folder: Path,
    models: Mapping[str, bytes],
    specs: Mapping[str, BehaviorSpec],
    configuration: str,
    provenance: Provenance,
) -> Path | None:
    """Write or refresh a bundle; the models come last, so a folder with all of them is complete.

    models: behavior -> ONNX file; specs: behavior -> what it sees and does, the first one names the bundle. Returns the
    first model's path, None where it is missing.
    """
    first = next(iter(specs))
    facts = {
        "schema": SCHEMA,
        "palus_version": __version__,
        "behavior": first,
        "observation_sizes": list(specs[first].observation_sizes),
        "branches": list(specs[first].branches),
        "sha256": hashlib.sha256(models[first]).hexdigest() if first in models else None,
        **asdict(provenance),
    }
    write_text(folder / "configuration.yaml", configuration)
    write_text(folder / "bundle.json", json.dumps(facts, indent=2) + "\n")
    for name, data in models.items():
        write_bytes(folder / f"{name}.onnx", data)
    return folder / f"{first}.onnx" if first in models else None


def game_of_bundle(folder: Path) -> str | None:
    """The game that a bundle's policy was trained for, as its bundle.json says; None where that does not say."""
    file = folder / "bundle.json"
    try:
        facts = json.loads(file.read_bytes()) if file.is_file() and file.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    game = facts.get("env_id") if isinstance(facts, dict) else None
    return game[:100] or None if isinstance(game, str) else None


def record_results(folder: Path, results: Mapping[str, float], pairs: int) -> None:
    """Put a measurement of the policy as it lies there into its bundle.json.

    results: opponent -> share of points over `pairs` mirrored pairs. Raises StorageError.
    """
    measured = {"results": dict(results), "result_pairs": pairs}
    facts = json.loads((folder / "bundle.json").read_text("utf-8")) | measured
    write_text(folder / "bundle.json", json.dumps(facts, indent=2) + "\n")
