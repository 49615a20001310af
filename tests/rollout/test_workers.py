"""Collecting over workers: rollouts hold what games did and what policies decided, in order, and repeat."""

from __future__ import annotations

import numpy as np
import pytest
from counting_game import AGENT, CHOICES, DECISION, SEED
from counting_policy import MODES, CountingPolicy, counting_collector, own, played

from palus.errors import EnvError
from palus.rollout.buffer import Buffer


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


def test_games_without_parameters_refuse_them() -> None:
    with counting_collector(8) as s, pytest.raises(EnvError, match="no environment parameters; found gravity"):
        s.set_parameters({"gravity": 2.0})
