"""Collecting over workers: rollouts hold what games did and what policies decided, in order, for the right policy."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter

import numpy as np
import pytest
import torch
from counting_game import AGENT, CHOICES, DECISION, SEED
from counting_policy import CountingPolicy, counting_collector, own, played

from palus.errors import EnvError
from palus.nn.place import Placement
from palus.rollout.buffer import Buffer
from palus.rollout.plan import Share, usable_cpus
from palus.rollout.rollout import FROZEN, Seat

MODES = [
    pytest.param({"workers": 0}, id="alone"),
    pytest.param({"workers": 2}, id="workers"),
    pytest.param({"workers": 0, "asynchronous": True}, id="alone, beside the learner"),
    pytest.param({"workers": 2, "asynchronous": True}, id="workers, beside the learner"),
]


@pytest.mark.parametrize("sampling", MODES)
@pytest.mark.parametrize("truncate", [False, True])
def test_what_belongs_to_a_decision_lies_together(sampling, truncate) -> None:
    with counting_collector(8, policies={0: CountingPolicy(3)}, truncate=truncate, sampling=sampling) as s:
        last_seen = last_state = None
        for _ in range(4):
            page, ends = own(played(s))
            decisions = page.observations["obs"][:-1, :, DECISION]
            assert page.agent_steps == 32 and page.last_active.all()
            np.testing.assert_array_equal(page.values, decisions)
            # The mean of the continuous action is the state, which counts along only if ends set it to zero.
            np.testing.assert_allclose(page.actions[:, :, 1], decisions, atol=0.01)
            np.testing.assert_array_equal(page.parameters[:, :, CHOICES], decisions)
            np.testing.assert_array_equal(page.states[:, 0], decisions[0])
            np.testing.assert_array_equal(page.last_states[:, 0], page.observations["obs"][-1, :, DECISION])
            np.testing.assert_array_equal(page.actions[:, :, 0], 3)
            np.testing.assert_array_equal(page.rewards, np.float32(3.0))
            assert page.masks is None and not page.group_rewards.any()
            np.testing.assert_array_equal(page.truncated, (decisions == 4) & truncate)
            np.testing.assert_array_equal(page.terminated, (decisions == 4) & (not truncate))
            # The last observation names decision 5, after as many of the state; the next one is the new episode's.
            np.testing.assert_array_equal(page.final_observations["obs"][:, DECISION], 5.0)
            last_seeds = page.observations["obs"][:-1, :, SEED][page.truncated]
            np.testing.assert_array_equal(page.final_observations["obs"][:, SEED], last_seeds)
            np.testing.assert_array_equal(page.final_states, np.full((page.truncated.sum(), 1), 5.0))
            assert (page.versions == 3).all()
            assert len(ends) == (decisions == 4).sum()
            assert {(e.length, e.reward, e.number("true_objective"), e.policy) for e in ends} <= {(5, 15.0, 1.0, 0)}
            if last_seen is not None:
                np.testing.assert_array_equal(page.observations["obs"][0], last_seen)
                np.testing.assert_array_equal(page.states, last_state)
            last_seen, last_state = page.observations["obs"][-1].copy(), page.last_states.copy()


def test_every_decision_of_all_pages_draws_with_a_key_of_its_own(monkeypatch) -> None:
    ticks, decide = [], Buffer.decide
    monkeypatch.setattr(Buffer, "decide", lambda *given: (ticks.append(given[-1]), decide(*given))[1])
    with counting_collector(4, sampling={"workers": 0}) as s:
        for _ in range(3):
            s.collect()
    assert ticks == list(range(12))


def test_images_stay_bytes_and_belong_to_their_vectors() -> None:
    with counting_collector(8) as s:
        page, _ = own(s.collect())
        picture = page.observations["picture"]
        assert picture.dtype == np.uint8 and picture.shape == (5, 8, 1, 2, 2)
        np.testing.assert_array_equal(picture[:, :, 0, 1, 1], page.observations["obs"][:, :, SEED] % 256)
        assert len(np.unique(page.observations["obs"][0, :, SEED])) == 8, "games share a seed"


@pytest.mark.parametrize("sampling", MODES)
def test_an_agent_that_left_gives_no_samples_and_starts_anew_with_the_game(sampling) -> None:
    with counting_collector(8, horizon=10, agents=2, leaves={"1": 2}, sampling=sampling) as s:
        page, ends = own(s.collect())
        stays, leaves = page.active[:, 0::2], page.active[:, 1::2]
        assert stays.all()
        np.testing.assert_array_equal(leaves.T, [[1, 1, 0, 0, 0, 1, 1, 0, 0, 0]] * 4)
        # Without a decision a row counts as terminated: a learner's recurrent state begins at zero again.
        np.testing.assert_array_equal(page.terminated[:, 1], [0, 1, 1, 1, 1, 0, 1, 1, 1, 1])
        np.testing.assert_array_equal(page.parameters[:, 1, CHOICES][page.active[:, 1]], [0, 1, 0, 1])
        assert {(e.agent, e.length, e.left_early) for e in ends} == {(0, 5, False), (1, 2, False)}
        assert page.agent_steps == 4 * 10 + 4 * 4
        np.testing.assert_array_equal(page.observations["obs"][0, :, AGENT], [0, 1] * 4)


def test_agents_of_one_game_may_end_one_by_one_and_go_on() -> None:
    with counting_collector(64, agents=64, alone=True, truncate=True, sampling={"workers": 0}) as s:
        s.collect()
        page, ends = own(s.collect())
        np.testing.assert_array_equal(page.values[:, 7], [4, 0, 1, 2])
        np.testing.assert_array_equal(page.parameters[:, 7, CHOICES], [4, 0, 1, 2])
        np.testing.assert_array_equal(np.argwhere(page.truncated), [(0, row) for row in range(64)])
        np.testing.assert_array_equal(page.final_observations["obs"][:, [DECISION, AGENT]], [(5, i) for i in range(64)])
        assert len(ends) == 64


def run(sampling, pages=3, **options):
    """The bytes of some pages of an even policy, and their episodes."""
    with counting_collector(8, policies={0: CountingPolicy(even=True)}, sampling=sampling, **options) as s:
        found = []
        for _ in range(pages):
            page, ends = own(played(s))
            arrays = {k: v for k, v in vars(page).items() if isinstance(v, np.ndarray)} | dict(page.observations)
            arrays |= {f"final {k}": v for k, v in page.final_observations.items()}
            found.append(({k: v.tobytes() for k, v in arrays.items()}, ends))
        return found


def test_pages_repeat_whatever_the_workers_timing_and_when_they_are_played() -> None:
    sampling = {"workers": 2, "decorrelate": True}
    swift = run(sampling, truncate=True)
    assert swift == run(sampling, truncate=True, slow=0.02)
    assert swift == run(sampling | {"asynchronous": True}, truncate=True)
    assert swift != run(sampling, truncate=True, seed=2)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_resumed_collector_goes_on_as_one_that_never_stopped(asynchronous) -> None:
    sampling = {"workers": 0, "decorrelate": True, "asynchronous": asynchronous}
    options = {"policies": {0: CountingPolicy(even=True)}, "sampling": sampling}
    with counting_collector(8, **options) as s:
        played(s)
        state = s.save()
        whole = s.collect().rollouts[0]
        assert (whole.states == 0).all()
        with counting_collector(8, **options) as resumed:
            resumed.load(state)
            part = resumed.collect().rollouts[0]
            np.testing.assert_array_equal(part.observations["obs"][:, :, SEED], whole.observations["obs"][:, :, SEED])
            np.testing.assert_array_equal(part.actions, whole.actions)
            assert resumed.save()["tick"] == state["tick"] + 1  # where a third part's draws go on
        with counting_collector(8, **options) as fresh:
            other = fresh.collect().rollouts[0]
            assert (other.observations["obs"][0, :, SEED] != whole.observations["obs"][0, :, SEED]).all()
            assert (other.actions != whole.actions).any()


def test_games_start_out_of_step_and_their_first_episode_does_not_count() -> None:
    with counting_collector(16, length=40, sampling={"workers": 2, "decorrelate": True}) as s:
        page, ends = own(s.collect())
        starts = page.observations["obs"][0, :, DECISION]
        assert len(np.unique(starts)) >= 6 and starts.max() < 32
        for _ in range(18):
            ends += s.collect().episodes
        assert {e.length for e in ends} == {40}


@pytest.mark.parametrize(("games", "decisions"), [(6, 4 * 6), (40, 4 * 16)])
def test_games_are_put_out_of_step_over_as_many_rollouts_as_there_are_games_and_sixteen_at_most(games, decisions):
    with counting_collector(games, sampling={"workers": 0, "decorrelate": True}) as s:
        assert s._warm_up == decisions


@pytest.mark.parametrize("asynchronous", [False, True])
def test_each_decision_names_the_weights_that_took_it(asynchronous) -> None:
    with counting_collector(8, sampling={"workers": 2, "asynchronous": asynchronous}) as s:
        found = []
        for version in range(1, 6):
            page = played(s).rollouts[0]
            np.testing.assert_array_equal(page.actions[:, :, 0], page.versions % CHOICES)
            found.append(set(page.versions.ravel().tolist()))
            s.policies.publish(0, CountingPolicy(version))
        # A page that is played beside the learner has the weights from before its update, all of it.
        assert found == [{0}, *({max(version - asynchronous, 0)} for version in range(1, 5))]


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


LEARNS = [Seat(policy, True) for policy in (0, 1)]
PAST = Seat(FROZEN, False)


def test_policies_take_turns_in_games_and_learn_only_from_their_own_decisions() -> None:
    starts = [0] * 4

    def cast(game):
        starts[game] += 1
        return [(LEARNS[0], LEARNS[1]), (PAST, LEARNS[1]), (LEARNS[0], PAST)][starts[game] % 3]

    policies = {0: CountingPolicy(2), 1: CountingPolicy(5), FROZEN: CountingPolicy(7)}
    frozen = policies.pop(FROZEN)
    with counting_collector(8, horizon=15, agents=2, policies=policies, cast=cast, load=lambda policy: frozen) as s:
        collected = s.collect()
        (zero, ends), (one, other_ends) = own(collected, 0), own(collected, 1)
        assert not (zero.active & one.active).any()
        played = np.where(zero.active, 2, np.where(one.active, 5, 7))
        np.testing.assert_array_equal(zero.actions[:, :, 0], played)
        np.testing.assert_array_equal(zero.versions, played)
        np.testing.assert_array_equal(played[:, 0], [7] * 5 + [2] * 5 + [2] * 5)
        np.testing.assert_array_equal(played[:, 1], [5] * 5 + [7] * 5 + [5] * 5)
        assert [len(ends), len(other_ends), len(collected.episodes)] == [8, 8, 24]
        assert zero.observations["obs"].ctypes.data == one.observations["obs"].ctypes.data
        assert set(collected.entropies) == {0, 1}
        # After the page every game's fourth match begins, between a past policy and learner 1.
        np.testing.assert_array_equal(zero.last_active, False)
        np.testing.assert_array_equal(one.last_active, [0, 1] * 4)
        told = [(m.slot, m.seats) for m in collected.matches]
        turns = [(PAST, LEARNS[1]), (LEARNS[0], PAST), (LEARNS[0], LEARNS[1])]
        assert told == [(game, seats) for seats in turns for game in range(4)]


def test_a_seat_that_does_not_learn_plays_with_the_newest_weights_and_leaves_no_decision() -> None:
    with counting_collector(8, agents=2, cast=lambda game: [Seat(0, True), Seat(0, False)]) as s:
        page = s.collect().rollouts[0]
        np.testing.assert_array_equal(page.active, [[1, 0] * 4] * 4)
        s.policies.publish(0, CountingPolicy(3))
        collected = s.collect()
        np.testing.assert_array_equal(collected.rollouts[0].actions[:, :, 0], 3)
        assert {(e.agent, e.policy, e.learned) for e in collected.episodes} == {(0, 0, True), (1, 0, False)}


class Remembering(CountingPolicy):
    state_size = 3

    def act(self, observations, states, masks=None):
        assert states.shape[1] == 3
        return super().act(observations, states, masks)


def test_each_learns_from_a_memory_as_wide_as_its_own() -> None:
    policies, options = {0: CountingPolicy(), 1: Remembering()}, {"truncate": True, "sampling": {"workers": 0}}
    with counting_collector(8, horizon=7, agents=2, policies=policies, cast=lambda game: LEARNS, **options) as s:
        s.collect()
        for policy, rollout in s.collect().rollouts.items():
            size, own = policies[policy].state_size, slice(policy, None, 2)
            np.testing.assert_array_equal(rollout.states[own], np.full((4, size), 2.0))
            np.testing.assert_array_equal(rollout.last_states[own], np.full((4, size), 4.0))
            np.testing.assert_array_equal(rollout.final_states, np.full((4, size), 5.0))
            assert rollout.states.shape == (8, size)


@pytest.mark.parametrize("sampling", MODES)
def test_who_comes_in_mid_run_may_remember_more_than_all_before(sampling) -> None:
    """It plays the second match of a game."""
    casts = Counter()

    def cast(game):
        casts[game] += 1
        return [Seat(0, True), Seat(FROZEN if casts[game] == 2 else 0, False)]

    late = Remembering(3)
    with counting_collector(8, horizon=3, agents=2, cast=cast, load=lambda policy: late, sampling=sampling) as s:
        seen = []
        for _ in range(4):
            page, _ = own(played(s))
            assert page.states.shape == page.last_states.shape == (8, 1)
            told = page.observations["obs"][:-1, :, DECISION], page.parameters[:, :, CHOICES], page.versions[:, 1]
            seen += [array.copy() for array in told]
        # Who remembers counts along, whoever it is.
        np.testing.assert_array_equal(np.concatenate(seen[0::3]), np.concatenate(seen[1::3]))
        assert np.concatenate(seen[2::3]).tolist() == [0] * 5 + [3] * 5 + [0] * 2


class Squashing(CountingPolicy):
    squash = True


def test_numbers_reach_the_game_as_each_policy_draws_them_clipped_or_squashed() -> None:
    policies, cast = {0: Squashing(), FROZEN: CountingPolicy()}, lambda game: [LEARNS[0] if game % 2 else PAST]
    sampling = {"workers": 0}
    with counting_collector(
        2, 8, policies={0: policies[0]}, cast=cast, load=policies.__getitem__, sampling=sampling, length=3
    ) as s:
        episodes = s.collect().episodes
    told = {e.policy: e.stats["true_objective"] for e in episodes}  # the last of three decisions draws 2
    assert told == {FROZEN: pytest.approx(1.0, abs=1e-3), 0: pytest.approx(np.tanh(2.0), abs=1e-3)}


def test_a_retired_policy_plays_its_matches_to_their_end() -> None:
    seats = {"now": FROZEN}
    loaded = []

    def load(policy):
        loaded.append(policy)
        return CountingPolicy(1 + policy - FROZEN)

    def cast(game):
        return [LEARNS[0], Seat(seats["now"], False)]

    with counting_collector(4, agents=2, cast=cast, load=load, sampling={"workers": 0}) as s:
        s.collect()
        assert s.in_play == {FROZEN}
        seats["now"] = FROZEN + 1
        s.policies.retired.add(FROZEN)
        page = s.collect().rollouts[0]
        np.testing.assert_array_equal(page.actions[:, 1, 0], [1, 2, 2, 2])
        assert s.in_play == {FROZEN + 1} and loaded == [FROZEN, FROZEN + 1]
        seats["now"] = FROZEN  # its weights have been forgotten
        s.collect()
        s.collect()
        assert loaded == [FROZEN, FROZEN + 1, FROZEN]
        s.save()  # which ends all matches
        assert s.in_play == set()


@pytest.mark.parametrize("sampling", MODES)
def test_members_of_a_group_are_neighbours_and_share_what_it_is_paid(sampling) -> None:
    options = {"agents": 4, "teams": (1, 0, 1, 0), "leaves": {"2": 2}, "sampling": sampling}
    with counting_collector(16, horizon=5, policies={0: CountingPolicy(3)}, **options) as s:
        collected = s.collect()
        page = collected.rollouts[0]
        assert page.group_size == 2
        np.testing.assert_array_equal(page.observations["obs"][0, :, AGENT], [1, 3, 0, 2] * 4)
        np.testing.assert_array_equal(page.actions[:, :, 0], 3)
        np.testing.assert_array_equal(page.group_rewards, page.active)
        np.testing.assert_array_equal(page.active[:, 3], [1, 1, 0, 0, 0])
        ends = [(e.slot, e.agent, e.reward, e.group_reward, e.left_early) for e in collected.episodes]
        left = [(game, 2, 6.0, 2.0, True) for game in range(4)]
        assert ends == left + [(game, agent, 15.0, 5.0, False) for game in range(4) for agent in (0, 1, 3)]
        assert collected.episodes[-1].number("reward") == 20.0
        assert [(m.slot, m.points) for m in collected.matches] == [(game, (1.0, 0.0)) for game in range(4)]


def test_agents_are_paid_by_their_policys_numbers_from_the_next_game_on() -> None:
    policies = {0: CountingPolicy(2), 1: CountingPolicy(5)}
    with counting_collector(8, horizon=8, agents=2, bonus=True, policies=policies, cast=lambda game: LEARNS) as s:
        s.shape_rewards(0, [10.0])
        page = s.collect().rollouts[0]
        np.testing.assert_array_equal(page.rewards[:, 0::2], 12.0)
        s.shape_rewards(0, [20.0])
        collected = s.collect()
        page, ends = own(collected)
        np.testing.assert_array_equal(page.rewards[:, 0], [12.0] * 2 + [22.0] * 5 + [22.0])
        assert [e.reward for e in ends] == [60.0] * 4 + [110.0] * 4
        assert [e.policy for e in collected.episodes] == [0, 1] * 8
        page = s.collect().rollouts[1]
        np.testing.assert_array_equal(page.rewards[:, 1::2], 5.0)  # the specification's number


def test_games_without_parameters_refuse_them() -> None:
    with counting_collector(8) as s, pytest.raises(EnvError, match="no environment parameters; found gravity"):
        s.set_parameters({"gravity": 2.0})


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


def test_a_reward_that_is_not_a_number_names_the_game() -> None:
    with (
        counting_collector(8, poison=3, sampling={"workers": 0}) as s,
        pytest.raises(EnvError, match="the reward of agent 0 in game 0 is NaN or infinite"),
    ):
        s.collect()


def test_what_goes_wrong_beside_the_learner_the_next_page_tells() -> None:
    with counting_collector(8, length=50, poison=6, sampling={"workers": 0, "asynchronous": True}) as s:
        assert played(s).rollouts[0].agent_steps == 32
        with pytest.raises(EnvError, match="the reward of agent 0 in game 0 is NaN or infinite"):
            s.collect()


@pytest.mark.parametrize("sampling", [{"workers": 2}, {"workers": 2, "asynchronous": True}])
def test_games_that_cannot_be_made_are_told_at_once_with_their_reason(sampling) -> None:
    with (
        counting_collector(8, fault="the level is missing", sampling=sampling) as s,
        pytest.raises(EnvError, match=r"cannot be made or started(?s:.*)RuntimeError: the level is missing"),
    ):
        s.collect()
