"""Collecting from Doom: an engine or a worker that is killed is replaced, and nothing of either is left."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch
from counting_policy import lost, missing
from processes import children, eventually

from palus.config.appo import Sampling
from palus.envs import GameSource
from palus.errors import WorkerError
from palus.rollout.rollout import Seat
from palus.rollout.workers import WorkerCollector
from palus.trust import Trust

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vizdoom") is None, reason="needs vizdoom: pip install 'palus[doom]'"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
]


class EvenPolicy:
    """Any action of `parameters` logits, with equal chances."""

    version, state_size, squash = 0, 0, False

    def __init__(self, parameters):
        self._parameters = parameters

    def act(self, observations, states, masks=None):
        R = len(states)
        return torch.zeros(R, self._parameters), torch.zeros(R), states


def doom_collector(game="doom_basic", **settings):
    spec = GameSource("doom_basic").spec
    collector = WorkerCollector(
        GameSource(game, trust=Trust(frozenset({"broken_doom"}))).single,
        spec,
        Sampling(**{"workers": 2, "decorrelate": False, **settings}),
        rows=4,
        horizon=8,
        seed=1,
        learners={0: ("", EvenPolicy(spec.behaviors[0].actions.parameters))},
        cast=lambda game: [Seat(0, True)],
        load=missing,
    )
    return closing(collector)


def test_killed_engines_and_workers_are_replaced_and_leave_nothing() -> None:
    with doom_collector() as s:
        page = s.collect().rollouts[0]
        assert page.agent_steps == 32
        assert page.observations["obs"].std() > 1
        seen = [engine for worker in s.pids for engine in children(worker)]
        assert len(seen) == 4
        os.kill(seen[0], signal.SIGKILL)
        eventually(lambda: s.collect() and lost(s) == (1, 0))
        os.kill(s.pids[1], signal.SIGKILL)
        eventually(lambda: s.collect() and lost(s) == (2, 0))
        eventually(lambda: s.collect().rollouts[0].agent_steps == 32)
        seen += [engine for worker in s.pids for engine in children(worker)]
        seen += s.pids
    eventually(lambda: not any(Path("/proc", str(pid)).exists() for pid in seen))


@pytest.mark.slow
def test_an_engine_that_hangs_is_replaced_with_its_worker() -> None:
    with doom_collector(timeout=8.0) as s:
        s.collect()
        hanging = children(s.pids[0])
        os.kill(hanging[0], signal.SIGSTOP)
        eventually(lambda: s.collect() and lost(s) == (0, 1), timeout_s=60)
        eventually(lambda: not any(Path("/proc", str(pid)).exists() for pid in hanging))
        eventually(lambda: s.collect().rollouts[0].agent_steps == 32)


def test_engines_that_cannot_start_end_the_run_and_leave_nothing() -> None:
    with doom_collector("broken_doom:make", max_restarts=2) as s:
        pids = s.pids
        with pytest.raises(
            WorkerError, match=r"max_restarts: 2\. The last one, worker \d: it ended with exit status -"
        ):
            s.collect()
        pids += s.pids
    eventually(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids))
