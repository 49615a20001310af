"""The sampler: pages hold what the games did and what the policies decided, in order, for the right policy."""

from __future__ import annotations

import time

import numpy as np
import pytest
from counting_game import AGENT, CHOICES, DECISION, SEED
from sampled_games import CountingPolicy, counting_sampler

from palus.errors import EnvError
from palus.rollout.trajectories import FROZEN

MODES = [
    pytest.param({"workers": 0}, id="alone"),
    pytest.param({"workers": 2}, id="workers"),
    pytest.param({"workers": 0, "asynchronous": True}, id="alone, asynchronous"),
    pytest.param({"workers": 2, "asynchronous": True, "pages": 3}, id="workers, asynchronous"),
]


@pytest.mark.parametrize("sampling", MODES)
@pytest.mark.parametrize("truncate", [False, True])
def test_what_belongs_to_a_decision_lies_together(sampling, truncate) -> None:
    with counting_sampler(
        8, policies={0: CountingPolicy(3)}, reward_scale=0.5, truncate=truncate, sampling=sampling
    ) as s:
        last_seen = last_state = None
        for _ in range(4):
            page, ends = s.collect()
            decisions = page.observations["obs"][:-1, :, DECISION]
            assert page.samples == 32 and page.frames == 128
            np.testing.assert_array_equal(page.values, decisions)
            # The mean of the continuous action is the state, which counts along only if ends set it to zero.
            np.testing.assert_allclose(page.actions[:, :, 1], decisions, atol=0.01)
            np.testing.assert_array_equal(page.parameters[:, :, CHOICES], decisions)
            np.testing.assert_array_equal(page.states[:, 0], decisions[0])
            np.testing.assert_array_equal(page.last_states[:, 0], page.observations["obs"][-1, :, DECISION])
            np.testing.assert_array_equal(page.actions[:, :, 0], 3)
            np.testing.assert_array_equal(page.rewards, np.float32(1.5))
            np.testing.assert_array_equal(page.truncated, (decisions == 4) & truncate)
            np.testing.assert_array_equal(page.terminated, (decisions == 4) & (not truncate))
            # The value of the last observation, which names decision 5; the next one is the new episode's first.
            np.testing.assert_array_equal(page.final_values, 5.0 * page.truncated)
            assert (page.versions == 3).all()
            assert len(ends) == (decisions == 4).sum()
            assert {(e.frames, e.reward, e.true_objective, e.policy) for e in ends} <= {(20, 15.0, 1.0, 0)}
            if last_seen is not None:
                np.testing.assert_array_equal(page.observations["obs"][0], last_seen)
                np.testing.assert_array_equal(page.states, last_state)
            last_seen, last_state = page.observations["obs"][-1].copy(), page.last_states.copy()


def test_images_stay_bytes_and_belong_to_their_vectors() -> None:
    with counting_sampler(8) as s:
        page, _ = s.collect()
        picture = page.observations["picture"]
        assert picture.dtype == np.uint8 and picture.shape == (5, 8, 1, 2, 2)
        np.testing.assert_array_equal(picture[:, :, 0, 1, 1], page.observations["obs"][:, :, SEED] % 256)
        assert len(np.unique(page.observations["obs"][0, :, SEED])) == 8, "games share a seed"


@pytest.mark.parametrize("sampling", MODES)
def test_an_agent_that_left_gives_no_samples_and_starts_anew_with_the_game(sampling) -> None:
    with counting_sampler(8, horizon=10, agents=2, leaves={"1": 2}, sampling=sampling) as s:
        page, ends = s.collect()
        stays, leaves = page.valid[:, 0::2], page.valid[:, 1::2]
        assert stays.all()
        np.testing.assert_array_equal(leaves.T, [[1, 1, 0, 0, 0, 1, 1, 0, 0, 0]] * 4)
        # Without a decision a row counts as terminated: a learner's recurrent state begins at zero again.
        np.testing.assert_array_equal(page.terminated[:, 1], [0, 1, 1, 1, 1, 0, 1, 1, 1, 1])
        np.testing.assert_array_equal(page.parameters[:, 1, CHOICES][page.valid[:, 1]], [0, 1, 0, 1])
        assert {(e.agent, e.frames) for e in ends} == {(0, 20), (1, 8)}
        assert page.frames == 4 * (4 * 10 + 4 * 4)
        np.testing.assert_array_equal(page.observations["obs"][0, :, AGENT], [0, 1] * 4)


def test_agents_of_one_game_may_end_one_by_one_and_go_on() -> None:
    with counting_sampler(64, agents=64, alone=True, truncate=True, sampling={"workers": 0}) as s:
        s.collect()
        page, ends = s.collect()
        np.testing.assert_array_equal(page.values[:, 7], [4, 0, 1, 2])
        np.testing.assert_array_equal(page.parameters[:, 7, CHOICES], [4, 0, 1, 2])
        np.testing.assert_array_equal(page.final_values[:, 7], [5, 0, 0, 0])
        assert len(ends) == 64


def run(sampling, pages=3, **options):
    """The bytes of some pages of an even policy, and their episodes."""
    with counting_sampler(8, policies={0: CountingPolicy(even=True)}, sampling=sampling, **options) as s:
        found = []
        for _ in range(pages):
            page, ends = s.collect()
            arrays = {k: v for k, v in vars(page).items() if isinstance(v, np.ndarray)} | dict(page.observations)
            found.append(({k: v.tobytes() for k, v in arrays.items()}, ends))
        return found


def test_synchronous_pages_repeat_whatever_the_workers_timing() -> None:
    sampling = {"workers": 2, "decorrelate": True}
    swift = run(sampling, truncate=True)
    assert swift == run(sampling, truncate=True, slow=0.02)
    assert swift != run(sampling, truncate=True, seed=2)


def test_a_resumed_sampler_goes_on_as_one_that_restarted_its_games() -> None:
    options = {"policies": {0: CountingPolicy(even=True)}, "sampling": {"workers": 0, "decorrelate": True}}
    with counting_sampler(8, **options) as s:
        s.collect()
        s.restart_games(7)
        state = s.state_dict()
        whole, _ = s.collect()
        assert (whole.states == 0).all()
        with counting_sampler(8, **options) as resumed:
            resumed.load_state_dict(state)
            part, _ = resumed.collect()
            np.testing.assert_array_equal(part.observations["obs"][:, :, SEED], whole.observations["obs"][:, :, SEED])
            np.testing.assert_array_equal(part.actions, whole.actions)
        with counting_sampler(8, **options) as fresh:
            other, _ = fresh.collect()
            assert (other.observations["obs"][0, :, SEED] != whole.observations["obs"][0, :, SEED]).all()
            assert (other.actions != whole.actions).any()


def test_games_start_out_of_step_and_their_first_episode_does_not_count() -> None:
    with counting_sampler(16, length=40, sampling={"workers": 2, "decorrelate": True}) as s:
        page, ends = s.collect()
        starts = page.observations["obs"][0, :, DECISION]
        assert len(np.unique(starts)) >= 6 and starts.max() < 32
        for _ in range(18):
            ends += s.collect()[1]
        assert {e.frames for e in ends} == {160}


@pytest.mark.parametrize("sampling", [{"workers": 2}, {"workers": 2, "asynchronous": True}])
def test_each_decision_names_the_weights_that_took_it(sampling) -> None:
    with counting_sampler(8, sampling=sampling) as s:
        oldest = []
        for version in range(1, 7):
            page, _ = s.collect()
            np.testing.assert_array_equal(page.actions[:, :, 0], page.versions % CHOICES)
            oldest.append(int(page.versions.min()))
            s.publish(0, CountingPolicy(version))
        # Synchronous pages are played by the newest; others lag by what was under way: this page and one more.
        lag = 2 if "asynchronous" in sampling else 0
        assert oldest == sorted(oldest) and oldest[-1] >= 5 - lag


def test_policies_take_turns_in_games_and_learn_only_from_their_own_decisions() -> None:
    starts = [0] * 4

    def assign(game):
        starts[game] += 1
        return [(0, 1), (FROZEN, 1), (0, FROZEN)][starts[game] % 3]

    policies = {0: CountingPolicy(2), 1: CountingPolicy(5), FROZEN: CountingPolicy(7)}
    with counting_sampler(8, horizon=15, agents=2, policies=policies, assign=assign) as s:
        zero, ends = s.collect(0)
        one, other_ends = s.collect(1)
        assert not (zero.valid & one.valid).any()
        played = np.where(zero.valid, 2, np.where(one.valid, 5, 7))
        np.testing.assert_array_equal(zero.actions[:, :, 0], played)
        np.testing.assert_array_equal(zero.versions, played)
        np.testing.assert_array_equal(played[:, 0], [7] * 5 + [2] * 5 + [2] * 5)
        np.testing.assert_array_equal(played[:, 1], [5] * 5 + [7] * 5 + [5] * 5)
        assert [len(ends), len(other_ends)] == [8, 8]
        assert zero.observations["obs"].ctypes.data == one.observations["obs"].ctypes.data
        assert set(s.entropy) == {0, 1}


def test_agents_are_paid_by_their_policys_numbers_from_the_next_game_on() -> None:
    policies = {0: CountingPolicy(2), 1: CountingPolicy(5)}
    with counting_sampler(8, horizon=8, agents=2, bonus=True, policies=policies, assign=lambda game: (0, 1)) as s:
        s.shape_rewards(0, [10.0])
        page, _ = s.collect(0)
        np.testing.assert_array_equal(page.rewards[:, 0::2], 12.0)
        s.shape_rewards(0, [20.0])
        page, ends = s.collect(0)
        np.testing.assert_array_equal(page.rewards[:, 0], [12.0] * 2 + [22.0] * 5 + [22.0])
        assert [e.reward for e in ends] == [60.0] * 4 + [110.0] * 4
        assert [(e.policy, e.start) for e in s.all_ends] == [(0, 2), (1, 2)] * 4 + [(0, 3), (1, 3)] * 4
        page, _ = s.collect(1)
        np.testing.assert_array_equal(page.rewards[:, 1::2], 5.0)  # the specification's number


class WatchingPolicy(CountingPolicy):
    """In its third batch, the second one of split 0, it waits until split 1 has been stepped too."""

    def __init__(self, log):
        super().__init__()
        self._log, self._batches, self.steps = log, 0, 0

    def act(self, observations, states):
        self._batches += 1
        deadline = time.monotonic() + 20
        while self._batches == 3 and self.steps < 8 and time.monotonic() < deadline:
            self.steps = self._log.stat().st_size
        return super().act(observations, states)


def test_one_split_is_stepped_while_the_other_is_decided_for(tmp_path) -> None:
    policy = WatchingPolicy(tmp_path / "steps")
    with counting_sampler(8, policies={0: policy}, log=str(tmp_path / "steps")) as s:
        s.collect()
    assert policy.steps == 8


def test_a_reward_that_is_not_a_number_names_the_game() -> None:
    with (
        counting_sampler(8, poison=3, sampling={"workers": 0}) as s,
        pytest.raises(EnvError, match="the reward of agent 0 in game 0 is NaN or infinite"),
    ):
        s.collect()


@pytest.mark.parametrize("sampling", [{"workers": 2}, {"workers": 2, "asynchronous": True}])
def test_games_that_cannot_be_made_are_told_at_once_with_their_reason(sampling) -> None:
    with (
        counting_sampler(8, fault="the level is missing", sampling=sampling) as s,
        pytest.raises(EnvError, match=r"cannot be made or started(?s:.*)RuntimeError: the level is missing"),
    ):
        s.collect()
