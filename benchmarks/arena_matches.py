"""Matches of an arena per second: mirrored pairs between policies of 512x2, every policy in a locked process.

    python benchmarks/arena_matches.py [--pairs 20] [--trained A.onnx B.onnx]
    python benchmarks/arena_matches.py --table        make the tables of the stored result again

Two policies that hardly move play to the time limit; trained ones score early, so that starting and ending their
processes weighs more. Processor time counts everything: the referee, the processes of the policies, their start and
their end, and once per row the start of the helper that forks them. `in this process` is the same match without
isolation, whose price is the difference.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import machine
from palus import envs
from palus.arena.locked.play import play_unit
from palus.arena.locked.sandbox import Sandbox
from palus.arena.locked.unit import Unit
from palus.arena.locked.vet import vet
from palus.arena.models.entity import Entity
from palus.arena.models.policies import OnnxPlayer
from palus.arena.models.rules import Limits
from palus.arena.referee.actions import replay_match
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import MatchResult
from palus.nn.graph import mlp_policy
from palus.types import BehaviorSpec

RESULT = machine.RESULTS / "arena-matches.json"
ENV, HIDDEN = "SoccerTwos", 512
LIMITS = Limits(niceness=0)
STAND_STILL = 8.0
"""Preference for the choice that does nothing, in logits, of the branches that move an agent."""


def idle_policy(seed: int, behavior: BehaviorSpec) -> bytes:
    """An exported policy with random weights that hardly moves."""
    rng = np.random.default_rng(seed)
    shapes = {"layer0": (HIDDEN, behavior.observation_size), "layer1": (HIDDEN, HIDDEN)}
    shapes |= {f"branch{b}": (size, HIDDEN) for b, size in enumerate(behavior.branches)}
    arrays = {}
    for name, shape in shapes.items():
        arrays[f"{name}_weight"] = (rng.normal(0, 1, shape) / np.sqrt(shape[1])).astype(np.float32)
        arrays[f"{name}_bias"] = np.zeros(shape[0], np.float32)
    for moving in ("branch0_bias", "branch1_bias"):
        arrays[moving][0] = STAND_STILL
    return bytes(mlp_policy(arrays, behavior).SerializeToString())


def contender(name: str, data: bytes) -> Entity:
    sha256 = hashlib.sha256(data).hexdigest()
    return Entity(sha256, name, "0" * 40, ((ENV, sha256),), models=(data,))


def processor_s() -> float:
    """Of this process and of all processes that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(play: Callable[[int], tuple[MatchResult, ...]], pairs: int, finish: Callable[[], None]) -> machine.Json:
    """Rates over `pairs` mirrored pairs. finish: waits for the processes, whose time is only known then."""
    wall, cpu = time.perf_counter(), processor_s()
    results = [result for seed in range(pairs) for result in play(seed)]
    wall_s = time.perf_counter() - wall
    finish()
    cpu_s = processor_s() - cpu
    return {
        "matches": len(results),
        "ticks_per_match": float(np.mean([r.duration_ticks for r in results])),
        "matches_per_wall_s": len(results) / wall_s,
        "matches_per_cpu_s": len(results) / cpu_s,
        "cpu_ms_per_match": 1e3 * cpu_s / len(results),
    }


def measure_pair(models: Sequence[bytes], pairs: int, folder: Path) -> machine.Json:
    """One row per way to play: isolated and not."""
    behavior = envs.make(ENV, 1).spec.behaviors[0]
    sides = (contender("first", models[0]), contender("second", models[1]))
    local = []
    for i, data in enumerate(models):
        (folder / f"{i}.onnx").write_bytes(data)
        local.append(OnnxPlayer(folder / f"{i}.onnx", behavior))
    play_pairs(local[0], local[1], 1, 0)  # compiles the kernels
    with contextlib.closing(Sandbox()) as sandbox:
        isolated = measure(
            lambda seed: play_unit(Unit(ENV, seed, sides), LIMITS, sandbox=sandbox).results, pairs, sandbox.close
        )
    here = measure(lambda seed: play_pairs(local[0], local[1], 1, seed), pairs, lambda: None)
    return {"isolated": isolated, "in this process": here}


def measure_rest(models: Sequence[bytes]) -> machine.Json:
    """Milliseconds of what else an arena does per model and match; matches go to the time limit."""
    unit = Unit(ENV, 0, (contender("first", models[0]), contender("second", models[1])))
    with contextlib.closing(Sandbox()) as sandbox:
        started = time.perf_counter()
        process = sandbox.open(LIMITS)
        first_ms, isolation = 1e3 * (time.perf_counter() - started), process.isolation
        process.close()
        open_ms = median_ms(lambda: sandbox.open(LIMITS).close())
        vet_ms = median_ms(lambda: vet(unit.contenders[0], ENV, limits=LIMITS, sandbox=sandbox))
        outcome = play_unit(unit, LIMITS, sandbox=sandbox)
    result, actions = outcome.results[0], outcome.matches[0].actions
    replay_ms = median_ms(lambda: replay_match(ENV, result.seed, actions).state)
    return {
        "isolation": isolation,
        "first locked process": first_ms,
        "every other locked process": open_ms,
        "validation of a model, with its match": vet_ms,
        "verification of a match": replay_ms,
    }


def median_ms(work: Callable[[], object]) -> float:
    """Wall time, of seven calls."""
    times = []
    for _ in range(7):
        started = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - started))
    return float(np.median(times))


def markdown(report: machine.Json) -> str:
    """The tables."""
    rows = []
    for title, ways in report["rows"].items():
        for way, figures in ways.items():
            numbers = [f"{figures[key]:.1f}" for key in ("cpu_ms_per_match", "matches_per_cpu_s", "matches_per_wall_s")]
            rows.append([f"{title}, {way}", f"{figures['ticks_per_match'] / 5:.0f}", *numbers])
    rest = report["rest"]
    others = [[name, f"{value:.1f}"] for name, value in rest.items() if name != "isolation"]
    header = ["matches", "decisions each", "CPU ms each", "per CPU second", "per second, one worker"]
    return (
        "# Matches of an arena\n\n"
        "Made by `python benchmarks/arena_matches.py` from arena-matches.json beside it. Policies of 512x2; "
        f"isolation: {rest['isolation']}.\n\n{machine.caption(report)}\n\n"
        f"{machine.table(header, rows)}\n{machine.table(['what', 'ms'], others)}"
    )


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20, help="mirrored pairs per row")
    parser.add_argument("--trained", type=Path, nargs=2, metavar="FILE", help="two trained policies for more rows")
    parser.add_argument("--table", action="store_true", help="only make the tables of the stored result")
    arguments = parser.parse_args()
    if arguments.table:
        machine.write_tables(RESULT, markdown)
        return
    session = machine.Session("arena-matches", {"pairs": arguments.pairs})
    behavior = envs.make(ENV, 1).spec.behaviors[0]
    idle = [idle_policy(seed, behavior) for seed in (1, 2)]
    fields = {"to the time limit": idle}
    if arguments.trained:
        fields[" against ".join(path.stem for path in arguments.trained)] = [p.read_bytes() for p in arguments.trained]
    with tempfile.TemporaryDirectory() as name:
        rows = {title: measure_pair(models, arguments.pairs, Path(name)) for title, models in fields.items()}
    machine.save(session.report(rows=rows, rest=measure_rest(idle)), RESULT, markdown)


if __name__ == "__main__":
    main()
