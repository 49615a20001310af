"""Which way matrix products are computed: measured at the start of a run, because no rule of thumb holds on all CPUs.

torch's own "medium" goes through oneDNN: on AMD CPUs with AVX-512 that is twice as fast as its "highest" at the same
error, on CPUs with AMX it rounds inputs to bfloat16, elsewhere it changes nothing. So `highest` takes oneDNN wherever
that keeps fp32 (`exact_setting`). bfloat16 is the fastest path where the CPU has instructions for it and far the
slowest where it has none: there a learner's widest products may be those of whole numbers (`palus.nn.int16`).
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from palus.errors import ConfigError
from palus.nn import int16
from palus.nn.place import CPU

ROWS, WIDTH = 2048, 512
PATHS = ("highest", "medium", "bf16", "int16")
SLOWER = 1.25
"""A path that is asked for and slower than another one by this is worth a warning."""
EXACT_ERROR = 1e-5
"""A path whose relative error stays below this counts as fp32."""
ROUNDED = 1.2
"""So many times faster than the best in fp32 a path that rounds to bfloat16 has to be; `int16` than that one, which has
less to convert. Over fp32 it has to be faster at all: it rounds ten times less, and a choice has to last."""
HOPELESS = 0.2
"""A path that is slower than this, relative to plain fp32, is measured once: bfloat16 is where there are no units for
it, and takes half a second each time."""


@dataclass(frozen=True)
class MatmulPath:
    """One way to compute products. gflops: its measured rate (forward and weight gradient); error: relative to fp64."""

    name: str
    gflops: float
    error: float

    @property
    def dtype(self) -> torch.dtype:
        """The type of weights and activations on this path."""
        return torch.bfloat16 if self.name == "bf16" else torch.float32

    def activate(self, device: torch.device = CPU.device, exact: str | None = None) -> None:
        """Make torch use this path for fp32 products on that device from now on, convolutions and memories of CUDA's
        among them. exact: in place of `exact_setting`."""
        exact = (exact or exact_setting()) if device.type == "cpu" else "highest"
        torch.set_float32_matmul_precision("medium" if self.name == "medium" else exact)
        torch.backends.cudnn.allow_tf32 = self.name == "medium"  # torch's own default rounds them


@cache
def exact_setting() -> str:
    """torch's setting with the fastest products that keep fp32: by the CPU alone, not by a clock, for the same bits."""
    previous = torch.get_float32_matmul_precision()
    generator = torch.Generator().manual_seed(0)
    try:
        torch.set_float32_matmul_precision("medium")
        for rows, inner, columns in ((ROWS, WIDTH, WIDTH), (WIDTH, ROWS, WIDTH), (64, 336, 32)):
            x, w = (torch.randn(*shape, generator=generator) for shape in ((rows, inner), (inner, columns)))
            if _error(x @ w, x, w) > EXACT_ERROR:
                return "highest"
    finally:
        torch.set_float32_matmul_precision(previous)
    return "medium"


def _error(product: Tensor, x: Tensor, w: Tensor) -> float:
    """Of x @ w, relative to the same in fp64."""
    exact = x.double() @ w.double()
    return float((product.double() - exact).norm() / exact.norm())


def measure(
    name: str,
    seconds: float = 0.05,
    clock: Callable[[], float] = time.perf_counter,
    device: torch.device = CPU.device,
) -> MatmulPath:
    """Time ROWSxWIDTHxWIDTH products forward and as weight gradient on the current number of threads, or on a device.

    The best repetition counts: other programs can only slow one down. clock: `time.process_time` on one thread ignores
    them altogether.
    """
    previous, rounded = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    path = MatmulPath(name, 0.0, 0.0)
    path.activate(device)
    waits = device.type != "cpu"
    try:
        generator = torch.Generator().manual_seed(0)
        x32 = torch.randn(ROWS, WIDTH, generator=generator)
        w32 = torch.randn(WIDTH, WIDTH, generator=generator)
        x, w = x32.to(device, path.dtype), w32.to(device, path.dtype)
        linear: Callable[[Tensor, Tensor], Tensor] = torch.nn.functional.linear
        if name == "int16":
            linear = partial(int16.product, bias=torch.zeros(WIDTH), weights=int16.Int16Weights(w))
        w.requires_grad_()

        def both(rows: Tensor) -> tuple[Tensor, Tensor]:
            y = linear(rows, w)
            return y.detach(), torch.autograd.grad(y, w, y.detach())[0]

        error = _error(both(x[:64])[0].cpu(), x32[:64], w32.T.detach())  # the first one of a process takes longer
        best, until = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < until or best == float("inf"):
            start = clock()
            product = both(x)[1]
            if waits:
                product[0, 0].item()
            best = min(best, clock() - start)
    finally:
        torch.set_float32_matmul_precision(previous)
        torch.backends.cudnn.allow_tf32 = rounded
    return MatmulPath(name, 4.0 * ROWS * WIDTH * WIDTH / best / 1e9, error)


def choose(setting: str, device: torch.device = CPU.device) -> tuple[MatmulPath, list[MatmulPath]]:
    """The path to use on a device and all that were measured: all there are, or that of the setting and `highest`.

    setting: `auto` or one of PATHS. `auto` takes the fastest, one that rounds only where that is worth it.
    Raises ConfigError for `int16` where there is none.
    """
    names = tuple(name for name in PATHS if name != "int16" or (device.type == "cpu" and int16.AVAILABLE))
    if setting != "auto":
        if setting not in names:
            raise ConfigError(
                f"palus.matmul {setting}: {device} has no such products, which take a CPU with AVX2; "
                "remove the key, or resume on a machine like that on which the run began"
            )
        measured = [measure(name, 0.05, device=device) for name in dict.fromkeys(("highest", setting))]
        return measured[-1], measured
    # In turns, so that another program that runs for a moment slows all of them alike.
    tries = [[measure(name, 0.02, device=device)] for name in names]
    hopeful = [own for own in tries if own[0].gflops > HOPELESS * tries[0][0].gflops]
    for _ in range(2):
        for own in hopeful:
            own.append(measure(own[0].name, 0.02, device=device))
    measured = [max(own, key=lambda path: path.gflops) for own in tries]
    return _best(measured), measured


@cache
def choose_once(setting: str, device: torch.device = CPU.device) -> tuple[MatmulPath, list[MatmulPath]]:
    """As `choose`, measured once in a process: a run takes the path of the trial that sized it (`--minutes`)."""
    return choose(setting, device)


def _best(measured: Sequence[MatmulPath]) -> MatmulPath:
    best = measured[0]
    for path in measured[1:]:
        if path.error < EXACT_ERROR:
            gain = 1.05
        else:
            gain = 1.0 if path.name == "int16" and best.error < EXACT_ERROR else ROUNDED
        if path.gflops > gain * best.gflops:
            best = path
    return best


def fastest_everywhere(measured: Sequence[Sequence[MatmulPath]]) -> str:
    """The name of what `choose` takes for a machine that is as slow as the slowest of each path, of those that all
    have. measured: of each machine all paths, in one order."""
    known = [{path.name: path for path in paths} for paths in measured]
    common = [name for name in known[0] if all(name in paths for paths in known)]
    return _best([min((paths[name] for paths in known), key=lambda path: path.gflops) for name in common]).name


def explain(
    path: MatmulPath, measured: Sequence[MatmulPath], device: torch.device = CPU.device, *, setting: str = "auto"
) -> str:
    """One line for the start of the log: which path, why, and how fast the measured ones are.

    setting: of the run file; a run that it leaves the path to keeps that with which it began.
    """
    kept = "as the run began, measured" if setting == "auto" else "as the run file says, measured"
    reason = "fastest of the paths measured" if len(measured) > 2 else kept
    rates = ", ".join(f"{p.name} {p.gflops:.0f}" for p in measured)
    where = "one thread" if device.type == "cpu" else str(device)
    return f"matmul {path.name}: {reason} on {where} (GFLOP/s: {rates})"


def slowness(path: MatmulPath, measured: Sequence[MatmulPath], *, setting: str = "auto") -> str | None:
    """A warning where a measured path is faster than the one in use by `SLOWER`; None otherwise. setting: as above."""
    best = max(measured, key=lambda p: p.gflops)
    if best.gflops < SLOWER * path.gflops:
        return None
    units = ", as on CPUs without bf16 units" if path.name == "bf16" else ""
    began = f"the run began with it. palus.matmul: {best.name} would go on by the faster one, to other bits"
    remedy = began if setting == "auto" else f"remove palus.matmul, or set it to {best.name}"
    return (
        f"palus.matmul {path.name} makes {path.gflops:.0f} GFLOP/s on one thread here, {best.name} {best.gflops:.0f}: "
        f"{best.gflops / path.gflops:.1f} times slower{units}; {remedy}."
    )


def keep_freed_memory() -> None:
    """Tell glibc to reuse freed activations instead of returning them to the system and faulting them in again.

    Worth 1.2-1.3x in an update; a no-op on other C libraries.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        m_trim_threshold, m_mmap_threshold = -1, -3
        libc.mallopt(m_mmap_threshold, 32 << 20)
        libc.mallopt(m_trim_threshold, (2 << 30) - 1)
