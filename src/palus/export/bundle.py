"""The contract between training and everything that plays: a folder that runs without torch.

<Behavior>.onnx       the policy        configuration.yaml   the resolved run file
README.md             the model card    bundle.json          what a program wants to know (schema below)

An agent of a game of palus's own gets its card when it is published, since `palus enjoy` measures it afterwards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from palus import __version__
from palus.config.run_file import DEFAULT_GAME
from palus.files import write_bytes, write_text
from palus.ratings.interval import wilson
from palus.types import BehaviorSpec

SCHEMA = 1

CARD_MARK = "# Written by palus at every checkpoint and push. Delete this line and palus keeps your text."
"""A comment in the front matter of every README.md that palus may write anew."""


@dataclass(frozen=True)
class Provenance:
    """Where a policy comes from.

    results: opponent -> share of points, as last evaluated, over so many mirrored pairs each.
    """

    env_id: str
    trainer_type: str
    steps: int
    wall_seconds: float
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
    first model's path, None where it is missing. A README.md without `CARD_MARK` belongs to the user and stays.
    """
    first = next(iter(specs))
    details = {
        "observation_sizes": list(specs[first].observation_sizes),
        "branches": list(specs[first].branches),
        "sha256": hashlib.sha256(models[first]).hexdigest() if first in models else None,
    }
    write_text(folder / "configuration.yaml", configuration)
    _write_facts(folder, first, details, provenance)
    if provenance.env_id == DEFAULT_GAME:  # other games' agents get their card when they are measured and published
        _write_card(folder, first, provenance)
    for name, data in models.items():
        write_bytes(folder / f"{name}.onnx", data)
    return folder / f"{first}.onnx" if first in models else None


def record_results(folder: Path, results: Mapping[str, float], pairs: int) -> None:
    """Put a measurement of the policy as it lies there into its bundle: bundle.json, and the card that follows from it.

    results: opponent -> share of points over `pairs` mirrored pairs. Raises StorageError.
    """
    measured = {"results": dict(results), "result_pairs": pairs}
    facts = json.loads((folder / "bundle.json").read_text("utf-8")) | measured
    write_text(folder / "bundle.json", json.dumps(facts, indent=2) + "\n")
    _write_card(folder, facts["behavior"], Provenance(**{part.name: facts[part.name] for part in fields(Provenance)}))


def _write_card(folder: Path, behavior: str, provenance: Provenance) -> None:
    """README.md, unless somebody made it theirs."""
    readme = folder / "README.md"
    if not readme.exists() or CARD_MARK in readme.read_text("utf-8", errors="replace"):
        write_text(readme, _model_card(behavior, provenance))


def _write_facts(folder: Path, behavior: str, details: Mapping[str, object], provenance: Provenance) -> None:
    facts = {"schema": SCHEMA, "palus_version": __version__, "behavior": behavior, **details, **asdict(provenance)}
    write_text(folder / "bundle.json", json.dumps(facts, indent=2) + "\n")


def share_text(share: float, pairs: int | None) -> str:
    """A share of points with its 95 % interval and the number of mirrored pairs, where that is known."""
    if not pairs:
        return f"{share:.1%}"
    low, high = wilson(share, 2 * pairs)
    return f"{share:.1%} ({100 * low:.0f} to {100 * high:.0f} %, {pairs} mirrored pairs)"


def _model_card(behavior: str, p: Provenance) -> str:
    tags = (p.env_id, "deep-reinforcement-learning", "reinforcement-learning", f"ML-Agents-{p.env_id}")
    front = "\n".join(["---", CARD_MARK, "library_name: ml-agents", "tags:", *(f"- {tag}" for tag in tags), "---"])
    rating = "" if p.elo is None else f" Its self-play rating was {p.elo:.0f}."
    rows = "".join(f"| {name} | {share_text(score, p.result_pairs)} |\n" for name, score in p.results.items())
    table = f"\n| opponent | share of points |\n|---|---|\n{rows}" if rows else ""
    return f"""{front}

# A **{p.trainer_type}** team for **{p.env_id}**

Trained with palus {__version__} for {p.steps:,} steps in {p.wall_seconds / 60:.1f} minutes.{rating}
{table}
Watch it play against the house bot:

    palus match . goalie-striker --pairs 20 --replay match.replay && palus watch match.replay

`{behavior}.onnx` has ML-Agents' inputs and outputs and drops into a Unity scene as it is.
"""
