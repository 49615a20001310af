"""Agents that Sample Factory trained: an experiment's folder, as trained or as downloaded, to our settings and weights.

Only the configuration and the tensors are read; nothing in the folder is executed. Names of the weights are the same
here and there, so mapping them is a choice of keys.
Source: the layout of Sample Factory 2.0 to 2.1.1 experiments.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from palus.config.appo import AppoMemory, AppoNetworkSettings
from palus.errors import CheckpointError
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
    arrays: state dict. steps: engine frames it was trained for. metric: best score so far in training, None unknown.
    """

    env_id: str
    env_options: Mapping[str, Any]
    settings: AppoNetworkSettings
    arrays: Mapping[str, AnyArray]
    steps: int
    metric: float | None


def is_sf_experiment(folder: Path) -> bool:
    """Whether the folder looks like an experiment of Sample Factory."""
    return any((folder / name).is_file() for name in CONFIGURATIONS) and any(folder.glob("checkpoint_p*"))


def read_sf_agent(folder: Path, kind: Literal["latest", "best"] = "latest", policy: int = 0) -> SfAgent:
    """The agent in an experiment's folder.

    kind: the newest checkpoint, or the best one where there is any. policy: which of several trained together.
    Raises CheckpointError when something is missing, damaged, or of a kind that our networks do not have.
    """
    configuration = _configuration(folder)
    path = _checkpoint(folder / f"checkpoint_p{policy}", kind)
    content = read_tensors(path)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise CheckpointError(f"{path}: holds no `model`; expected a checkpoint of Sample Factory 2")
    tensors = {str(name): value for name, value in content["model"].items() if isinstance(value, torch.Tensor)}
    arrays = {_our_name(name): array_of(tensor, path) for name, tensor in tensors.items()}
    best = content.get("best_performance")
    try:
        return SfAgent(
            env_id=str(configuration["env"]),
            env_options=_env_options(configuration),
            settings=_settings(configuration, folder),
            arrays=arrays,
            steps=int(content.get("env_steps") or 0),
            metric=float(best) if isinstance(best, int | float) and best > -1e8 else None,
        )
    except (TypeError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{folder}: its options are not Sample Factory's ({reason}); fetch it again") from error


class _NumberType:
    """A type of numpy's numbers in the making: pickles set its byte order after making it."""

    def __init__(self, code: str = "", *_: object) -> None:
        if code not in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"):
            raise pickle.UnpicklingError(f"numbers of type {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


def _number(kind: _NumberType, data: bytes = b"") -> float:
    found: float = np.frombuffer(data, kind.dtype, 1)[0].item()
    return found


_NUMBERS: list[Any] = [
    (_NumberType, "numpy.dtype"),
    (_number, "numpy.core.multiarray.scalar"),
    (_number, "numpy._core.multiarray.scalar"),
]
"""All that a checkpoint may name besides tensors, and what it gets: its best score is a number of numpy's."""


def read_tensors(path: Path) -> Any:
    """The object in a file of `torch.save`: dicts, lists, numbers, text and tensors; nothing in it is imported or run.

    Raises CheckpointError when the file is damaged, older than torch 1.6, or holds anything besides these.
    """
    try:
        data = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if not data.startswith(b"PK") or size > len(data):  # torch stores without compression: it would swell
            raise zipfile.BadZipFile(f"{size} bytes in {len(data)}")
        with safe_globals(_NUMBERS):
            foreign = get_unsafe_globals_in_checkpoint(io.BytesIO(data))
            content = None if foreign else torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile file makes its readers raise almost anything
        raise CheckpointError(
            f"{path}: not a checkpoint of torch 1.6 or later, or damaged ({type(error).__name__}); fetch it again"
        ) from error
    if foreign:
        raise CheckpointError(
            f"{path}: not read, since it asks for {', '.join(foreign)}; tensors and numbers are all that palus takes "
            "from a stranger's file"
        )
    return content


def array_of(tensor: torch.Tensor, path: Path) -> AnyArray:
    """A copy of its numbers. Raises CheckpointError for other kinds, and for more numbers than the file holds."""
    try:
        held = tensor.untyped_storage().nbytes() // tensor.element_size()
        array: AnyArray = tensor.detach().numpy()
    except (RuntimeError, TypeError) as error:
        raise CheckpointError(f"{path}: a tensor of {tensor.layout} and {tensor.dtype}; expected plain ones") from error
    if array.size > held:
        raise CheckpointError(f"{path}: a tensor of shape {array.shape} has {held} numbers; fetch it again")
    return array.copy()


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
