"""How far a policy's answers differ by rounding alone, beside what an audit grants at the same decision.

    python benchmarks/rounding.py --models FOLDER      writes benchmarks/results/rounding.json and rounding.md
    python benchmarks/rounding.py --table              make the tables of the stored result again

Every policy in FOLDER that the game takes (`.onnx`, and a run's `policy.npz` or snapshots) plays itself. What it is
shown at each decision of one side is answered again in every way at hand that adds the same products up in another
order: onnxruntime with two threads, without its optimisations, and with other rows beside; onnx's reference evaluator
in numpy, by OpenBLAS's kernels without AVX and for each width of it; where the file is palus's, the network that acts
in training. Two answers are as far apart as their probabilities are, or the sums of a branch's first ones, which the
number that draws a choice is compared with. Granted is `steady.slack_of` what moving the inputs by rounding moves the
answer. A policy with memory remembers the same in every way here.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx.reference import ReferenceEvaluator

import machine
from machine import Json
from palus import envs
from palus.arena.locked.steady import moved_by_rounding, slack_of
from palus.arena.models.policies import Observations, PolicySession, played_behaviors
from palus.arena.models.policy_graph import PROBABILITY_OUTPUT, read_policy
from palus.arena.referee.match import play_pairs
from palus.errors import PalusError
from palus.export.policy_file import model_in, parse_policy
from palus.nn.network import Network
from palus.rollout.acting import decide
from palus.types import F32, MASKS, AnyArray, BehaviorSpec, Bool

RESULT = machine.RESULTS / "rounding.json"
OPENBLAS = "OPENBLAS_CORETYPE"
"""Whose kernels numpy multiplies by, read when it is imported."""
KERNELS = {"without AVX": ("Nehalem", "avx2"), "AVX2": ("Haswell", "avx2"), "AVX-512": ("SkylakeX", "avx512f")}
"""OpenBLAS's name of them, and the feature of processors on which they are tried."""

Feed = dict[str, AnyArray]
"""The inputs of a graph: name -> [rows, ...]."""


@dataclass(frozen=True)
class Decision:
    """What a policy was shown. states: [rows, S]. masks: [rows, sum(branches)], None where every action is allowed."""

    seen: Observations
    states: F32
    masks: Bool | None


class Listener:
    """A policy that keeps what it is shown."""

    def __init__(self, name: str, session: PolicySession, state_size: int) -> None:
        self.name, self.state_size, self._session = name, state_size, session
        self.sha256: str | None = None
        self.heard: list[Decision] = []

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As `ModelPlayer.answer`."""
        self.heard.append(Decision({name: seen.copy() for name, seen in observations.items()}, states.copy(), masks))
        return self._session.answer(observations, states, masks)


@dataclass(frozen=True)
class Heard:
    """A policy and what it was shown. data: of its file; is_of_palus: which holds weights, too. model: of its graph.
    feeds: each decision as that takes it."""

    name: str
    data: bytes
    is_of_palus: bool
    model: bytes
    session: PolicySession
    decisions: Sequence[Decision]
    feeds: Sequence[Feed]


def listen(path: Path, env_id: str, behavior: BehaviorSpec, decisions: int) -> Heard:
    """A policy's first decisions, in matches against itself. Raises PalusError when the file cannot be played."""
    data, is_of_palus = path.read_bytes(), path.suffix == ".npz"
    graph = read_policy(model_in(data, str(path)) if is_of_palus else data, str(path), behavior)
    session = PolicySession(graph, behavior, str(path))
    listener = Listener(path.stem, session, graph.state_size)
    seed = 0
    while len(listener.heard) < decisions:
        play_pairs(listener, Listener(path.stem, session, graph.state_size), 1, seed, env_id=env_id, legs=(1,))
        seed += 1
    heard = listener.heard[:decisions]
    feeds = [session.feed(d.seen, d.states, d.masks) for d in heard]
    return Heard(path.stem, data, is_of_palus, graph.model, session, heard, feeds)


def compare(policy: Heard, ways: Mapping[str, Sequence[F32]], behavior: BehaviorSpec) -> Json:
    """How far each way's answers are from what the arena computes, and what is granted."""
    here = [policy.session.answer(d.seen, d.states, d.masks)[0] for d in policy.decisions]
    moved = [moved_by_rounding(partial(_answer, policy.session, d.masks), d.seen, d.states) for d in policy.decisions]
    granted = np.array([slack_of(by) for by in moved])
    found = {}
    for way, answers in ways.items():
        pairs = zip(here, answers, strict=True)
        apart = np.array([distance(one, other, behavior.branches) for one, other in pairs])
        found[way] = {"apart": float(apart.max()), "of_granted": float((apart / granted).max())}
    return {
        "name": policy.name,
        "sha256": hashlib.sha256(policy.data).hexdigest(),
        "decisions": len(here),
        "moved": max(moved),
        "granted": [float(granted.min()), float(granted.max())],
        "ways": found,
    }


def _answer(session: PolicySession, masks: Bool | None, seen: Observations, states: F32) -> F32:
    return session.answer(seen, states, masks)[0]


def distance(one: F32, other: F32, branches: Sequence[int]) -> float:
    """By how much two answers [rows, sum(branches)] differ at most, in a probability or a sum of a branch's first."""
    cuts = np.cumsum(branches)[:-1]
    gaps = np.split(one.astype(np.float64) - other, cuts, axis=1)
    return float(max(max(np.abs(gap).max(), np.abs(np.cumsum(gap, axis=1)).max()) for gap in gaps))


def by_onnxruntime(model: bytes, feeds: Sequence[Feed]) -> dict[str, list[F32]]:
    """Way -> answers."""
    everything = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    usual = open_session(model, 1, everything)
    rows = [len(next(iter(feed.values()))) for feed in feeds]
    whole = usual({name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]})
    return {
        "onnxruntime, two threads": list(map(open_session(model, 2, everything), feeds)),
        "onnxruntime, not optimised": list(
            map(open_session(model, 1, ort.GraphOptimizationLevel.ORT_DISABLE_ALL), feeds)
        ),
        "onnxruntime, each row alone": [
            np.concatenate([usual({name: given[k : k + 1] for name, given in feed.items()}) for k in range(count)])
            for feed, count in zip(feeds, rows, strict=True)
        ],
        "onnxruntime, all rows at once": np.split(whole, np.cumsum(rows)[:-1]),
    }


def open_session(model: bytes, threads: int, level: ort.GraphOptimizationLevel) -> Callable[[Feed], F32]:
    """From what it is given to probabilities."""
    options = ort.SessionOptions()
    options.graph_optimization_level, options.intra_op_num_threads = level, threads
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run([PROBABILITY_OUTPUT], feed)[0]


def by_numpy(policies: Sequence[Heard]) -> dict[str, list[list[F32]]]:
    """Way -> answers of each policy. Each way has a process that imports numpy anew."""
    found, flags = dict[str, list[list[F32]]](), machine.describe()["cpu_flags"]
    before = os.environ.get(OPENBLAS)
    for name, (kernels, needed) in KERNELS.items():
        if needed in flags:
            os.environ[OPENBLAS] = kernels
            with get_context("spawn").Pool(1) as pool:
                found[f"numpy, {name}"] = pool.starmap(evaluate, [(policy.model, policy.feeds) for policy in policies])
    os.environ.pop(OPENBLAS, None)
    if before is not None:
        os.environ[OPENBLAS] = before
    return found


def evaluate(model: bytes, feeds: Sequence[Feed]) -> list[F32]:
    """The probabilities of a graph by onnx's reference evaluator."""
    evaluator: Any = ReferenceEvaluator(onnx.load_from_string(model))
    return [evaluator.run([PROBABILITY_OUTPUT], feed)[0] for feed in feeds]


def by_network(policy: Heard, behavior: BehaviorSpec) -> list[F32]:
    """The probabilities of the network that acts in training."""
    file = parse_policy(policy.data, policy.name)
    network = Network.acting(file.spec, file.settings, file.arrays)
    answers = []
    for d in policy.decisions:
        seen = d.seen if d.masks is None else {**d.seen, MASKS: d.masks}
        parameters = torch.from_numpy(decide(network, seen, d.states)[0])
        parts = torch.split_with_sizes(parameters, behavior.branches, 1)
        answers.append(torch.cat([part.softmax(1) for part in parts], 1).numpy())
    return answers


def markdown(report: Json) -> str:
    """A row per policy, and one per way."""
    policies = report["policies"]
    rows = []
    for policy in policies:
        ways = policy["ways"].values()
        least, most = policy["granted"]
        apart, share = (max(way[key] for way in ways) for key in ("apart", "of_granted"))
        rows.append(
            [policy["name"], f"{policy['moved']:.1e}", f"{least:.1e} to {most:.1e}", f"{apart:.1e}", f"{share:.0%}"]
        )
    names = dict.fromkeys(way for policy in policies for way in policy["ways"])
    by_way = []
    for name in names:
        ways = [policy["ways"][name] for policy in policies if name in policy["ways"]]
        apart, share = (max(way[key] for way in ways) for key in ("apart", "of_granted"))
        by_way.append([name, str(len(ways)), f"{apart:.1e}", f"{share:.0%}"])
    header = ["policy", "moved by rounding at most", "granted", "ways differ at most", "of what is granted at most"]
    skipped = f"\n\nOther files there: {', '.join(report['skipped'])}." if report["skipped"] else ""
    return (
        "# Rounding\n\n"
        "Made by `python benchmarks/rounding.py` from the JSON file beside it: probabilities at "
        f"{policies[0]['decisions']} decisions of each policy in {report['env']}, beside what onnxruntime gives in the "
        "arena, and what an audit grants at the same decision.\n\n"
        f"{machine.caption(report)}{skipped}\n\n"
        f"{machine.table(header, rows)}\n"
        + machine.table(["way", "policies", "differs at most", "of what is granted at most"], by_way)
    )


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, help="folder of policies: .onnx and .npz")
    parser.add_argument("--env", default="SoccerTwos", help="a game of the arena in which all agents do the same")
    parser.add_argument("--decisions", type=int, default=300, help="of each policy, two agents each")
    parser.add_argument("--output", type=Path, default=RESULT, help="where the result goes, its table beside it")
    parser.add_argument("--table", action="store_true", help="only make the tables of the stored result")
    arguments = parser.parse_args()
    if arguments.table:
        machine.write_tables(arguments.output, markdown)
        return
    if arguments.models is None:
        sys.exit("give --models FOLDER, where the policies are, or --table.")
    session = machine.Session("rounding", {name: v for name, v in vars(arguments).items() if name != "table"})
    (behavior,) = played_behaviors(envs.make(arguments.env, 1).spec)
    policies, skipped = [], []
    for path in sorted(path for path in arguments.models.iterdir() if path.suffix in (".onnx", ".npz")):
        try:
            policies.append(listen(path, arguments.env, behavior, arguments.decisions))
        except PalusError as error:
            print(error, file=sys.stderr)
            skipped.append(path.name)
    if not policies:
        sys.exit(f"{arguments.models}: no policy that plays {arguments.env}.")
    in_numpy = by_numpy(policies)
    rows = []
    for number, policy in enumerate(policies):
        ways = by_onnxruntime(policy.model, policy.feeds)
        ways |= {way: answers[number] for way, answers in in_numpy.items()}
        if policy.is_of_palus:
            ways["palus's network"] = by_network(policy, behavior)
        rows.append(compare(policy, ways, behavior))
    machine.save(session.report(env=arguments.env, policies=rows, skipped=skipped), arguments.output, markdown)


if __name__ == "__main__":
    main()
