"""What a policy answers to random and extreme observations, and how long it takes. Runs in the locked process.

The questions, and who is asked beside whom, are drawn anew for every validation: a model that knew them could behave
for as long as it is asked them. Rated matches go on checking (`palus.arena.locked.remote`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from palus.arena.locked.frames import Rows
from palus.arena.locked.steady import SLACK, moved_by_rounding, unsteady
from palus.arena.models.policies import check_answers
from palus.arena.models.refusal import RefusedError
from palus.arena.referee.sampling import entropy
from palus.types import F32, AnyArray

ROWS = 200
BATCH = 4
"""Rows of a call that is timed, and at least of one that checks a model in a match."""
_TIMED_ROUNDS, _CALLS_PER_ROUND, _ROUND_LIMIT_S = 5, 200, 1.0
_HOPELESS = 5
"""A policy this many times too slow is not asked further."""
_ORDINARY, _ALONE, _BATCHES = 60, 32, (1, 2, 3, 4, 4, 4, 5, 8, 13, 32)
"""So many questions, the first, are of ordinary size: rounding is small there. Of these some are asked alone, and again
in batches of these sizes."""
ALIKE = 1e-4
"""Largest difference that another batch size may make: rounding, not information."""

Answer = Callable[[AnyArray], F32]


@dataclass(frozen=True)
class ProbeReport:
    """entropy: mean over the probes, nats summed over the branches.   p99_ms: of the processor time of a batch of 4."""

    entropy: float
    p99_ms: float


def probe(
    answer: Answer,
    questions: AnyArray,
    rows: Rows,
    max_p99_ms: float,
    rng: np.random.Generator,
) -> ProbeReport:
    """Ask 200 questions and time the answers.

    answer: [rows, D] -> [rows, sum(branches)].   questions: [200, D], laid out as `rows` says.   rng: decides which of
    them are asked together.
    Raises RefusedError: "wrong-outputs", "nan-output", "not-probabilities", "not-repeatable", "mixes-rows", "unsteady",
    "too-slow".
    """
    fastest_ms = min(_call_ms(answer, questions[:BATCH]) for _ in range(3))
    if fastest_ms > _HOPELESS * max_p99_ms:  # told at once, not after all the questions below
        raise _too_slow(fastest_ms, max_p99_ms)
    answers = np.concatenate([answer(batch) for batch in np.split(questions, ROWS // BATCH)])
    check_answers(answers, ROWS, rows.behavior)
    _check_rows(answer, questions, rng)
    observations, states, masks = rows.unpack(questions[:_ORDINARY])
    if moved_by_rounding(lambda seen, memory: answer(rows.pack(seen, memory, masks)), observations, states) > SLACK:
        raise unsteady()
    p99_ms = _p99_ms(answer, questions, max_p99_ms)
    if p99_ms > max_p99_ms:
        raise _too_slow(p99_ms, max_p99_ms)
    return ProbeReport(float(entropy(answers).mean()), round(p99_ms, 3))


def probe_rows(rows: Rows, rng: np.random.Generator) -> AnyArray:
    """[200, bytes]: questions as `Rows` lays them out.

    Pictures are black, white, of one grey, and noise, coarse or fine; vectors as rays give them (mostly 0, else 1 or a
    fraction), uniform noise, constants and signs; the memory is empty in the first half, then anything between -1 and
    1; of masked choices any may be forbidden but the first of a branch.
    """
    observations: dict[str, AnyArray] = {}
    for spec in rows.behavior.observations:
        if spec.dtype == "uint8":
            observations[spec.name] = _pictures(rng, spec.shape)
        else:
            vectors = np.concatenate([_like_rays(rng, spec.size), _extremes(rng, spec.size)])
            observations[spec.name] = vectors.reshape(ROWS, *spec.shape)
    states = rng.uniform(-1.0, 1.0, (ROWS, rows.state_size)).astype(np.float32)
    states[: ROWS // 2] = 0.0
    masks = rng.random((ROWS, sum(rows.behavior.branches))) < 0.5
    masks[:, rows.behavior.branch_offsets[:-1]] = True
    return rows.pack(observations, states, masks)


def _like_rays(rng: np.random.Generator, size: int) -> F32:
    """[100, size]: mostly 0."""
    seen = np.where(rng.random((100, size)) < 0.5, 1.0, rng.random((100, size)))
    return np.where(rng.random((100, size)) < 0.15, seen, 0.0).astype(np.float32)


def _extremes(rng: np.random.Generator, size: int) -> F32:
    """[100, size]: uniform noise, constants and signs."""
    uniform = rng.random((60, size))
    constants = np.array([0.0, 1.0, -1.0, 10.0, -10.0])[:, None] * np.ones((5, size))
    signs = rng.choice([-1.0, 0.0, 1.0, 10.0], (35, size))
    return np.concatenate([uniform, constants, signs]).astype(np.float32)


def _pictures(rng: np.random.Generator, shape: tuple[int, ...]) -> AnyArray:
    """[200, *shape] uint8."""
    pictures = rng.integers(0, 256, (ROWS, *shape), np.uint8)
    coarse = rng.integers(0, 256, (50, *(-(-side // 8) for side in shape)), np.uint8)
    for axis, side in enumerate(shape, start=1):
        coarse = np.take(coarse.repeat(8, axis), range(side), axis)
    pictures[:50] = coarse
    pictures[50:60] = np.linspace(0, 255, 10).astype(np.uint8).reshape(-1, *[1] * len(shape))
    return pictures


def _check_rows(answer: Answer, questions: AnyArray, rng: np.random.Generator) -> None:
    """Equal questions get equal answers, whatever else is asked with them, how many at once and in which place."""
    chosen = questions[rng.permutation(_ORDINARY)[:_ALONE]]
    alone = np.concatenate([answer(row[None]) for row in chosen])
    for size in _BATCHES:
        places = rng.integers(0, len(chosen), size)
        together = answer(chosen[places])
        if not np.array_equal(answer(chosen[places]), together):
            raise RefusedError(
                "not-repeatable",
                "Answers the same observations differently when it is asked again.",
                "Probabilities must be computed without drawing at random: the arena draws the actions.",
            )
        if np.abs(together - alone[places]).max() > ALIKE:
            raise mixes_rows()


def mixes_rows() -> RefusedError:
    """What a model is refused with whose agents see each other through the batch."""
    return RefusedError(
        "mixes-rows",
        "Answers an observation differently when others are asked with it.",
        "Let no operator work across the batch axis: each row is one agent, alone.",
    )


def _p99_ms(answer: Answer, questions: AnyArray, enough_ms: float) -> float:
    """99th percentile over calls, of the best of several rounds.

    The best round: neighbours on a busy machine steal cache and clock, never give any. A policy is as fast as it was
    once, so the rounds end when one is fast enough.
    """
    batches = np.split(questions, ROWS // BATCH)
    best = np.inf
    for _ in range(_TIMED_ROUNDS):
        calls: list[float] = []
        while len(calls) < _CALLS_PER_ROUND and sum(calls) < 1e3 * _ROUND_LIMIT_S:
            calls.append(_call_ms(answer, batches[len(calls) % len(batches)]))
        best = min(best, float(np.quantile(calls, 0.99)))
        if best <= enough_ms:
            break
    return best


def _call_ms(answer: Answer, questions: AnyArray) -> float:
    """Processor time of the thread: the kernel keeps the process's only to a tick where processor time is limited."""
    start = time.thread_time()
    answer(questions)
    return 1e3 * (time.thread_time() - start)


def _too_slow(took_ms: float, allowed_ms: float) -> RefusedError:
    return RefusedError(
        "too-slow",
        f"Takes {took_ms:.2f} ms of processor time to answer {BATCH} observations; up to {allowed_ms:g} ms are played "
        "(99th percentile).",
        "Train a smaller network: two hidden layers of 512 take less than 0.1 ms, a stock network for Doom about 3 ms.",
    )
