"""A trained policy as one file: weights, what it sees and does, its network's settings, and the ONNX model of itself.

<results_dir>/<run_id>/<Behavior>/policy.npz is the newest, best.npz the one with the best score in training, and
snapshots/snapshot-<id>.npz are the league's past. Several learners of a behavior keep theirs in policy_0/, policy_1/,
...; policy.npz above them is the best one's. Training and `palus enjoy` build the network from the settings and read
the arrays; the arena, which has no torch, plays the model.
Arrays, text and ONNX only: reading one executes nothing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import TypeAdapter

from palus.config.appo import AppoNetworkSettings
from palus.config.network import NetworkSettings
from palus.config.retired import modern_network
from palus.errors import CheckpointError, ModelError
from palus.files import read_arrays, write_atomically
from palus.nn.graph import game_facts
from palus.types import AnyArray, BehaviorSpec, GameSpec

if TYPE_CHECKING:
    from palus.nn.network import Network

FILES = {"latest": "policy.npz", "best": "best.npz"}
_META, _MODEL = "__meta__", "__model__"
_SPEC = TypeAdapter(BehaviorSpec)


@dataclass(frozen=True)
class PolicyFile:
    """behavior: its name in the run file. arrays: of `Network.acting_arrays`. model: ONNX, None where an encoder of
    one's own does not write itself. steps: trainer steps. metric: mean of the run's best_metric over its last episodes,
    None without. snapshot: id in the league, None outside of it."""

    behavior: str
    env_id: str
    spec: BehaviorSpec
    settings: NetworkSettings
    arrays: Mapping[str, AnyArray]
    model: bytes | None
    steps: int
    metric: float | None = None
    snapshot: int | None = None

    @classmethod
    def of(
        cls,
        network: Network,
        game: GameSpec,
        behavior: str,
        steps: int,
        metric: float | None = None,
        snapshot: int | None = None,
    ) -> PolicyFile:
        """A network as it is now. Raises ModelError when its weights are not finite."""
        arrays = network.arrays()
        model = network.onnx(game_facts(game), arrays).SerializeToString() if network.can_export else None
        own = network.acting_arrays(arrays)
        return cls(behavior, game.env_id, network.spec, network.settings, own, model, steps, metric, snapshot)


def write_policy(path: Path, policy: PolicyFile, *, forced: bool = True) -> None:
    """Write one .npz file atomically. forced: see `write_atomically`. Raises StorageError; a file that was there
    stays."""
    data = policy_bytes(policy)
    write_atomically(path, lambda file: file.write(data), forced=forced)


def policy_bytes(policy: PolicyFile) -> bytes:
    """The content of its file."""
    meta = {
        "behavior": policy.behavior,
        "env_id": policy.env_id,
        "spec": asdict(replace(policy.spec, reflection=None)),
        "network_settings": policy.settings.model_dump(mode="json"),
        "steps": policy.steps,
        "metric": policy.metric,
        "snapshot": policy.snapshot,
    }
    content: dict[str, Any] = {_META: np.array(json.dumps(meta)), **policy.arrays}
    if policy.model is not None:
        content[_MODEL] = np.frombuffer(policy.model, np.uint8)
    file = io.BytesIO()
    np.savez(file, **content)
    return file.getvalue()


def read_policy(path: Path) -> PolicyFile:
    """One .npz file. Raises CheckpointError when it is missing or no policy of palus."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); train on, or restore it") from error
    return parse_policy(data, str(path))


def parse_policy(data: bytes, origin: str) -> PolicyFile:
    """The content of a file. origin: how messages call it.

    Files of agents from before one network served all trainers are read too; they hold no model.
    Raises CheckpointError when it is no policy of palus.
    """
    try:
        arrays = read_arrays(data)
        if _META not in arrays and "snapshot" in arrays:
            raise ValueError("weights without an ONNX model, as older versions wrote; play the run's .onnx")
        meta = json.loads(str(arrays.pop(_META)))
        model = arrays.pop(_MODEL).astype(np.uint8).tobytes() if _MODEL in arrays else None
        tree, network = meta["spec"], meta["network_settings"]
        # Files without the key are older than it and hold an `appo` policy.
        kind = NetworkSettings if "encoding" in network else AppoNetworkSettings
        return PolicyFile(
            behavior=str(meta.get("behavior", "")),
            env_id=str(meta["env_id"] if "env_id" in meta else tree["env_id"]),
            spec=_SPEC.validate_python({"name": ""} | tree),
            settings=kind.model_validate(modern_network(network)),
            arrays=arrays,
            model=model,
            steps=int(meta["steps"]),
            metric=meta["metric"],
            snapshot=meta.get("snapshot"),
        )
    except Exception as error:  # a damaged zip raises almost anything
        raise CheckpointError(
            f"{origin}: not a policy that palus wrote ({type(error).__name__}: {error}); train on with --resume to "
            "have it written again"
        ) from error


def find_policies(folder: Path, kind: Literal["latest", "best"] = "latest") -> dict[str, PolicyFile]:
    """The policy of every behavior in a run's folder; of a population the one with the best score.

    Raises CheckpointError when there is none, or when a file cannot be read.
    """
    found: dict[str, list[PolicyFile]] = {}
    for path in sorted([*folder.glob(f"*/{FILES[kind]}"), *folder.glob(f"*/policy_*/{FILES[kind]}")]):
        found.setdefault(path.relative_to(folder).parts[0], []).append(read_policy(path))
    if not found:
        other = "; train on, or take the latest" if kind == "best" else "; train it first"
        raise CheckpointError(f"{folder}: no {kind} policy ({FILES[kind]}) in it{other}")
    return {behavior: max(policies, key=_score) for behavior, policies in found.items()}


def _score(policy: PolicyFile) -> float:
    return -np.inf if policy.metric is None else policy.metric


def model_in(data: bytes, origin: str) -> bytes:
    """The ONNX model in a policy's file. origin: how messages call it. Raises ModelError when there is none."""
    try:
        policy = parse_policy(data, origin)
    except CheckpointError as error:
        raise ModelError(str(error)) from error
    if policy.model is None:
        raise ModelError(
            f"{origin}: holds weights, but no ONNX model, which is what is played: an older palus wrote it, or its "
            "encoder is one of your own without a method onnx; train on with --resume to have it written again"
        )
    return policy.model
