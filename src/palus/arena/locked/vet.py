"""Validation of a stranger's model: grammar, probes and a match against itself, all in locked processes."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from palus.arena.locked.frames import OUT_OF_MEMORY, Task
from palus.arena.locked.play import play_unit
from palus.arena.locked.sandbox import LockedProcessError, Sandbox, shared_sandbox
from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity
from palus.arena.models.grammar import check_size
from palus.arena.models.policies import played_behaviors
from palus.arena.models.refusal import Refusal, RefusedError
from palus.arena.models.rules import Limits, arena_rules
from palus.arena.referee.games import playable_game, source_of
from palus.arena.referee.result import PLAYED
from palus.errors import ArenaError
from palus.files import digest_of


@dataclass(frozen=True)
class Vetting:
    """refusal: None when it may play.   details: what was measured, for its page: bytes,
    isolation, and of a file that was run nodes, parameters, opset, producer, entropy, p99_ms, computation (the hash of
    what it computes) and, where a match is short, self_match."""

    refusal: Refusal | None
    details: dict[str, Any]


def vet(
    contender: Entity,
    env_id: str,
    *,
    limits: Limits | None = None,
    patience: float = 1.0,
    sandbox: Sandbox | None = None,
) -> Vetting:
    """Decide whether a model file, or a set of one per behavior, may play in this environment.

    contender: with its models.   limits: of the process that parses and runs them; default those of the game.
    patience: times the processor time that the game's rules allow for an answer.   sandbox: which opens the process;
    default the one of this Python process.
    Raises ArenaError when validation itself failed, through no fault of the models: try again, or when no arena plays
    the game, or it plays other files; EnvError when it is not installed here.
    """
    game = playable_game(env_id)
    limits, sandbox = limits or Limits(cpu_s=game.cpu_s), sandbox or shared_sandbox()
    behaviors = played_behaviors(source_of(game.env).spec)
    models = contender.models_for([behavior.name for behavior in behaviors])
    task = Task(behaviors=behaviors, examine_up_to_ms=patience * game.max_p99_ms)
    details: dict[str, Any] = {"bytes": sum(map(len, models))}
    for number, model in enumerate(models):
        try:
            check_size(model, arena_rules(game.pictures))  # told here, so that large files are not even handed over
        except RefusedError as error:
            return Vetting(task.about(number, error.refusal), details)
    refusal = _examine(task, models, limits, sandbox, details)
    if refusal is None and not game.filmed:  # a duel takes a minute: there the first match, unrated, tells as much
        refusal = _play_itself(contender, env_id, limits, sandbox, details)
    return Vetting(refusal, details)


def _examine(
    task: Task, models: Sequence[bytes], limits: Limits, sandbox: Sandbox, details: dict[str, Any]
) -> Refusal | None:
    """Grammar and probes, in a locked process. Adds to `details` what is said of all files: sums, the slowest answer,
    the mean entropy."""
    try:
        with contextlib.closing(sandbox.open(limits)) as process:
            details["isolation"] = process.isolation
            report = process.begin(task, models)
    except LockedProcessError as error:
        return _refusal_of_failure(error, limits)
    if report.refusal is not None:
        return report.refusal
    names, parts = [behavior.name for behavior in task.behaviors], report.details
    details |= {
        "nodes": sum(part.nodes for part in parts),
        "parameters": sum(part.parameters for part in parts),
        "opset": max(part.opset for part in parts),
        "producer": ", ".join(dict.fromkeys(part.producer for part in parts)),
        "entropy": sum(part.entropy for part in parts) / len(parts),
        "p99_ms": max(part.p99_ms for part in parts),
        "computation": digest_of({name: part.computation for name, part in zip(names, parts, strict=True)}),
    }
    return None


def _play_itself(
    contender: Entity, env_id: str, limits: Limits, sandbox: Sandbox, details: dict[str, Any]
) -> Refusal | None:
    """A mirrored pair against itself, of a seed that nobody knows, checked at every decision. Adds to `details`."""
    twin = replace(contender, repo="candidate/itself")
    unit = Unit(env_id, secrets.randbits(53), (twin, twin))
    outcome = play_unit(unit, limits, sandbox=sandbox, check_share=1.0)
    details["self_match"] = [result.result for result in outcome.results]
    if any(result.cause == "engine" for result in outcome.results):
        raise ArenaError(f"the match of a model against itself could not be played ({outcome.failures}); try again")
    if all(result.result in PLAYED for result in outcome.results):
        return None
    failure = next((f for f in outcome.failures if f), "it answered numbers that are no probabilities")
    return Refusal(
        "self-match",
        f"Passed the probes, but not a match against itself: {failure}.",
        "Play it against itself with `palus match`, and export it again with ML-Agents or palus.",
    )


def _refusal_of_failure(error: LockedProcessError, limits: Limits) -> Refusal:
    if error.cause == "engine":
        raise ArenaError(f"a model could not be examined ({error}); try again") from error
    if error.cause == "timeout":
        return Refusal(
            "endless",
            f"Was not examined within the time allowed: {error}.",
            "Train a smaller network: two hidden layers of 512 answer 4 observations in less than 0.1 ms.",
        )
    if str(error) == OUT_OF_MEMORY:
        return Refusal(
            "out-of-memory",
            f"Needs more memory than the {limits.memory_bytes // 2**20} MiB allowed.",
            "Train a smaller network: a stock policy takes a few megabytes.",
        )
    return Refusal(
        "crashed",
        f"Broke the process that examined it: {error}.",
        "Export it again with ML-Agents or palus, and try it in onnxruntime first.",
    )
