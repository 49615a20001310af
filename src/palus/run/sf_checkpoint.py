"""Agents that Sample Factory trained: an experiment's folder, as trained or as downloaded, to our settings and weights.

Only the configuration and the tensors are read; nothing in the folder is executed. Names of the weights are the same
here and there, so mapping them is a choice of keys.
Source: the layout of Sample Factory 2.0 to 2.1.1 experiments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from palus.config.appo import AppoMemory, AppoNetworkSettings
from palus.errors import CheckpointError
from palus.run.tensors import array_of, read_tensors
from palus.types import AnyArray

CONFIGURATIONS = ("config.json", "cfg.json")
"""The second name was in use until release 2.0.2."""
_NEWEST = re.compile(r"checkpoint_(\d+)_(\d+)\.pth")
_BEST = re.compile(r"best_(\d+)_(\d+)_.+_(-?[\d.]+)\.pth")

_DOOM_ENCODER = {
    "encoder.basic_encoder.": "encoder.encoders.obs.",
    "encoder.measurements_head.": "encoder.encoders.measurements.mlp_head.",
}


@dataclass(frozen=True)
class SfAgent:
    """An agent out of an experiment.

    env_id: as palus calls it, the same name for Doom. env_options: of the game's factory, as it was trained.
    arrays: state dict. steps: engine frames it was trained for.
    """

    env_id: str
    env_options: Mapping[str, Any]
    settings: AppoNetworkSettings
    arrays: Mapping[str, AnyArray]
    steps: int


def is_sf_experiment(folder: Path) -> bool:
    """Whether the folder looks like an experiment of Sample Factory."""
    return any((folder / name).is_file() for name in CONFIGURATIONS) and any(folder.glob("checkpoint_p*"))


def read_sf_agent(folder: Path, kind: Literal["latest", "best"] = "latest") -> SfAgent:
    """The agent in an experiment's folder, of several that trained together the first.

    kind: the newest checkpoint, or the best one where there is any.
    Raises CheckpointError when something is missing, damaged, or of a kind that our networks do not have.
    """
    configuration = _configuration(folder)
    path = _checkpoint(folder / "checkpoint_p0", kind)
    content = read_tensors(path)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise CheckpointError(f"{path}: holds no `model`; expected a checkpoint of Sample Factory 2")
    tensors = {str(name): value for name, value in content["model"].items() if isinstance(value, torch.Tensor)}
    arrays = {_our_name(name): array_of(tensor, path) for name, tensor in tensors.items()}
    try:
        return SfAgent(
            env_id=str(configuration["env"]),
            env_options=_env_options(configuration),
            settings=_settings(configuration, folder),
            arrays=arrays,
            steps=int(content.get("env_steps") or 0),
        )
    except (TypeError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{folder}: its options are not Sample Factory's ({reason}); fetch it again") from error


def _configuration(folder: Path) -> dict[str, Any]:
    path = next((folder / name for name in CONFIGURATIONS if (folder / name).is_file()), None)
    if path is None:
        raise CheckpointError(f"{folder}: no {CONFIGURATIONS[0]}; give an experiment's folder, train_dir/EXPERIMENT")
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); fetch the experiment again") from error
    if not isinstance(found, dict) or not isinstance(found.get("env"), str):
        raise CheckpointError(f"{path}: names no environment; expected the options of a Sample Factory experiment")
    return found


def _checkpoint(folder: Path, kind: Literal["latest", "best"]) -> Path:
    """The newest by its step numbers; for "best" the newest best one, and the newest of all where none was saved."""
    found = [(m, p) for p in folder.glob("*.pth") for m in [(_BEST if kind == "best" else _NEWEST).fullmatch(p.name)]]
    newest = max(((int(m[2]), int(m[1]), p) for m, p in found if m), default=None)
    if newest is not None:
        return newest[2]
    if kind == "best":
        return _checkpoint(folder, "latest")
    raise CheckpointError(f"{folder}: no checkpoint_STEP_FRAMES.pth; train or download the experiment again")


def _is_doom(configuration: Mapping[str, Any]) -> bool:
    """Whether it is an experiment of the ViZDoom family, whose options and encoder are its own."""
    return "res_w" in configuration and "res_h" in configuration


def _our_name(name: str) -> str:
    """Doom's encoder has names of its own; the generic encoder's are ours."""
    for theirs, ours in _DOOM_ENCODER.items():
        name = name.replace(theirs, ours)
    return name


def _env_options(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """What the game's factory is to be told, so that the agent sees and acts as in training."""
    options: dict[str, Any] = {"frameskip": int(configuration.get("env_frameskip", 1))}
    if _is_doom(configuration):
        options["resolution"] = (int(configuration["res_h"]), int(configuration["res_w"]))
        options["wide"] = bool(configuration.get("wide_aspect_ratio", False))
    return options


def _settings(configuration: Mapping[str, Any], folder: Path) -> AppoNetworkSettings:
    """Our words for the network. Raises CheckpointError for networks that cannot be expressed."""

    def get(key: str, default: Any) -> Any:
        return configuration.get(key, default)

    vector = [128, 128] if _is_doom(configuration) else list(get("encoder_mlp_layers", [512, 512]))
    image = list(get("encoder_conv_mlp_layers", [512]))
    if len(set(vector)) != 1 or len(set(image)) > 1:
        raise CheckpointError(f"{folder}: encoder layers {vector} and {image}; palus has one width for each kind")
    if float(get("obs_subtract_mean", 0.0)) != 0.0:
        raise CheckpointError(f"{folder}: obs_subtract_mean is not 0; palus divides images but subtracts nothing")
    names = get("normalize_input_keys", None)
    size, kind = int(get("rnn_size", 512)), get("rnn_type", "gru")
    memory = AppoMemory(
        kind=kind, memory_size=2 * size if kind == "lstm" else size, num_layers=int(get("rnn_num_layers", 1))
    )
    return AppoNetworkSettings(
        normalize=bool(get("normalize_input", True)),
        normalize_names=tuple(names) if names else None,
        hidden_units=vector[0],
        num_layers=len(vector),
        image_layers=len(image),
        image_units=image[0] if image else 512,
        image_scale=float(get("obs_scale", 1.0)),
        vis_encode_type=get("encoder_conv_architecture", "convnet_simple"),
        memory=memory if get("use_rnn", True) else None,
        decoder_layers=tuple(get("decoder_mlp_layers", [])),
        activation=get("nonlinearity", "elu"),
        adaptive_deviation=bool(get("adaptive_stddev", True)),
        initial_deviation=float(get("initial_stddev", 1.0)),
        tanh_scale=float(get("continuous_tanh_scale", 0.0)),
    )
