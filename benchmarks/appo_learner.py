"""How much of an APPO update is products: its time beside the same convolutions and matrix products done alone.

    python benchmarks/appo_learner.py           1 min on an idle core, writes results/appo-learner.json, .md

Doom's default network (3 x 72 x 128, convnet_simple, 512, GRU 512) on a synthetic page, one thread. "Alone" are torch's
own operators on the minibatch's shapes (beside int16 in fp32), forward, weights' and inputs' gradients, recurrent steps
included; no activations, normalisation, loss or optimiser. CPU time is measured, so other programs disturb little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)
from torch import Tensor

from machine import RESULTS, Json, Session, caption, save, table
from palus.config.appo import AppoHyperparameters
from palus.config.trainer import AppoBehavior
from palus.learn.appo import APPO
from palus.nn.encoders import CONVOLUTIONS
from palus.nn.matmul import PATHS, keep_freed_memory, measure
from palus.rollout.rollout import Rollout
from palus.types import ActionSpec, BehaviorSpec, Discrete, ObservationSpec

T, B = 32, 16
WIDTH = 512
SPEC = BehaviorSpec("", (ObservationSpec("obs", (3, 72, 128), "uint8"),), ActionSpec((Discrete(5),)))


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """The least CPU time of several calls, after one that does not count."""
    work()
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best


def synthetic_page() -> Rollout:
    """Random pictures and actions; episodes of about 100 decisions."""
    rng = np.random.default_rng(0)
    floats, flags = np.zeros((T, B), np.float32), np.zeros((T, B), np.bool_)
    pictures, states = rng.integers(0, 256, (T + 1, B, 3, 72, 128), np.uint8), np.zeros((B, WIDTH), np.float32)
    return Rollout(
        observations={"obs": pictures}, masks=None, states=states, last_states=states,
        actions=rng.integers(0, 5, (T, B, 1)).astype(np.float32), log_probs=np.full((T, B, 1), -np.log(5), np.float32),
        parameters=np.zeros((T, B, 5), np.float32), values=floats, rewards=rng.normal(size=(T, B)).astype(np.float32),
        group_rewards=floats, terminated=rng.random((T, B)) < 0.01, truncated=flags, active=~flags,
        last_active=np.ones(B, np.bool_), final_observations={"obs": pictures[0, :0]}, final_states=states[:0],
        group_size=1, versions=np.zeros((T, B), np.int32),
    )  # fmt: skip


def products(dtype: torch.dtype) -> list[Callable[[], object]]:
    """The network's products alone, each with its gradients."""

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape).to(dtype)

    def convolution(x: Tensor, weight: Tensor, stride: int) -> Callable[[], object]:
        leaves = [weight.requires_grad_(), *([x.requires_grad_()] if x.shape[1] != 3 else [])]
        slope = torch.ones_like(F.conv2d(x, weight, stride=stride))
        return lambda: torch.autograd.grad(F.conv2d(x, weight, stride=stride), leaves, slope)

    def linear(rows: int, out: int, in_: int, repeats: int = 1) -> Callable[[], object]:
        x, weight, slope = random(rows, in_), random(out, in_), random(rows, out)

        def work() -> None:
            for _ in range(repeats):
                F.linear(x, weight)
                slope @ weight

        return work

    def weight_gradient(rows: int, out: int, in_: int) -> Callable[[], object]:
        x, slope = random(rows, in_), random(rows, out)
        return lambda: slope.T @ x

    channels, size = 3, (72, 128)
    found: list[Callable[[], object]] = []
    for out, kernel, stride in CONVOLUTIONS["convnet_simple"]:
        x = random(T * B, channels, *size).contiguous(memory_format=torch.channels_last)
        found.append(convolution(x, random(out, channels, kernel, kernel), stride))
        channels, size = out, ((size[0] - kernel) // stride + 1, (size[1] - kernel) // stride + 1)
    shapes = [(WIDTH, channels * size[0] * size[1]), (3 * WIDTH, WIDTH), (3 * WIDTH, WIDTH)]
    found += [weight_gradient(T * B, *shape) for shape in shapes]
    return [*found, *(linear(T * B, *shape) for shape in shapes[:2]), linear(B, *shapes[2], repeats=T)]


def measured(path: str, repeats: int) -> Json:
    """One matrix path: microseconds per decision of the update and of its products, and what a product reaches."""
    rate = measure(path, clock=time.process_time)
    rate.activate()
    behavior = AppoBehavior(hyperparameters=AppoHyperparameters(buffer_size=T * B, batch_size=T * B))
    learner, page = APPO(behavior, SPEC, rate.dtype, 0), synthetic_page()
    if path == "int16":
        learner.network.learn_in_int16()
    update = cpu_seconds(lambda: learner.update(page, 0), repeats)
    alone = sum(cpu_seconds(work, repeats) for work in products(rate.dtype))
    scale = 1e6 / (T * B)
    return {"path": path, "gflops": rate.gflops, "update_us": update * scale, "products_us": alone * scale}


def markdown(report: Json) -> str:
    """The table of a stored result."""
    header = ["path", "product, GFLOP/s", "update, us per decision", "its products alone, us", "share of products"]
    rows = [
        [r["path"], *(f"{r[key]:.0f}" for key in ("gflops", "update_us", "products_us")),
         f"{r['products_us'] / r['update_us']:.0%}"]
        for r in report["rows"]
    ]  # fmt: skip
    return f"# APPO's learner beside its products, one thread\n\n{caption(report)}\n\n{table(header, rows)}"


def main() -> None:
    """Measure all matrix paths, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="the least of so many counts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    session = Session("appo-learner", vars(arguments))
    rows = [measured(path, arguments.repeats) for path in PATHS]
    save(session.report(rows=rows), RESULTS / "appo-learner.json", markdown)


if __name__ == "__main__":
    main()
