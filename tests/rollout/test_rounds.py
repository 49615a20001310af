"""Rounds over workers that answer in any order and are lost at any instant: what is collected then. No processes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from mmap import mmap
from typing import Any

import numpy as np
import pytest
from counting_game import CHOICES, DECISION, SEED
from counting_policy import CountingPolicy, counting_collector, lost, own

from palus.errors import StoppedEarly
from palus.rollout.layout import Layout
from palus.rollout.pool import Lost
from palus.rollout.rollout import Seat
from palus.rollout.stepper import Answer, Assignment, Restart, StepOrder, Stepper


class Shuffled:
    """In the place of a `WorkerPool`. With every word some workers carry out some of their orders. losses: the chance
    that one is lost after an order, before its answer is heard or after it."""

    pids: Sequence[int] = ()

    def __init__(
        self, seed: int, losses: float, assignments: list[Assignment], layout: Layout, memory: int, **limits: float
    ) -> None:
        self.losses, self.lost, self._idle = losses, 0, 0
        self._assignments, self._layout, self._draw = assignments, layout, np.random.default_rng(seed)
        self._tables = layout.tables(mmap(memory, layout.size))
        self._orders: list[deque[Any]] = [deque() for _ in assignments]
        self._steppers = [self._stepper(given) for given in assignments]

    def _stepper(self, given: Assignment) -> Stepper:
        return Stepper(given, self._layout, self._tables, given.make)

    def order(self, workers: Sequence[int], order: Restart | StepOrder) -> None:
        for worker in workers:
            self._orders[worker].append(order)

    def hear(self, wait: bool = True) -> list[tuple[int, Answer] | Lost]:
        said = list[tuple[int, Answer] | Lost]()
        for worker in self._draw.permutation(len(self._orders)).tolist():
            while self._orders[worker] and self._draw.random() < 0.4:
                answer = self._steppers[worker].carry_out(self._orders[worker].popleft())
                gone = self._draw.random() < self.losses
                if not gone or self._draw.random() < 0.5:
                    said.append((worker, answer))
                if gone:
                    said.append(self._lose(worker))
        self._idle = self._idle + 1 if wait and not said and not any(self._orders) else 0
        assert self._idle < 3, "the games wait for decisions, and whoever decides for the games"
        return said

    def _lose(self, worker: int) -> Lost:
        self.lost += 1
        self._orders[worker].clear()
        self._steppers[worker].close()
        given = self._assignments[worker] = replace(self._assignments[worker], life=self._assignments[worker].life + 1)
        self._steppers[worker] = self._stepper(given)
        return Lost(worker, False, "it was shot")

    def set_parameters(self, parameters: Mapping[str, Any]) -> None:
        raise AssertionError("there are none")

    def wake(self) -> None:
        pass

    def close(self) -> None:
        for stepper in self._steppers:
            stepper.close()


@pytest.fixture
def shuffled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Collectors have such workers from now on."""

    def have(seed: int, losses: float = 0.0) -> None:
        monkeypatch.setattr("palus.rollout.workers.WorkerPool", partial(Shuffled, seed, losses))

    return have


SAMPLING = {"workers": 3, "splits": 2, "max_restarts": 1000}


@pytest.mark.parametrize("decorrelate", [False, True])
def test_what_is_told_does_not_depend_on_the_order_in_which_workers_answer(
    shuffled: Callable[..., None], decorrelate: bool
) -> None:
    def told(seed: int) -> list[Any]:
        shuffled(seed)
        options = {"agents": 2, "teams": (1, 0), "leaves": {0: 2}, "truncate": True}
        policies, sampling = {0: CountingPolicy(even=True)}, SAMPLING | {"decorrelate": decorrelate}
        with counting_collector(24, policies=policies, sampling=sampling, **options) as s:
            found = []
            for _ in range(4):
                collected = s.collect()
                rollout = collected.rollouts[0]
                arrays = {k: v.tobytes() for k, v in vars(rollout).items() if isinstance(v, np.ndarray)}
                seen = [v.tobytes() for v in (*rollout.observations.values(), *rollout.final_observations.values())]
                found.append((arrays, seen, collected.episodes, collected.matches))
                at, ended = [e.decision for e in collected.episodes], rollout.terminated | rollout.truncated
                assert at == sorted(at)
                assert decorrelate or np.bincount(at, minlength=4).tolist() == (ended & rollout.active).sum(1).tolist()
            return found

    assert told(0) == told(1) == told(2)


@pytest.mark.parametrize("seed", range(8))
def test_whoever_is_lost_at_any_instant_what_is_left_belongs_together(shuffled: Callable[..., None], seed: int) -> None:
    shuffled(seed, losses=[0.01, 0.05, 0.2][seed % 3])
    sampling = SAMPLING | {"decorrelate": seed % 2 == 0}
    episodes, latest, memory = [set[float]() for _ in range(12)], np.full(12, -1.0), np.zeros(12)
    with counting_collector(12, policies={0: CountingPolicy(3)}, truncate=True, sampling=sampling) as s:
        for _ in range(12):
            page, ends = own(s.collect())
            assert (page.active == page.active[0]).all(), "a lost worker takes its rows of the whole page with it"
            kept, seen = page.active[0], page.observations["obs"]
            np.testing.assert_array_equal(page.values[:, kept], seen[:-1, kept, DECISION])
            np.testing.assert_array_equal(page.truncated, (seen[:-1, :, DECISION] == 4) & kept)
            np.testing.assert_array_equal(page.final_observations["obs"][:, DECISION], 5.0)
            cut = np.argwhere(page.truncated)
            np.testing.assert_array_equal(page.final_observations["obs"][:, SEED], seen[cut[:, 0], cut[:, 1], SEED])
            assert {(e.length, e.reward) for e in ends} <= {(5, 15.0)}
            at = [(e.decision, e.slot) for e in ends]
            assert at == sorted(at)
            goes_on = seen[0, :, SEED] == latest
            memory[~goes_on] = 0.0
            finals = list[float]()
            for t in range(4):
                np.testing.assert_array_equal(page.parameters[t, kept, CHOICES], memory[kept])
                finals += (memory + 1)[page.truncated[t]].tolist()
                memory = np.where(page.truncated[t], 0.0, memory + 1)
            assert page.final_states[:, 0].tolist() == finals
            np.testing.assert_array_equal(page.last_states[kept, 0], memory[kept])
            for row in np.flatnonzero(kept).tolist():
                told = set(seen[:-1, row, SEED].tolist()) - ({latest[row]} if goes_on[row] else set())
                assert not told & episodes[row], "an episode came again"
                episodes[row] |= told
            latest = np.where(kept, seen[-1, :, SEED], -1.0)
        assert lost(s) == (s._workers.lost, 0) and s._workers.lost > 0


def test_games_that_are_to_start_anew_while_they_start_begin_as_they_were_told_last(
    shuffled: Callable[..., None],
) -> None:
    def seeds(interrupted: bool) -> list[float]:
        shuffled(1)
        with counting_collector(12, sampling=SAMPLING) as s:
            if interrupted:
                hear, s._workers.hear, s.stopped = s._workers.hear, lambda wait=True: [], lambda: True
                with pytest.raises(StoppedEarly):
                    s.collect()
                s._workers.hear, s.stopped = hear, lambda: False
                s.restart()
            else:
                s.load({"tick": 0, "counter": 1})
            page = s.collect().rollouts[0]
            np.testing.assert_array_equal(page.values, page.observations["obs"][:-1, :, DECISION])
            return page.observations["obs"][0, :, SEED].tolist()

    assert seeds(True) == seeds(False)


def test_matches_that_began_at_random_are_not_told_of_and_their_successors_are() -> None:
    asked = Counter[int]()

    def cast(slot: int) -> list[Seat]:
        asked[slot] += 1
        return [Seat(0, True)] * 2

    options = {"agents": 2, "teams": (0, 1), "length": 7, "sampling": {"workers": 0, "decorrelate": True}}
    with counting_collector(24, horizon=14, cast=cast, **options) as s:
        collected = s.collect()
        begun = collected.rollouts[0].observations["obs"][0, ::2, DECISION]
        whole = {game: 2 - bool(begun[game]) for game in range(12)}
        assert 0 < sum(begun > 0) < 12
        assert Counter(match.slot for match in collected.matches) == whole
        assert Counter(episode.slot for episode in collected.episodes) == {game: 2 * n for game, n in whole.items()}
    assert asked == dict.fromkeys(range(12), 3)  # who plays the third one is known


def test_episodes_that_were_given_up_leave_nothing_in_those_that_begin_in_their_place() -> None:
    with counting_collector(2, policies={0: CountingPolicy(3)}, sampling={"workers": 0}) as s:
        s.collect()
        s.restart()
        ends = [*s.collect().episodes, *s.collect().episodes]
    assert [(e.length, e.reward) for e in ends] == [(5, 15.0)] * 2
