"""What several ranks will bring, measured before a run begins: `palus train --check` under torchrun."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from palus.config import RunFile
from palus.launch.pace import trial
from palus.learn.ranks import Ranks
from palus.run.parts import Parts
from palus.trust import Trust

REPEATS = 5


@dataclass(frozen=True)
class Link:
    """Of R ranks. step_s: a gradient step of one rank's share with its share of the rollout, of the slowest rank, in
    seconds; exchange_s: the sum of a gradient of so many `floats` over the ranks; latency_s: that of one number."""

    ranks: int
    step_s: float
    exchange_s: float
    latency_s: float
    floats: int

    @property
    def bytes_per_s(self) -> float:
        """What a rank sends: 2 (R - 1) / R of a gradient in each exchange."""
        return 8 * (self.ranks - 1) / self.ranks * self.floats / max(self.exchange_s - self.latency_s, 1e-9)

    def speed_up(self, batches: int = 1) -> float:
        """Steps per second of all ranks over those of one: R C / (C + A), with C the step and A the exchange.

        batches: how many times as large batch_size and buffer_size are as now.
        """
        step = self.step_s * batches
        return self.ranks * step / (step + self.exchange_s)

    def sentence(self) -> str:
        """For whoever is about to start the run."""
        R, gain, larger = self.ranks, self.speed_up(), self.speed_up(self.ranks)
        verdict = "" if max(gain, larger) >= 1.1 else "; one is the better choice"
        rate = f"{self.latency_s * 1e3:.2f} ms of latency, {self.bytes_per_s / 1e6:.0f} MB/s"
        return (
            f"{R} ranks make {gain:.1f} times the steps per second of one with this run file, and {larger:.1f} times "
            f"with {R} times its batch_size and buffer_size{verdict}: a rank's share of a gradient step takes "
            f"{self.step_s * 1e3:.1f} ms, the sum of {4e-6 * self.floats:.1f} MB over the ranks "
            f"{self.exchange_s * 1e3:.1f} ms ({rate})."
        )


def measure(run: RunFile, trust: Trust, ranks: Ranks) -> Link:
    """Play and learn a little in a folder of its own, and time what the ranks tell each other.

    Called by all ranks. Raises what a run raises.
    """
    with trial(run, trust, ranks) as parts:
        begun, waited, steps = time.perf_counter(), ranks.waited, _gradient_steps(parts)
        parts.iterate()
        alone = time.perf_counter() - begun - (ranks.waited - waited)
        made = max(_gradient_steps(parts) - steps, 1)
        floats = max(len(trainee.learner.network.weights.gradient) for trainee in parts.trainees)
    exchange, latency = (_timed(ranks, torch.zeros(size)) for size in (floats, 1))
    return Link(ranks.size, max(ranks.gather(alone / made)), exchange, latency, floats)


def _gradient_steps(parts: Parts) -> int:
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
