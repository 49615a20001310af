"""A worker's pace: how many jobs it takes at once, when it hands in what is done, how long it rests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from palus.arena.jobs.worker import Done, Lease, _keep_alive, work
from palus.errors import ArenaError, UnreachableError


class Timed:
    """An arena that always has jobs, which take two seconds each of a clock of its own. asked: how many were wanted
    each time; handed_in: how many reports came each time."""

    lease_s, play_s, pause_s = 1e9, 30.0, 0.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.asked, self.handed_in = 0.0, list[int](), list[int]()
        monkeypatch.setattr("palus.arena.jobs.worker.time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr("palus.arena.jobs.worker._run", self.run)

    def run(self, _source: object, _lease: Lease) -> Any:
        self.now_s += 2.0

    def take(self, count: int) -> list[Lease]:
        self.asked.append(count)
        return [Lease(number, "pair", {}, "secret", 1) for number in range(count)]

    def renew(self, leases: Sequence[Lease]) -> None:
        pass

    def model(self, sha256: str) -> bytes:
        return b""

    def finish(self, done: Sequence[Done]) -> set[int]:
        self.handed_in.append(len(done))
        return set()

    def give_back(self, lease: Lease, fault: str) -> None:
        pass


def test_a_worker_takes_what_lasts_as_long_as_a_question_is_worth_and_hands_in_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arena = Timed(monkeypatch)
    assert work(arena, threading.Event(), max_jobs=20) == 20
    assert (arena.asked, arena.handed_in) == ([1, 15, 4], [1, 6, 6, 3, 4])


def test_what_went_to_another_worker_meanwhile_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(Timed):
        def finish(self, done: Sequence[Done]) -> set[int]:
            return {lease.job_id for lease, _ in done[1:]}

    arena = Late(monkeypatch)
    assert work(arena, threading.Event(), max_jobs=4) == 4
    assert arena.asked == [1, 3, 2, 1]


def test_who_is_told_to_stop_waits_no_longer_for_an_arena_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(Timed):
        def finish(self, done: Sequence[Done]) -> set[int]:
            assert super().finish(done) == set() and len(self.handed_in) < 9, "it tries for ever"
            raise UnreachableError("the arena is away")

    arena, stop = Away(monkeypatch), threading.Event()
    monkeypatch.setattr(stop, "wait", lambda seconds: stop.set() if len(arena.handed_in) == 3 else None)
    assert work(arena, stop) == 0
    assert arena.handed_in == [1, 1, 1, 1]


def test_a_worker_that_has_done_a_job_rests_no_longer_than_the_first_time_when_it_fails_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Failing(Timed):
        def run(self, _source: object, _lease: Lease) -> Any:
            if len(self.asked) % 3:
                raise ArenaError("the disk is full")

    arena, stop, rests = Failing(monkeypatch), threading.Event(), list[float]()
    monkeypatch.setattr(stop, "wait", rests.append)
    assert work(arena, stop, max_jobs=2) == 2
    assert rests == [1.0, 2.0, 1.0, 2.0]


def test_leases_are_renewed_twice_before_they_end() -> None:
    waits = list[float]()
    arena: Any = SimpleNamespace(lease_s=30.0, renew=lambda leases: None)
    finished: Any = SimpleNamespace(wait=lambda seconds: waits.append(seconds) or len(waits) == 3)
    _keep_alive(arena, [], finished, threading.Event())
    assert waits == [10.0, 10.0, 10.0]
