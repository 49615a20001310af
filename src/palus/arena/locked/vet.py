"""Validation of a stranger's model: grammar, probes and a match against itself, all in locked processes."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from palus.arena.locked.frames import OUT_OF_MEMORY, describe_task
from palus.arena.locked.play import play_unit
from palus.arena.locked.sandbox import LockedProcessError, Sandbox, shared_sandbox
from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity
from palus.arena.models.policies import played_behaviors
from palus.arena.models.policy_graph import MAX_STATE
from palus.arena.models.refusal import Refusal
from palus.arena.models.rules import Limits, Rules, limits_of, rules_of
from palus.arena.referee.games import playable_game, source_of
from palus.errors import ArenaError

_Text = Annotated[str, Field(max_length=1000)]
_Count = Annotated[int, Field(ge=0, le=10**9)]
_Measure = Annotated[float, Field(ge=0, le=10**9)]


@dataclass(frozen=True)
class Vetting:
    """sha256: of the file.   refusal: None when it may play.   details: what was measured, for its page: bytes,
    isolation, and of a file that was run nodes, parameters, opset, producer, entropy, p99_ms, computation (the hash of
    what it computes) and, where a match is short, self_match."""

    sha256: str
    refusal: Refusal | None
    details: dict[str, Any]


class _Refusal(BaseModel):
    """A locked process may be in a stranger's hands: what it reports is text of bounded size, no more."""

    model_config = ConfigDict(extra="forbid")

    code: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
    sentence: _Text
    remedy: _Text


class _Details(BaseModel):
    """The same for what it says of a model that passed."""

    model_config = ConfigDict(extra="forbid")

    nodes: _Count
    parameters: _Count
    opset: _Count
    producer: _Text
    entropy: _Measure
    p99_ms: _Measure
    computation: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Report(BaseModel):
    """All of it; exactly one of the two is there."""

    model_config = ConfigDict(extra="forbid")

    refusal: _Refusal | None
    details: _Details | None = None
    state_size: Annotated[int, Field(ge=0, le=MAX_STATE)] = 0


def vet(
    data: bytes,
    env_id: str,
    *,
    limits: Limits | None = None,
    patience: float = 1.0,
    sandbox: Sandbox | None = None,
) -> Vetting:
    """Decide whether a model file may play in this environment.

    limits: of the process that parses and runs it; default those of the game.   patience: times the processor time that
    the game's rules allow for an answer.   sandbox: which opens the process; default the one of this Python process.
    Raises ArenaError when validation itself failed, through no fault of the model: try again, or when no arena plays
    the game; EnvError when it is not installed here.
    """
    game = playable_game(env_id)
    limits, sandbox = limits or limits_of(game), sandbox or shared_sandbox()
    behavior = played_behaviors(source_of(game.env).spec)[0]
    sha256 = hashlib.sha256(data).hexdigest()
    details: dict[str, Any] = {"bytes": len(data)}
    refusal = _too_large(data, rules_of(game))
    if refusal is None:
        task = describe_task(behavior, patience * game.max_p99_ms)
        refusal = _examine(data, task, limits, sandbox, details)
    if refusal is None and not game.filmed:  # a duel takes a minute: there the first match, unrated, tells as much
        refusal = _play_itself(data, sha256, env_id, limits, sandbox, details)
    return Vetting(sha256, refusal, details)


def _too_large(data: bytes, rules: Rules) -> Refusal | None:
    """Told from the size alone, so that large files are not even handed over."""
    allowed = rules.max_bytes
    if len(data) <= allowed:
        return None
    sentence = f"Has {len(data) / 2**20:.1f} MiB; policies of up to {allowed // 2**20} MiB are played."
    return Refusal("too-large", sentence, "Export a smaller network.")


def _examine(
    data: bytes, task: dict[str, Any], limits: Limits, sandbox: Sandbox, details: dict[str, Any]
) -> Refusal | None:
    """Grammar and probes, in a locked process. Adds to `details`."""
    try:
        with contextlib.closing(sandbox.open(limits)) as process:
            details["isolation"] = process.isolation
            report = _Report.model_validate(process.begin(task, data))
    except LockedProcessError as error:
        return _refusal_of_failure(error, limits)
    except ValidationError:
        return _crashed("its process answered garbage")
    if report.refusal is not None:
        return Refusal(report.refusal.code, report.refusal.sentence, report.refusal.remedy)
    if report.details is None:
        return _crashed("its process reported nothing")
    details.update(report.details.model_dump())
    return None


def _play_itself(
    data: bytes, sha256: str, env_id: str, limits: Limits, sandbox: Sandbox, details: dict[str, Any]
) -> Refusal | None:
    """A mirrored pair against itself, of a seed that nobody knows, checked at every decision. Adds to `details`."""
    twin = Entity(sha256, "candidate/itself", files=((env_id, sha256),), models=(data,))
    unit = Unit(env_id, secrets.randbits(53), (twin, twin))
    outcome = play_unit(unit, limits, sandbox=sandbox, check_share=1.0)
    details["self_match"] = [result.result for result in outcome.results]
    causes = {result.cause for result in outcome.results}
    if "engine" in causes:
        raise ArenaError(f"the match of a model against itself could not be played ({outcome.failures}); try again")
    if causes <= {"goal", "time_limit"}:
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
    return _crashed(str(error))


def _crashed(what: str) -> Refusal:
    return Refusal(
        "crashed",
        f"Broke the process that examined it: {what}.",
        "Export it again with ML-Agents or palus, and try it in onnxruntime first.",
    )
