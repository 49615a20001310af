"""Where a network's numbers lie, and which of two ways computes with them: Numba's kernels or torch's operators.

A CPU has both, and Numba's are faster there; a GPU has torch's alone. `place_of` is where it is decided, for all
kernels: those of losses, returns and the optimiser stand in one table (`palus.learn.kernels`), those of attention and
of observations beside each other in their modules.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from palus.errors import ConfigError
from palus.types import AnyArray

KEY = "torch_settings.device"
CACHED_ROWS = 2048
"""Rows of a pass outside of the update: enough for full speed, and on a CPU few enough to stay in its cache."""
DEVICE_ROWS, DEVICE_PICTURES = 65536, 8192
"""The same on a device, where fewer passes are fewer launches: of vectors, and where there are pictures."""


@dataclass(frozen=True)
class Placement:
    """device: where tensors lie. compiled: Numba's kernels compute, which take a CPU; without it torch's operators do,
    on any device, and read nothing back amid an update."""

    device: torch.device
    compiled: bool

    def tensor(self, array: AnyArray) -> Tensor:
        """An array there; on the CPU it is the array's own memory.

        From `zeros` the copy runs on while the CPU does: who writes to the array again has waited for a result of it.
        """
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    @property
    def captures(self) -> bool:
        """Whether work there can be replayed as a graph (`palus.nn.captured`)."""
        return self.device.type == "cuda"

    def settle(self) -> None:
        """Wait for all work on it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def queue_apart(self) -> None:
        """Have what this thread asks for from now on done beside what others ask for, not behind it."""
        if self.device.type == "cuda":
            torch.cuda.set_stream(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]

    def pin(self, array: AnyArray) -> Callable[[], None]:
        """Let a CUDA device read memory that is there already without the CPU, until what this returns is called,
        before the memory goes. Without CUDA, or where it cannot, nothing changes."""
        if self.device.type != "cuda":
            return lambda: None
        driver, first = torch.cuda.cudart(), array.ctypes.data  # type: ignore[no-untyped-call]
        with torch.cuda.device(self.device):
            if int(driver.cudaHostRegister(first, array.nbytes, 0)):
                with suppress(RuntimeError):  # the next call is told of it
                    torch.zeros(1, device=self.device)
                return lambda: None
        return lambda: driver.cudaHostUnregister(first)

    def rows(self, pictures: bool) -> int:
        """Rows of a pass outside of the update."""
        return CACHED_ROWS if self.compiled else DEVICE_PICTURES if pictures else DEVICE_ROWS

    def zeros(self, shape: tuple[int, ...], dtype: str | type) -> AnyArray:
        """An array to copy from: where the device is CUDA's in pinned memory, which it reads without the CPU."""
        if self.device.type != "cuda":
            return np.zeros(shape, dtype)
        kind = torch.from_numpy(np.zeros(0, dtype)).dtype
        return torch.zeros(shape, dtype=kind, pin_memory=True).numpy()


CPU = Placement(torch.device("cpu"), compiled=True)


def place_of(setting: str | None) -> Placement:
    """The place that `torch_settings.device` names: `cpu` (or None), `cuda`, `cuda:1`, `mps`.

    Raises ConfigError for any other word, and for a device that is not there.
    """
    try:
        device = torch.device("cpu" if setting is None else setting)
    except RuntimeError:
        device = torch.device("meta")
    if device.type == "cpu" and not device.index:
        return CPU
    missing = _missing(device)
    if missing:
        raise ConfigError(f"{KEY} {setting}: {missing}, or remove the key to train on the CPU")
    return Placement(device, compiled=False)


def _missing(device: torch.device) -> str:
    """What is missing for a device, as a part of a sentence; empty where it is there."""
    if device.type == "mps":
        if torch.backends.mps.is_available():
            return ""
        return f"torch {torch.__version__} finds no GPU of Apple's here; it takes an Apple chip and macOS"
    if device.type != "cuda":
        return "no device that palus computes on; use cpu, cuda, cuda:1 (the second of several), or mps"
    if torch.version.cuda is None:
        return f"the installed torch {torch.__version__} was built without CUDA; install a build with it"
    if not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} finds no GPU of NVIDIA's that works; see whether nvidia-smi shows one, and "
            f"whether its driver is new enough for CUDA {torch.version.cuda}"
        )
    count = torch.cuda.device_count()
    if (device.index or 0) >= count:
        there = "cuda:0 alone" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        return f"torch finds {there}; name one of these"
    return ""
