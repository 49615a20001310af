"""The measuring half of throughput.py: one measurement of palus in a process of its own; prints one line of JSON.

    python benchmarks/cycles.py paths                              matrix paths and their rates
    python benchmarks/cycles.py cycles --trainer poca --path bf16  whole collect + learn cycles, after one warm-up
    python benchmarks/cycles.py cycles --path highest --dense      the same where zeros of rays are multiplied, too
    python benchmarks/cycles.py start --trainer ppo                seconds from the start of the process to milestones
    python benchmarks/cycles.py extras --trainer poca              what a whole run does besides its cycles

The parent sets the number of threads, in the environment and with `--threads`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

import flops
import palus
from palus.config import RunFile, load_run
from palus.config.trainer import OnPolicyHyperparameters
from palus.envs import make
from palus.envs.protocol import room_for
from palus.learn import ALGORITHMS
from palus.learn.learner import Learner
from palus.learn.poca import POCA
from palus.nn.matmul import EXACT_ERROR, PATHS, MatmulPath, choose, measure
from palus.nn.sparse import SparseLinear
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import Rollout
from palus.run.trainee import Trainee
from palus.train import Run
from palus.types import RAY_DISTANCES, RAY_TAGS

BEHAVIOR = "SoccerTwos"
PRESETS = {"ppo": "soccertwos-ppo", "poca": "soccertwos"}
SEED = 1
GEMM_SECONDS = 0.3
CHECKED_GROUP_STEPS = 256


@dataclass(frozen=True)
class Cycle:
    """One rollout and one update. *_flop: counted operations; gemm_gflops: rate of a matrix product right before."""

    trained_agent_steps: int
    env_agent_steps: int
    wall_s: float
    cpu_s: float
    collect_cpu_s: float
    learn_cpu_s: float
    simulation_cpu_s: float
    collect_flop: float
    update_flop: float
    gemm_gflops: float


class Meter:
    """Adds up the CPU time of the calls of a function, and keeps what the latest one returned."""

    def __init__(self) -> None:
        self.cpu_s, self.latest = 0.0, None

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, metered."""

        def metered(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            self.latest = function(*args, **kwargs)
            self.cpu_s += time.process_time() - started
            return self.latest

        return metered


def stock_run(trainer: str, folder: str, path: str, threads: int, *overrides: str) -> RunFile:
    """The stock configuration, in a folder of its own."""
    fixed = (f"palus.matmul={path}", f"palus.threads={threads}", f"env_settings.seed={SEED}")
    return load_run(PRESETS[trainer], [*fixed, f"checkpoint_settings.results_dir={json.dumps(folder)}", *overrides])


def trainee_of(parts: Run) -> Trainee:
    """The one learner of a stock run."""
    (trainee,) = parts.trainees
    return trainee


def collector_of(parts: Run) -> InProcessCollector:
    """What plays a stock run's matches."""
    assert isinstance(parts.collector, InProcessCollector)
    return parts.collector


def fill_league(parts: Run) -> None:
    """Bring self-play to where it is for most of a run: a full window of snapshots, drawn by every match.

    A rollout against many snapshots is slower than against one: their forward passes have fewer rows each.
    """
    trainee = trainee_of(parts)
    settings = trainee.behavior.self_play
    assert settings is not None
    for _ in range(settings.window):
        trainee.step += settings.save_steps
        ghost_steps = {trainee.kind: settings.swap_steps}
        parts.league.advance(parts.steps, ghost_steps, parts.saving.save_snapshot)
    parts.collector.restart()


def measure_cycles(trainer: str, path: str, threads: int, cycles: int) -> dict[str, object]:
    """`cycles` whole cycles after one that compiles, allocates and warms caches."""
    with tempfile.TemporaryDirectory() as folder:
        parts = Run(stock_run(trainer, folder, path, threads, "palus.baseline_interval=0"))
        fill_league(parts)
        collect, learn, simulation = Meter(), Meter(), Meter()
        collector, learner = collector_of(parts), trainee_of(parts).learner
        env: Any = collector.env
        env.step, env.observe = simulation.around(env.step), simulation.around(env.observe)
        env.observe_final = simulation.around(env.observe_final)
        collector.collect = collect.around(collector.collect)  # type: ignore[method-assign]
        learner.update = learn.around(learner.update)  # type: ignore[method-assign]
        with parts.report:
            parts.iterate()
            measured = [one_cycle(parts, collect, learn, simulation) for _ in range(cycles)]
    error = gradient_error(trainer, parts.computing.matmul)
    return {
        "trainer": trainer,
        "path": parts.computing.matmul.name,
        "gemm_error": parts.computing.matmul.error,
        "gradient_error": error,
        "threads": threads,
        "matches": collector.env.num_matches,
        "decisions": collector.rollout_steps,
        "opponents": len(collector.in_play) + 1,
        "teams_trained": 1,
        "cycles": [asdict(cycle) for cycle in measured],
    }


def one_cycle(parts: Run, collect: Meter, learn: Meter, simulation: Meter) -> Cycle:
    """The meters over one iteration of the training loop, league and report included."""
    # One thread: CPU time, so that another program on the core does not make the product look slow.
    clock = time.process_time if parts.computing.threads == 1 else time.perf_counter
    gemm = measure(parts.computing.matmul.name, GEMM_SECONDS, clock)
    before = collect.cpu_s, learn.cpu_s, simulation.cpu_s
    wall, cpu = time.perf_counter(), time.process_time()
    parts.iterate()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    trainee, collector = trainee_of(parts), collector_of(parts)
    collected: Any = collect.latest
    rollout: Rollout = collected.rollouts[trainee.policy]
    decisions = collector.env.num_matches * collector.env.spec.num_agents * collector.rollout_steps
    shapes = trainee.learner.network.weights.shapes
    return Cycle(
        trained_agent_steps=rollout.agent_steps,
        env_agent_steps=decisions,
        wall_s=wall,
        cpu_s=cpu,
        collect_cpu_s=collect.cpu_s - before[0],
        learn_cpu_s=learn.cpu_s - before[1],
        simulation_cpu_s=simulation.cpu_s - before[2],
        collect_flop=decisions * flops.acting_flop(shapes),
        update_flop=update_flop(trainee, shapes, rollout),
        gemm_gflops=gemm.gflops,
    )


def update_flop(trainee: Trainee, shapes: flops.Shapes, rollout: Rollout) -> float:
    """Counted operations of the update that this rollout led to."""
    trainer, h = trainee.behavior.trainer_type, trainee.behavior.hyperparameters
    assert isinstance(h, OnPolicyHyperparameters)
    group = rollout.group_size if trainer == "poca" else 1
    steps, rows = rollout.active.shape
    decided = int(rollout.active.reshape(steps, rows // group, group).any(2).sum())
    cut_off = int(rollout.truncated.reshape(steps, rows // group, group).any(2).sum())
    size = h.batch_size // group
    work = flops.Work(h.num_epoch * (decided // size) * size, steps * rows // group, rows // group + cut_off)
    return flops.update_flop(trainer, shapes, group, work)


def gradient_error(trainer: str, path: MatmulPath) -> float:
    """Relative difference between the gradient on this path and the one of dense layers in fp32, at the same weights
    and inputs."""
    behavior = load_run(PRESETS[trainer]).behaviors[BEHAVIOR]
    spec = make(BEHAVIOR, 1).spec.behavior(BEHAVIOR)
    flat, compiled = [], SparseLinear.compiled
    for each, skips in ((MatmulPath("highest", 0.0, 0.0), False), (path, compiled)):
        each.activate()
        SparseLinear.compiled = skips
        learner = ALGORITHMS[trainer](behavior, spec, each.dtype, SEED)
        if each.name == "int16":
            learner.network.learn_in_int16()
        flat.append(gradient(learner).double())
    path.activate()
    return float((flat[1] - flat[0]).norm() / flat[0].norm())


def gradient(learner: Learner) -> torch.Tensor:
    """d(sum of weighted outputs) / d(parameters) of actor and critic, random rays and weights of the outputs."""
    random = np.random.default_rng(SEED)
    network, rows = learner.network, 2 * CHECKED_GROUP_STEPS
    seen = room_for(network.spec, rows, rays=True)
    for o in network.spec.observations:
        seen[o.name + RAY_TAGS][:] = random.integers(0, o.size // o.rays, (rows, o.rays))
        seen[o.name + RAY_DISTANCES][:] = random.random((rows, o.rays), np.float32)
    inputs = network.inputs(seen, np.arange(rows))
    logits, values, _ = network(inputs, torch.empty(rows, 0), torch.ones(1, rows))
    outputs = [logits]
    if isinstance(learner, POCA):
        actions = torch.from_numpy(random.integers(0, 3, (CHECKED_GROUP_STEPS, 2, 3)).astype(np.float32))
        outputs += network.critic(inputs, actions, torch.ones(CHECKED_GROUP_STEPS, 2, dtype=torch.bool))
    else:
        outputs.append(values)
    weights = [torch.from_numpy(random.standard_normal(tuple(o.shape), np.float32)).to(o.dtype) for o in outputs]
    return torch.cat([g.flatten() for g in network.weights.backward(outputs, weights)])


def measure_start(trainer: str, threads: int, started: float) -> dict[str, object]:
    """Seconds from `started`, the wall clock when the process was launched, to milestones of the stock run."""
    marks = {"imported": time.time() - started}

    def mark_first(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def marking(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            marks.setdefault(name, time.time() - started)
            return result

        return marking

    with tempfile.TemporaryDirectory() as folder:
        parts = Run(stock_run(trainer, folder, "auto", threads))
        marks["built"] = time.time() - started
        env: Any = collector_of(parts).env
        parallel: Any = trainee_of(parts).learner.parallel
        env.step = mark_first("first_decision", env.step)
        parallel.step = mark_first("first_gradient_step", parallel.step)
        with parts.report:
            parts.iterate()
        marks["first_update"] = time.time() - started
    return {"trainer": trainer, "threads": threads, "package": palus.__file__, "seconds": marks}


def measure_extras(trainer: str, threads: int) -> dict[str, object]:
    """Seconds of one checkpoint and of one evaluation against the baselines, and how many of them a run has.

    The untrained policy plays the longest matches, so the evaluation is the dearest of the run.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = stock_run(trainer, folder, "auto", threads)
        parts = Run(run)
        fill_league(parts)
        started = time.perf_counter()
        parts.baselines.evaluate(0)
        evaluated = time.perf_counter()
        parts.save()
        saved = time.perf_counter()
    behavior = trainee_of(parts).behavior
    steps = behavior.max_steps
    return {
        "trainer": trainer,
        "max_steps": steps,
        "evaluation_s": evaluated - started,
        "evaluations": steps // run.palus.baseline_interval,
        "checkpoint_s": saved - evaluated,
        "checkpoints": steps // behavior.checkpoint_interval,
    }


def measure_paths() -> dict[str, object]:
    """All matrix paths on the current threads, and the one that `auto` takes."""
    torch.set_num_threads(1)
    rates = [measure(name, GEMM_SECONDS, time.process_time) for name in PATHS]
    shown = [asdict(path) | {"fp32": path.error < EXACT_ERROR} for path in rates]
    return {"paths": shown, "auto": choose("auto")[0].name}


def main() -> None:
    parser = argparse.ArgumentParser(description="One measurement of palus; prints one line of JSON.")
    parser.add_argument("what", choices=["paths", "cycles", "start", "extras"])
    parser.add_argument("--trainer", choices=sorted(PRESETS), default="poca")
    parser.add_argument("--path", choices=["auto", *PATHS], default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cycles", type=int, default=2)
    parser.add_argument("--dense", action="store_true", help="layers of rays multiply zeros, too")
    parser.add_argument("--started", type=float, default=time.time(), help="time.time() at the launch, for `start`")
    a = parser.parse_args()
    SparseLinear.compiled = not a.dense
    results: dict[str, Callable[[], dict[str, object]]] = {
        "paths": measure_paths,
        "cycles": lambda: measure_cycles(a.trainer, a.path, a.threads, a.cycles),
        "start": lambda: measure_start(a.trainer, a.threads, a.started),
        "extras": lambda: measure_extras(a.trainer, a.threads),
    }
    print(json.dumps(results[a.what]()))


if __name__ == "__main__":
    main()
