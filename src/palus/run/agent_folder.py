"""A trained agent as one file: weights, what it sees and does, its network's settings, how long it trained.

<results_dir>/<run_id>/<Behavior>/policy.npz is the newest, best.npz the one with the best score in training; a
population keeps them in policy_0/, policy_1/, ... Arrays and JSON only: reading one executes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from palus.config.network import NetworkSettings
from palus.config.retired import modern_network
from palus.errors import CheckpointError
from palus.files import read_arrays, write_atomically
from palus.types import ActionPart, ActionSpec, AnyArray, Continuous, Discrete, GameSpec, ObservationSpec

FILES = {"latest": "policy.npz", "best": "best.npz"}
_META = "__meta__"


@dataclass(frozen=True)
class Agent:
    """steps: engine frames of training. metric: mean of the run's best_metric over its last episodes, None without."""

    spec: GameSpec
    settings: NetworkSettings
    arrays: Mapping[str, AnyArray]
    steps: int
    metric: float | None


def write_agent(path: Path, agent: Agent) -> None:
    """Write one .npz file atomically. Raises StorageError; a file that was there stays."""
    meta = {
        "spec": _tree(agent.spec),
        "network_settings": agent.settings.model_dump(mode="json"),
        "steps": agent.steps,
        "metric": agent.metric,
    }
    content: dict[str, Any] = {_META: np.array(json.dumps(meta)), **agent.arrays}
    write_atomically(path, lambda f: np.savez(f, **content))


def read_agent(folder: Path, kind: Literal["latest", "best"] = "latest", policy: int | None = None) -> Agent:
    """The agent of a run's folder. policy: of a population; None takes the one with the best score.

    Raises CheckpointError when there is none, or when its file cannot be read.
    """
    pattern = "policy_*" if policy is None else f"policy_{policy}"
    found = sorted([*folder.glob(f"*/{FILES[kind]}"), *folder.glob(f"*/{pattern}/{FILES[kind]}")])
    if not found:
        other = "; train on, or take the latest" if kind == "best" else "; train it first"
        raise CheckpointError(f"{folder}: no {kind} policy ({FILES[kind]}) in it{other}")
    return best_of([read_agent_file(path) for path in found])


def best_of(agents: Sequence[Agent]) -> Agent:
    """The one with the best score in training; the first among equals, and where nobody has a score."""
    return max(agents, key=lambda agent: -np.inf if agent.metric is None else agent.metric)


def read_agent_file(path: Path) -> Agent:
    """One .npz file. Raises CheckpointError when it is missing or no agent of palus."""
    try:
        arrays = read_arrays(path.read_bytes())
        meta = json.loads(str(arrays.pop(_META)))
        settings = NetworkSettings.model_validate(modern_network(meta["network_settings"]))
        return Agent(_spec(meta["spec"]), settings, arrays, int(meta["steps"]), meta["metric"])
    except Exception as error:  # a damaged zip raises almost anything
        raise CheckpointError(
            f"{path}: not an agent that palus wrote ({type(error).__name__}: {error}); train on with --resume to have "
            "it written again"
        ) from error


def _tree(spec: GameSpec) -> dict[str, Any]:
    """What an agent of a game with one behavior has to be told of it, as plain values."""
    facts = {name: getattr(spec, name) for name in ("env_id", "num_agents", "teams", "frameskip", "fps")}
    return {**facts, "observations": [asdict(o) for o in spec.observations], "actions": asdict(spec.actions)}


def _spec(tree: dict[str, Any]) -> GameSpec:
    """What `_tree` made of a specification."""
    observations = tuple(ObservationSpec(**o | {"shape": tuple(o["shape"])}) for o in tree["observations"])
    parts = tuple(_part(part) for part in tree["actions"]["parts"])
    rest = {name: tree[name] for name in ("env_id", "num_agents", "frameskip", "fps")}
    return GameSpec.alike(
        observations=observations,
        actions=ActionSpec(parts, tree["actions"].get("masked", False)),
        teams=tuple(tree["teams"]),
        **rest,
    )


def _part(tree: dict[str, Any]) -> ActionPart:
    return Discrete(**tree) if "choices" in tree else Continuous(**tree)
