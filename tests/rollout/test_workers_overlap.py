"""Collecting over workers: what is done at once, beside the learner or beside other splits, and on which cores."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
import torch
from counting_game import DECISION
from counting_policy import CountingPolicy, counting_collector, own, played

from palus.nn.place import Placement
from palus.rollout.plan import Share, usable_cpus


def test_a_page_is_played_while_the_learner_is_at_work_and_waited_for() -> None:
    with counting_collector(8, slow=0.01, sampling={"workers": 2, "asynchronous": True}) as s:
        first = s.collect().rollouts[0]
        before = first.observations["obs"].copy()
        with s.beside():
            assert s._rounds.complete == 1
        assert s._rounds.complete == 2
        np.testing.assert_array_equal(first.observations["obs"], before)
        np.testing.assert_array_equal(s.collect().rollouts[0].observations["obs"][0], before[-1])


def test_who_leaves_the_learner_by_an_exception_waits_for_no_page() -> None:
    """As by Ctrl-C for the second time."""
    ready = threading.Event()
    ready.set()

    class Waiting(CountingPolicy):
        def act(self, *seen):
            ready.wait(5)
            return super().act(*seen)

    with counting_collector(8, policies={0: Waiting()}, sampling={"workers": 0, "asynchronous": True}) as s:
        s.collect()
        ready.clear()
        with pytest.raises(KeyboardInterrupt), s.beside():
            raise KeyboardInterrupt
        left = s._rounds.complete
        ready.set()
    assert left == 1, "the page goes on without it"


def test_what_is_played_beside_the_learner_waits_for_its_weights_and_not_for_its_work(monkeypatch) -> None:
    told = []
    for name in ("settle", "queue_apart"):
        monkeypatch.setattr(Placement, name, lambda _, name=name: told.append((name, threading.current_thread().name)))
    with counting_collector(8, sampling={"workers": 2, "asynchronous": True}) as s:
        s.collect()
        with s.beside():
            pass
    assert told == [("settle", "MainThread"), ("queue_apart", "palus-collector_0")]


def test_games_that_begin_anew_leave_the_page_that_was_played_beside_the_learner() -> None:
    with counting_collector(8, length=50, sampling={"workers": 2, "asynchronous": True}) as s:
        played(s)
        s.restart()
        for _ in range(2):
            page = played(s).rollouts[0]
            first = page.observations["obs"][0, :, DECISION]
        np.testing.assert_array_equal(first, 4)  # the second page after the start, not the third


class WatchingPolicy(CountingPolicy):
    """In its third batch, the second one of split 0, it waits until split 1 has been stepped too."""

    def __init__(self, log):
        super().__init__()
        self._log, self._batches, self.steps = log, 0, 0

    def act(self, observations, states, masks=None):
        self._batches += 1
        deadline = time.monotonic() + 20
        while self._batches == 3 and self.steps < 8 and time.monotonic() < deadline:
            self.steps = self._log.stat().st_size
        return super().act(observations, states)


def test_one_split_is_stepped_while_the_other_is_decided_for(tmp_path) -> None:
    policy = WatchingPolicy(tmp_path / "steps")
    with counting_collector(8, policies={0: policy}, log=str(tmp_path / "steps")) as s:
        s.collect()
    assert policy.steps == 8


class Meeting(CountingPolicy):
    """Slower than its games; counts how often it was asked for so many batches at once. jostle: seconds that it takes
    longer then."""

    def __init__(self, seconds=0.02, jostle=0.0):
        super().__init__(even=True)
        self.lock, self.busy, self.at_once = threading.Lock(), 0, Counter()
        self.seconds, self.jostle = seconds, jostle

    def act(self, observations, states, masks=None):
        with self.lock:
            self.busy += 1
        time.sleep(self.seconds)
        with self.lock:
            crowd = self.busy
            self.at_once[crowd] += 1
        time.sleep(self.seconds + self.jostle * (crowd > 1))
        with self.lock:
            self.busy -= 1
        return super().act(observations, states, masks)


@pytest.mark.parametrize(
    ("threads", "splits", "at_once"),
    [(1, 2, 1), (2, 2, 2), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((2, 4, 2), (4, 2, 2)))],
)
def test_splits_are_decided_for_side_by_side_and_nothing_else_changes(threads, splits, at_once) -> None:
    pages, policies = [], []
    for number in (1, threads):
        policies.append(Meeting())
        sampling = {"splits": splits, "workers": 2}
        with counting_collector(8, policies={0: policies[-1]}, sampling=sampling, threads=number) as s:
            s._rounds.weigh = lambda: None  # as it begins: side by side, where it can
            pages.append([own(s.collect()) for _ in range(3)])
    asked = 3 * 4 * splits  # a batch of every split for every decision
    assert policies[0].at_once == {1: asked} and policies[1].at_once[at_once] > 0.5 * asked
    for (page, ends), (expected, ended) in zip(*pages, strict=True):
        assert ends == ended
        for name in ("actions", "log_probs", "rewards", "states", "versions"):
            np.testing.assert_array_equal(getattr(page, name), getattr(expected, name))


@pytest.mark.parametrize(("beside", "compiled", "splits"), [(True, True, 1), (True, False, 2), (False, True, 2)])
def test_splits_overlap_where_no_learner_fills_the_cores(beside, compiled, splits) -> None:
    """A device works for itself: half of the games step meanwhile."""
    place = Placement(torch.device("cpu"), compiled=compiled)
    with counting_collector(8, sampling={"asynchronous": beside}, place=place) as s:
        assert s.plan.splits == splits
        assert played(s).rollouts[0].agent_steps == 32


@pytest.mark.skipif(sys.platform != "linux", reason="affinity and scheduling policies are Linux's")
def test_workers_wait_for_their_turn_and_a_core_that_they_leave_is_the_deciding_threads() -> None:
    """With policies on a device; elsewhere learners want all cores."""
    cores = usable_cpus()
    if len(cores) < 2:
        pytest.skip("a machine with one core has none to leave")
    for compiled, kept in ((False, cores[:1]), (True, cores)):
        place, workers = Placement(torch.device("cpu"), compiled=compiled), len(cores) - 1
        with counting_collector(4 * workers, sampling={"workers": workers, "asynchronous": True}, place=place) as s:
            s.collect()
            assert {os.sched_getscheduler(pid) for pid in s.pids} == {os.SCHED_BATCH}
            assert sorted(s._thread.submit(os.sched_getaffinity, 0).result()) == kept
            assert sorted(os.sched_getaffinity(0)) == cores


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="affinity is Linux's")
def test_workers_have_a_core_each_unless_other_ranks_of_this_machine_play_on_the_same_ones() -> None:
    usable = usable_cpus()
    if len(usable) < 2:
        pytest.skip("a machine with one core has no other one")
    cores = usable[:2]
    os.sched_setaffinity(0, cores)  # a large machine would start many
    try:
        for neighbours, expected in ((1, [[core] for core in cores]), (2, [cores, cores])):
            share = Share(0, neighbours, neighbours)
            with counting_collector(8, sampling={"workers": 2}, share=share) as s:
                s.collect()
                assert [sorted(os.sched_getaffinity(pid)) for pid in s.pids] == expected
    finally:
        os.sched_setaffinity(0, usable)


@pytest.mark.parametrize(("policy", "side_by_side"), [(Meeting(0.05), True), (Meeting(0.05, jostle=0.5), False)])
def test_splits_are_decided_for_in_the_quicker_way(policy, side_by_side) -> None:
    found = []
    with counting_collector(8, policies={0: policy}, threads=2) as s:
        for _ in range(5):
            s.collect()
            found.append(s._rounds._side_by_side)
    # In the first page games were started; the second one is measured, then the other way is.
    assert found == [True, False, side_by_side, side_by_side, side_by_side]
