"""What several ranks will bring, measured before a run begins: `palus train --check` under torchrun."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from palus.config import RunFile
from palus.launch.pace import timed, trial
from palus.learn.ranks import Ranks
from palus.train import Run
from palus.trust import Trust

REPEATS = 5


@dataclass(frozen=True)
class StepTime:
    """step_s: a gradient step with its share of the rollout, in seconds; waited_s: of it in exchanges between ranks."""

    step_s: float
    waited_s: float


@dataclass(frozen=True)
class Link:
    """Of R ranks. one_s: what a gradient step with its share of the rollout takes one process, by rank, in seconds;
    together: what it takes all ranks. exchange_s: the sum of a gradient of so many `floats` over the ranks, when
    nobody waits for who is slower; latency_s: that of one number."""

    one_s: tuple[float, ...]
    together: StepTime
    exchange_s: float
    latency_s: float
    floats: int

    @property
    def bytes_per_s(self) -> float:
        """What a rank sends: 2 (R - 1) / R of a gradient in each exchange."""
        ranks = len(self.one_s)
        return 8 * (ranks - 1) / ranks * self.floats / max(self.exchange_s - self.latency_s, 1e-9)

    def speed_up(self, batches: int = 1) -> float:
        """Steps per second of all ranks over those of one, the quickest; `batches`: how many times as large batch_size
        and buffer_size are as now, 1 or R.

        As it is both were measured. Of R batches a rank's share is what one process does as it is, so that they take
        as long as the slowest one, and an exchange.
        """
        one = min(self.one_s)
        if batches == 1:
            return one / self.together.step_s
        return batches * one / (max(self.one_s) + self.together.waited_s)

    def sentence(self) -> str:
        """For whoever is about to start the run."""
        R, one, together = len(self.one_s), min(self.one_s), self.together
        gain, larger = self.speed_up(), self.speed_up(R)
        verdict = "" if max(gain, larger) >= 1.1 else "; one is the better choice"
        rate = f"{self.latency_s * 1e3:.2f} ms of latency, {self.bytes_per_s / 1e6:.0f} MB/s"
        return (
            f"{R} ranks make {gain:.1f} times the steps per second of one with this run file, and {larger:.1f} times "
            f"with {R} times its batch_size and buffer_size{verdict}: a gradient step and its share of the games take "
            f"one {one * 1e3:.1f} ms, and {R} ranks {together.step_s * 1e3:.1f} ms, {together.waited_s * 1e3:.1f} ms "
            f"of it to exchange {4e-6 * self.floats:.1f} MB ({rate})."
        )


def measure(run: RunFile, trust: Trust, ranks: Ranks) -> Link:
    """Play and learn a little in a folder of its own, together and then each rank by itself at the same time, and time
    what the ranks tell each other.

    Called by all ranks. Raises what a run raises.
    """
    with trial(run, trust, ranks) as parts:
        times = ranks.gather(_step_time(parts, ranks))
        floats = max(len(trainee.learner.network.weights.gradient) for trainee in parts.trainees)
    together = StepTime(max(own.step_s for own in times), statistics.mean(own.waited_s for own in times))
    alone = Ranks(local_size=ranks.local_size)  # on its share of the machine's cores
    with trial(run, trust, alone) as parts:
        ranks.gather(None)  # all begin at once
        one = _step_time(parts, alone)
    exchange, latency = (_timed(ranks, torch.zeros(size)) for size in (floats, 1))
    return Link(tuple(ranks.gather(one.step_s)), together, exchange, latency, floats)


def _step_time(parts: Run, ranks: Ranks) -> StepTime:
    waited, steps = ranks.waited, _gradient_steps(parts)
    seconds = timed(parts, ranks)
    made = max(_gradient_steps(parts) - steps, 1)
    return StepTime(seconds / made, (ranks.waited - waited) / made)


def _gradient_steps(parts: Run) -> int:
    return sum(trainee.learner.network.version for trainee in parts.trainees)


def _timed(ranks: Ranks, vector: torch.Tensor) -> float:
    """Seconds of one sum, the median; the slowest rank's."""
    ranks.sum(vector)
    tries = []
    for _ in range(REPEATS):
        ranks.gather(None)  # all begin at once
        begun = time.perf_counter()
        ranks.sum(vector)
        tries.append(time.perf_counter() - begun)
    return max(ranks.gather(statistics.median(tries)))
