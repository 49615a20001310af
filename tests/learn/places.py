"""Where the tests of torch's path compute: on the device that PALUS_TEST_DEVICE names, without it on the CPU.

`cuda` is a GPU. `elsewhere` is none: torch's spare device, computed by elsewhere.cpp, which refuses what a GPU refuses.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import types
from pathlib import Path

import torch

from palus.nn.matmul import MatmulPath
from palus.nn.place import Placement

COMPILER = shutil.which("c++")
LIBRARIES = "-ltorch_cpu", "-ltorch", "-lc10"


def elsewhere() -> torch.device:
    """Compile and load the device, once in a process; torch keeps it until the process ends."""
    home, source = Path(torch.__file__).parent, Path(__file__).with_name("elsewhere.cpp")
    there = types.ModuleType("torch.elsewhere")  # what torch asks for when it names the device
    there.is_available, there.device_count, there.current_device = (lambda: True), (lambda: 1), (lambda: 0)
    there._lazy_init, there._is_in_bad_fork, there.manual_seed_all = (
        (lambda: None),
        (lambda: False),
        (lambda seed: None),
    )
    torch.utils.rename_privateuse1_backend("elsewhere")
    torch._register_device_module("elsewhere", there)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "elsewhere.so"
        headers = (f"-isystem{home / path}" for path in ("include", "include/torch/csrc/api/include"))
        words = ["-std=c++20", "-O0", "-fPIC", "-shared", *headers, str(source), f"-L{home / 'lib'}", *LIBRARIES]
        subprocess.run([str(COMPILER), *words, "-o", str(made)], check=True)
        torch.ops.load_library(str(made))
    return torch.device("elsewhere", 0)


def _named(name: str) -> Placement:
    if name.startswith("cuda"):
        MatmulPath("highest", 0.0, 0.0).activate(torch.device(name))  # torch by itself rounds in convolutions
    return Placement(elsewhere() if name == "elsewhere" else torch.device(name), compiled=False)


HERE = _named(os.environ.get("PALUS_TEST_DEVICE", "cpu"))
