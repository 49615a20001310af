"""Sampling Doom: an engine or a worker that is killed is replaced, and nothing of either is left."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from sampled_games import eventually

from palus.config.appo import Sampling
from palus.envs.game import make_game
from palus.rollout.messages import GameMaker
from palus.rollout.sampler import Sampler

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vizdoom") is None, reason="needs vizdoom: pip install 'palus[doom]'"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
]


class EvenPolicy:
    """Any action of `parameters` logits, with equal chances."""

    version, state_size = 0, 0

    def __init__(self, parameters):
        self._parameters = parameters

    def act(self, observations, states):
        R = len(states)
        return torch.zeros(R, self._parameters), torch.zeros(R), states


def engines(worker):
    """Process ids of a worker's children."""
    threads = Path("/proc", str(worker), "task").glob("*/children")
    return [int(pid) for children in threads for pid in children.read_text().split()]


def test_killed_engines_and_workers_are_replaced_and_leave_nothing() -> None:
    game = make_game("doom_basic")
    spec = game.spec
    game.close()
    with Sampler(
        GameMaker("doom_basic"),
        spec,
        Sampling(workers=2, decorrelate=False),
        rows=4,
        horizon=8,
        seed=1,
        policies={0: EvenPolicy(spec.actions.parameters)},
        assign=lambda game: [0],
    ) as s:
        page, _ = s.collect()
        assert page.samples == 32 and page.frames == 32 * spec.frameskip
        assert page.observations["obs"].std() > 1
        seen = [engine for worker in s.pids for engine in engines(worker)]
        assert len(seen) == 4
        os.kill(seen[0], signal.SIGKILL)
        eventually(lambda: s.collect() and s.faults.crashed == 1)
        os.kill(s.pids[1], signal.SIGKILL)
        eventually(lambda: s.collect() and s.faults.crashed == 2)
        eventually(lambda: s.collect()[0].samples == 32)
        seen += [engine for worker in s.pids for engine in engines(worker)]
        seen += s.pids
    eventually(lambda: not any(Path("/proc", str(pid)).exists() for pid in seen))
