"""What rollouts hold of agents that come, end and decide when they please, told by hand-written messages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from stories import (
    KIND,
    Story,
    Wild,
    collector,
    news,
    one,
    out_of_step,
    rows_of,
    steps,
    together,
)
from toys import behavior_of

from palus.learn.poca import POCA
from palus.learn.returns import kept_memory, usable_decisions
from palus.learn.signals import decisions_of
from palus.rollout.learner_stretches import Demand, LearnerStretches
from palus.unity.news import News


def test_who_wants_stretches_as_a_whole_gets_them_of_every_agent() -> None:
    told = [news(steps(*[(agent, float(t), 0.0) for agent in range(5)])) for t in range(9)]
    games = collector(Story(told), rows=4, horizon=4)
    record = games._records[0]
    record.demand = record.demand._replace(whole=True)
    assert [len(row) for row in rows_of(one(games.collect()))] == [4] * 5


def test_agents_that_are_born_under_new_ids_keep_no_rollout_waiting() -> None:
    told = [
        news(steps((life, float(age), 0.0)), steps((life - 1, 9.0, 1.0)) if life and not age else None)
        for life in range(40)
        for age in range(3)
    ]
    games = collector(Story(told), rows=4, horizon=4)
    games._records[0].demand = games._records[0].demand._replace(whole=True)
    games.stopped = lambda: games.tick > 20
    for _ in range(2):
        assert one(games.collect()).agent_steps == 4


def test_agents_that_end_together_are_waited_for_when_no_rollout_is_as_long_yet() -> None:
    said = [news(steps((1, 0.0, 0.0), (2, 0.0, 0.0))), news(steps((1, 1.0, 0.0), (2, 1.0, 0.0)))]
    told = [*said, news(None, steps((1, 2.0, 1.0), (2, 2.0, 1.0)))] * 9
    games = collector(Story(told), rows=4, horizon=4)
    games._records[0].demand = games._records[0].demand._replace(whole=True)
    assert [len(row) for row in rows_of(one(games.collect()))] == [4, 4]


def test_a_rollout_waits_for_as_many_as_were_there_at_once_since_the_one_before() -> None:
    told = [news(steps((1, 0.0, 0.0), (2, 50.0, 0.0))), news(steps((1, 1.0, 0.0), (2, 51.0, 0.0)))]
    told += [news(steps((1, 2.0, 0.0)), steps((2, 52.0, 1.0))), *(news(steps((1, 3.0 + t, 0.0))) for t in range(20))]
    games = collector(Story(told), rows=4, horizon=4)
    games._records[0].demand = games._records[0].demand._replace(whole=True)
    assert [one(games.collect()).agent_steps for _ in range(3)] == [8, 4, 4]


def test_an_agent_that_decides_every_third_message_has_a_row_without_gaps() -> None:
    told = []
    for t in range(13):
        own = [(1, float(t), 0.5)] + ([(2, 100.0 + t, 3.0)] if t % 3 == 0 else [])
        told.append(news(steps(*own)))
    rollout = one(collector(Story(told), rows=16).collect())
    often, seldom = rows_of(rollout)
    assert often == [(float(t), 0.5, "" if t < 11 else "cut") for t in range(12)]
    assert seldom == [(100.0, 3.0, ""), (103.0, 3.0, ""), (106.0, 3.0, ""), (109.0, 3.0, "cut")]
    assert rollout.final_observations["obs_0"].ravel().tolist() == [112.0, 12.0]
    assert usable_decisions(rollout).sum() == rollout.agent_steps == 16
    # Both remember every decision of theirs, and no other: the one of 2 was cut at t = 3.
    assert rollout.final_states.ravel().tolist() == [4.0, 12.0]


def test_an_early_end_and_the_return_under_the_same_id_in_one_message() -> None:
    told = [
        news(steps((1, 0, 0), (2, 50, 0))),
        news(steps((1, 2, 0), (2, 51, 1)), steps((1, 1, 7.0))),  # 1 ends, and begins again
        news(steps((2, 52, 1)), steps((1, 9, -1.0), truncated=True)),  # 1 is cut off, and stays away
        news(steps((2, 53, 1))),
        news(steps((1, 4, 99.0), (2, 54, 1))),  # 1 is back; what it says of rewards is of nobody's decision
        news(steps((1, 5, 2.0), (2, 55, 1))),
    ]
    found = collector(Story(told), rows=8).collect()
    rollout = one(found)
    assert rows_of(rollout)[0] == [(0.0, 7.0, "x"), (2.0, -1.0, "cut"), (4.0, 2.0, "cut")]
    first = np.argwhere(rollout.concluded)[:, 1] == 0
    assert rollout.final_observations["obs_0"][first, 0].tolist() == [1.0, 9.0, 5.0]
    assert rollout.final_states[first, 0].tolist() == [1.0, 1.0, 1.0]  # memory begins anew with every episode
    assert [(e.length, e.reward) for e in found.episodes] == [(1, 7.0), (1, -1.0)]


def test_stretches_are_cut_at_the_horizon_and_go_on_in_the_next_rollout() -> None:
    games = collector(Story([news(steps((1, float(t), 1.0))) for t in range(40)]), rows=10, horizon=4)
    rollout = one(games.collect())
    assert [[seen for seen, *_ in row] for row in rows_of(rollout)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert rollout.final_observations["obs_0"].ravel().tolist() == [10.0, 4.0, 8.0]
    assert rollout.states[:, 0].tolist() == [0.0, 4.0, 8.0]
    rollout = one(games.collect())
    assert [[seen for seen, *_ in row] for row in rows_of(rollout)] == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19]]
    assert rollout.states[0, 0] == 10.0


def test_what_only_a_rollout_cut_off_has_not_ended_for_who_learns_rewards() -> None:
    told = [
        news(steps((1, 0.0, 0.0), (2, 10.0, 0.0))),
        news(steps((1, 1.0, 1.0), (2, 11.0, 1.0))),
        news(steps((1, 2.0, 1.0)), steps((2, 12.0, 1.0), truncated=True)),
        news(steps((1, 3.0, 1.0))),
        news(steps((1, 4.0, 1.0))),
    ]
    rollout = one(collector(Story(told), rows=5, horizon=2).collect())
    index = np.flatnonzero(rollout.active & rollout.truncated)
    decisions = decisions_of(rollout, index, KIND.actions, False)
    ended = dict(zip(decisions.following["obs_0"].ravel().tolist(), decisions.ended.tolist(), strict=True))
    assert ended == {2.0: False, 3.0: False, 12.0: True}


@pytest.mark.parametrize("ends", [False, True])
def test_who_learns_rewards_sees_what_came_of_a_decision_after_which_its_agent_waited(ends: bool) -> None:
    """2 decides in every third message, the one that ends the rollout among them, or ends before it would."""
    told = [news(steps(*[(1, float(t), 0)] + ([(2, 50.0 + t, 0)] if t % 3 == 0 else []), group=5)) for t in range(10)]
    if ends:
        told[5] = news(steps((1, 5.0, 0.0), group=5), steps((2, 99.0, 0.0), group=5))
        told[6:] = [news(steps((1, float(t), 0.0), group=5)) for t in range(6, 20)]
    rollout = one(collector(Story(told), rows=12, grouped=True).collect())
    assert (usable_decisions(rollout) == rollout.active).all()
    found = decisions_of(rollout, np.flatnonzero(rollout.active), KIND.actions, False)
    before, after = (seen["obs_0"].ravel().tolist() for seen in (found.observations, found.following))
    seldom = {50.0: (53.0, False), **({53.0: (99.0, True)} if ends else {53.0: (56.0, False), 56.0: (59.0, False)})}
    often = {float(t): (t + 1.0, False) for t in range(10 if ends else 9)}
    assert dict(zip(before, zip(after, found.ended.tolist(), strict=True), strict=True)) == often | seldom
    assert found.known.all()


def test_an_agent_that_moved_to_another_group_has_not_ended_for_who_learns_rewards() -> None:
    told = [news(steps((1, 0.0, 0.0), (2, 10.0, 0.0), group=5))]
    told += [news(together(steps((1, t, 1.0), group=6), steps((2, 10.0 + t, 1.0), group=5))) for t in range(1, 5)]
    rollout = one(collector(Story(told), rows=8, grouped=True).collect())
    index = np.flatnonzero(rollout.active & rollout.truncated)
    assert len(index) == 3 and not decisions_of(rollout, index, KIND.actions, False).ended.any()


def test_a_group_keeps_its_members_in_step_with_one_that_comes_late_and_one_that_leaves() -> None:
    told = [
        news(steps((1, 0, 0), (2, 10, 0), group=5)),
        news(steps((1, 1, 1), (2, 11, 1), (3, 21, 0), group=5)),  # 3 comes late
        news(steps((1, 2, 1), (3, 22, 1), group=5), steps((2, 12, 4), group=5)),  # 2 leaves early
        news(None, steps((1, 3, 1), (3, 23, 1), group=5, group_reward=2.0)),  # the whole group is gone
        news(steps((1, 4, 0), (2, 14, 0), (3, 24, 0), group=5)),
        news(steps((1, 5, 1), (2, 15, 1), (3, 25, 1), group=5)),
    ]
    collected = collector(Story(told), rows=10, grouped=True).collect()
    rollout = one(collected)
    assert [(e.length, e.left_early) for e in collected.episodes] == [(2, True), (3, False), (2, False)]
    assert rollout.group_size == 3
    assert rollout.active[:4].tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 1, 1]]
    assert rollout.terminated[:3].tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 1]]
    assert rollout.truncated[:4].tolist() == [[False] * 3] * 3 + [[True] * 3]
    assert rollout.group_rewards[2].tolist() == [2.0, 0.0, 2.0]
    assert rollout.observations["obs_0"][3, :, 0].tolist() == [4.0, 14.0, 24.0]


def test_agents_of_no_group_are_no_group() -> None:
    told = [news(steps((1, float(t), 1.0), (2, 10.0 + t, 1.0))) for t in range(5)]
    rollout = one(collector(Story(told), rows=4, grouped=True).collect())
    assert rollout.group_size == 1 and rollout.active.shape[1] == 2


def test_each_who_is_cut_off_in_one_message_keeps_what_it_saw_itself() -> None:
    said = [news(steps((1, 1.0, 0.0), (2, 2.0, 0.0))), news(None, steps((1, 3.0, 1.0), (2, 4.0, 1.0), truncated=True))]
    rollout = one(collector(Story([*said, news(steps((5, 9.0, 0.0)))]), rows=3).collect())
    assert rollout.final_observations["obs_0"].ravel().tolist()[:2] == [3.0, 4.0]


def test_agents_are_known_by_their_game_when_another_one_is_lost_or_they_move() -> None:
    record, name = LearnerStretches(Demand(9, 100, True), KIND, 1), "B?team=0"

    def decide(game: int, *agents: int, group: int = 3) -> list[int]:
        told = steps(*[(agent, 0.0, 0.0) for agent in agents], group=group)
        return record.add(game, name, told, told.observations, {}).tolist()

    decide(0, 1)
    (row,), ended = decide(1, 1), steps((1, 0.0, 0.0), group=3)
    last = row + 1
    record.close(0, [name])
    record.end(1, name, ended, 0, row, np.zeros(1, np.float32))
    assert record._open[1, name, -3].members == {}
    first, _ = decide(2, 1, 2)
    decide(2, 2)  # the first waits
    (moved,) = decide(2, 1, group=4)
    followed = enumerate(record._decisions["followed"][: moved + 1].tolist())
    assert {k: after for k, after in followed if after >= 0} == {row: last, first: moved}


def test_members_that_are_born_anew_take_the_places_of_those_that_ended() -> None:
    told = [news(steps((2 * t, t, 1), (2 * t + 1, t, 1), group=3), None if not t else
                 steps((2 * t - 2, 0, 1), (2 * t - 1, 0, 1), group=3)) for t in range(6)]  # fmt: skip
    rollout = one(collector(Story(told), rows=10, grouped=True).collect())
    assert rollout.group_size == 2 and rollout.terminated[:5].all() and rollout.agent_steps == 10


def test_a_group_of_whom_some_have_left_is_worth_the_same_in_every_rollout() -> None:
    told = [
        news(steps((1, 0, 0), (2, 10, 0), (3, 20, 0), group=5)),
        news(steps((1, 1, 0), (2, 11, 0), group=5), steps((3, 21, 1), group=5)),
        *(news(steps((1, t, 0), (2, 10 + t, 0), group=5)) for t in range(2, 9)),
    ]
    games, critic = collector(Story(told), rows=4, grouped=True), POCA(behavior_of("poca"), KIND, torch.float32, 3)
    worth, first = [], games.collect()
    resumed = collector(Story(told[2:]), rows=4, grouped=True)
    resumed.load(games.save())
    for collected in (first, games.collect(), games.collect(), resumed.collect()):
        size = one(collected).group_size
        seen, there = np.array([1.0, 2.0, 0.0], np.float32)[:size], np.arange(size) < 2
        worth.append(critic.group_estimates({"obs_0": seen[:, None]}, None, there[None])[0].item())
    assert worth == [worth[0]] * 4


@pytest.mark.parametrize("truncated", [False, True])
def test_a_member_that_ended_while_its_mates_wait_goes_with_their_step_into_the_next_rollout(truncated: bool) -> None:
    told = [
        news(together(steps((1, 0, 0), (2, 10, 0), group=5), steps((3, 30, 0), group=6))),
        news(together(steps((1, 1, 1), (2, 11, 1), group=5), steps((3, 31, 1), group=6))),
        news(
            steps((3, 32, 1), group=6), steps((2, 12, 4), group=5, truncated=truncated)
        ),  # 2 ends before 1 decides again
        news(steps((3, 33, 1), group=6)),  # here the rollout is full
        news(together(steps((1, 2, 1), group=5), steps((3, 34, 1), group=6))),
        news(together(steps((1, 3, 1), group=5), steps((3, 35, 1), group=6))),
    ]
    games = collector(Story(told), rows=5, grouped=True)
    first, second = one(games.collect()), one(games.collect())
    often = [(30.0, 1.0, ""), (31.0, 1.0, ""), (32.0, 1.0, "cut")]
    assert rows_of(first) == [[(0.0, 1.0, "cut")], [(10.0, 1.0, "cut")], often, []]
    assert first.final_observations["obs_0"].ravel().tolist() == [
        1.0,
        11.0,
        33.0,
    ]  # of 2 what it saw at its last decision
    often = [(33.0, 1.0, ""), (34.0, 1.0, "cut")]
    assert rows_of(second) == [
        [(1.0, 1.0, ""), (2.0, 1.0, "cut")],
        [(11.0, 4.0, "cut" if truncated else "x")],
        often,
        [],
    ]
    assert second.final_observations["obs_0"].ravel().tolist() == [12.0, 3.0, 35.0]


@pytest.mark.parametrize("rows", [1, 2])
def test_what_ended_early_is_no_rollout_by_itself(rows: int) -> None:
    told = [news(steps((1, 0, 0), (2, 10, 0), group=5)), news(None, steps((2, 11, 1), group=5))]
    games = collector(
        Story([*told, *[news(steps((1, float(t), 1.0), group=5)) for t in range(9)]]), rows=rows, grouped=True
    )
    assert [one(games.collect()).agent_steps for _ in range(3)] == [2, rows, rows]


def test_a_mate_that_decides_seldom_ends_after_its_stretch_was_cut_at_the_horizon() -> None:
    told = [
        news(steps(*[(1, float(t), 1.0)] + ([(2, 50.0 + t, 7.0)] if t % 8 == 0 else []), group=5)) for t in range(15)
    ]
    told.append(news(None, steps((1, 15, 1.0), (2, 65, 7.0), group=5)))
    told += [news(steps((1, 16.0 + t, 1.0), (2, 66.0 + t, 1.0), group=5)) for t in range(9)]
    rollout = one(collector(Story(told), rows=18, horizon=4, grouped=True).collect())
    # What 2 decided before it ended was given up at the horizon, and counts for nothing.
    assert rows_of(rollout)[1::2] == [[], [], [], [(66.0, 1.0, "cut")], [(67.0, 1.0, "cut")]]
    assert rollout.agent_steps == 19


@pytest.mark.parametrize(("decided_in", "ended_in"), [(5, 0), (0, 5), (5, 6)])
def test_an_agent_ends_whatever_group_its_end_is_told_of(decided_in: int, ended_in: int) -> None:
    told = [
        news(steps((1, 0, 0), (2, 10, 0), group=decided_in)),
        news(steps((1, 1, 1), group=decided_in), steps((2, 11, 4), group=ended_in)),
        *[news(steps((1, 2.0 + t, 1), group=decided_in)) for t in range(3)],
    ]
    rollout = one(collector(Story(told), rows=4, grouped=True).collect())
    assert rows_of(rollout) == [[(0.0, 1.0, ""), (1.0, 1.0, ""), (2.0, 1.0, "cut")], [(10.0, 4.0, "x")]]


def test_an_agent_that_moves_to_another_group_leaves_the_first_like_one_that_is_cut_off() -> None:
    told = [
        news(steps((1, 0, 0), (2, 10, 0), group=5)),
        news(together(steps((1, 1, 1), group=5), steps((2, 11, 2), group=6))),
        news(together(steps((1, 2, 1), group=5), steps((2, 12, 3), group=6))),
        news(together(steps((1, 3, 1), group=5), steps((2, 13, 3), group=6))),
    ]
    rollout = one(collector(Story(told), rows=6, grouped=True).collect())
    first = [(0.0, 1.0, ""), (1.0, 1.0, ""), (2.0, 1.0, "cut")]
    assert rows_of(rollout) == [first, [(10.0, 2.0, "cut")], [(11.0, 3.0, ""), (12.0, 3.0, "cut")], []]
    assert rollout.final_observations["obs_0"].ravel().tolist() == [11.0, 13.0, 3.0]


def test_who_waits_while_its_mates_decide_is_in_the_group_until_it_ends() -> None:
    rollout = one(collector(Story(out_of_step()), rows=5, grouped=True).collect())
    assert rows_of(rollout)[0] == [(0.0, 0.0, ""), (2.0, 0.0, ""), (4.0, 0.0, "x"), (6.0, 0.0, "cut")]
    assert rollout.active[:5].tolist() == [[1, 0], [0, 1], [1, 0], [1, 0], [1, 0]]
    assert rollout.paused is not None
    assert rollout.paused[:5].tolist() == [[0, 0], [1, 0], [0, 1], [0, 0], [0, 0]]
    assert rollout.terminated[:5].tolist() == [[0, 0], [0, 0], [0, 1], [1, 0], [0, 0]]
    assert rollout.goes_on[:5].tolist() == [[1, 0], [1, 1], [1, 0], [0, 0], [0, 0]]
    assert rollout.rewards[1, 1] == 3.0 and rollout.group_rewards[3, 0] == 10.0


def test_all_who_go_on_are_cut_off_where_the_group_is() -> None:
    told = [
        news(steps(*[(1, float(t), 1.0)] + ([(2, 50.0 + t, 7.0)] if t % 3 == 0 else []), group=5)) for t in range(20)
    ]
    rollout = one(collector(Story(told), rows=11, horizon=6, grouped=True).collect())
    assert rollout.paused is not None
    assert rollout.paused[:6, 1].tolist() == [False, True, True, False, True, True]
    assert rollout.truncated[:6, :2].tolist() == [[False, False]] * 5 + [[True, True]]
    of_first = np.argwhere(rollout.truncated)[:, 1] < 2
    assert rollout.final_observations["obs_0"][of_first, 0].tolist() == [6.0, 56.0]
    games = collector(Story([news(steps(*((a, float(t), 1.0) for a in (1, 2)), group=5)) for t in range(9)]), rows=8)
    assert one(games.collect()).paused is None


@pytest.mark.parametrize("seed", range(12))
def test_whatever_agents_do_every_row_is_of_one_after_the_other(seed: int) -> None:
    rows, horizon = [(3, 50), (20, 3), (100, 8)][seed % 3]
    games = collector(Wild(seed), rows=rows, horizon=horizon, grouped=True)
    for _ in range(8):
        rollout = one(games.collect())
        active, goes_on = rollout.active, rollout.goes_on
        paused = np.zeros_like(active) if rollout.paused is None else rollout.paused
        assert rollout.agent_steps > 0 and not (paused & active).any() and not (paused[1:] & ~goes_on[:-1]).any()
        assert not (goes_on[:-1] & ~(active | paused)[1:]).any() and not goes_on[-1].any()
        for b in range(active.shape[1]):
            agent = 0.0  # who goes on
            for t in np.flatnonzero(active[:, b] | paused[:, b]):
                seen = float(rollout.observations["obs_0"][t, b, 0])
                assert not active[t, b] or agent in (0.0, seen)
                agent = (seen or agent) if goes_on[t, b] else 0.0


def test_mates_that_take_turns_remember_all_that_they_decided() -> None:
    games = collector(Story([news(steps((1 + t % 2, t, 0.0), group=5)) for t in range(30)]), rows=10, grouped=True)
    first, second = one(games.collect()), one(games.collect())
    # What one decided while the other one's decision filled the rollout is given up, and remembered.
    assert [first.states.ravel().tolist(), second.states.ravel().tolist()] == [[0.0, 0.0], [6.0, 5.0]]
    assert [agent.state.item() for agent in games._games[0].agents.values()] == [12.0, 11.0]


@pytest.mark.parametrize(
    ("period", "late", "paid"), [(1, 0, [1.0] * 5), (3, 0, [2.0, 0.5, 0.5] * 3), (2, 1, [2.0, *[1.0] * 8])]
)
def test_what_a_group_is_paid_counts_once_however_often_its_members_are_told(
    period: int, late: int, paid: list[float]
) -> None:
    """It is paid 1 between two messages. 1 decides in all of them, or where 2 is late, in turns with it."""
    told, latest = list[News](), {1: 0, 2: 0}
    for t in range(30):
        deciding = [agent for agent in (1, 2) if (t + (agent == 2) * late) % (period if agent == 2 or late else 1) == 0]
        parts = [steps((agent, t, 0.0), group=5, group_reward=float(t - latest[agent])) for agent in deciding]
        latest |= dict.fromkeys(deciding, t)
        told.append(news(together(*parts)))
    rollout = one(collector(Story(told), rows=20, grouped=True).collect())
    rewards = POCA(behavior_of("poca"), KIND, torch.float32, 0).rewards(rollout, rollout.active)
    assert rewards[: len(paid), 0, 0].tolist() == paid


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_what_a_group_is_paid_after_a_member_ended_is_paid_whole(first: bool, full: bool) -> None:
    """The member ends in a message of its own or with its mate's next decision, at which a rollout may be full."""
    gone, goes_on = steps((1, 1.0, 0.0), group=5), steps((2, 11.0, 0.0), group=5, group_reward=1.0)
    told = [news(steps((1, 0.0, 0.0), (2, 10.0, 0.0), group=5))]
    told += [news(None, gone), news(goes_on)] if first else [news(goes_on, gone)]
    told += [news(steps((2, 10.0 + t, 0.0), group=5)) for t in range(2, 9)]
    rollout = one(collector(Story(told), rows=2 if full else 5, grouped=True).collect())
    assert rollout.group_rewards[0].tolist() == [0.0, 1.0]
    rewards = POCA(behavior_of("poca"), KIND, torch.float32, 0).rewards(rollout, rollout.active)
    assert rewards[0].tolist() == [[1.0]]


@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_group_is_paid_after_a_member_ended_that_waited_is_paid_whole(at_once: bool) -> None:
    """It is paid 1 before 2 decides again, and then, on both sides of the end of 1, 0.5 and 2."""
    gone, goes_on = steps((1, 1.0, 0.0), group=5, group_reward=1.5), steps((2, 12.0, 0.0), group=5, group_reward=2.5)
    told = [news(steps((1, 0.0, 0.0), (2, 10.0, 0.0), group=5)), news(steps((2, 11.0, 0.0), group=5, group_reward=1.0))]
    told += [news(goes_on, gone)] if at_once else [news(None, gone), news(goes_on)]
    told += [news(steps((2, 10.0 + t, 0.0), group=5, group_reward=4.0)) for t in range(3, 9)]
    rollout = one(collector(Story(told), rows=5, grouped=True).collect())
    assert rollout.paused is not None and rollout.paused[1].tolist() == [True, False]
    rewards = POCA(behavior_of("poca"), KIND, torch.float32, 0).rewards(rollout, rollout.active)
    assert rewards[:3, 0, 0].tolist() == [1.0, 2.5, 4.0]


@pytest.mark.parametrize("at_once", [True, False])
def test_who_ends_last_knows_what_its_group_was_paid(at_once: bool) -> None:
    """All end before anybody decides again, the first of them before the pay."""
    ends = steps((1, 1.0, 0.0), group=5), steps((2, 11.0, 0.0), (3, 21.0, 0.0), group=5, group_reward=1.0)
    told = [news(steps((1, 0.0, 0.0), (2, 10.0, 0.0), (3, 20.0, 0.0), group=5))]
    told += [news(None, together(*ends))] if at_once else [news(None, own) for own in ends]
    told += [news(steps((4, float(t), 0.0), group=5)) for t in range(9)]
    rollout = one(collector(Story(told), rows=5, grouped=True).collect())
    assert rollout.group_rewards[0].tolist() == [0.0, 1.0, 1.0]
    rewards = POCA(behavior_of("poca"), KIND, torch.float32, 0).rewards(rollout, rollout.active)
    assert rewards[0].tolist() == [[1.0]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("memory", ["memory_size: 8, sequence_length: 3", "kind: gru, memory_size: 8"])
def test_who_waits_remembers_and_what_is_learned_from_does_too(memory: str, seed: int) -> None:
    whole = [f"hyperparameters.{key}" for key in ("num_epoch=1", "batch_size=65536", "buffer_size=65536")]
    settings = behavior_of("poca", f"network_settings.memory={{{memory}}}", *whole)
    learner = POCA(settings, KIND, torch.float32, seed)
    games = collector(Wild(seed), rows=100, horizon=20, grouped=True, policy=learner.network)
    for _ in range(2):
        rollout = one(games.collect())
    active, kept, states = rollout.active, kept_memory(rollout), torch.from_numpy(rollout.states)
    assert rollout.paused is not None and rollout.paused.any() and states.any(1).sum() > 1
    with torch.no_grad():
        found = learner.forward(rollout, np.arange(active.size).reshape(active.shape), states, kept)[0]
    np.testing.assert_allclose(found.view(*active.shape, -1)[active], rollout.parameters[active], atol=1e-6)
    batch = learner.batch(rollout)
    errors, of_agents = batch.returns - batch.values, batch.returns[:, None] - batch.baselines
    told = learner.update(rollout, 0)
    assert told["Losses/Value Loss"] == pytest.approx(np.square(errors[batch.present.any(1)]).mean(), rel=1e-4)
    assert told["Losses/Baseline Loss"] == pytest.approx(np.square(of_agents[batch.present]).mean(), rel=1e-4)
    assert told["Policy/KL"] == pytest.approx(0.0, abs=1e-6)  # decisions are as likely as when they were taken


@pytest.mark.parametrize("seed", [0, 3, 6])
@pytest.mark.parametrize("memory", ["null", "{memory_size: 8, sequence_length: 3}"])
def test_stretches_that_share_rows_are_worth_what_they_are_in_rows_of_their_own(
    monkeypatch: pytest.MonkeyPatch, memory: str, seed: int
) -> None:
    learner = POCA(behavior_of("poca", f"network_settings.memory={memory}"), KIND, torch.float32, seed)

    def judged() -> tuple[int, list[list[float]]]:
        games = collector(Wild(seed), rows=200, horizon=20, grouped=True, policy=learner.network)
        _, rollout = one(games.collect()), one(games.collect())  # the second one begins amid episodes
        batch = learner.batch(rollout)
        seen = rollout.observations["obs_0"][:-1].reshape(batch.present.shape)
        returns = np.broadcast_to(batch.returns, batch.present.shape)
        return rollout.active.size, sorted(np.stack([seen, returns, batch.advantages], 2)[batch.present].tolist())

    shared, found = judged()
    monkeypatch.setattr("palus.rollout.stretches._columns", lambda _, stretches: [own.steps for own in stretches])
    apart, expected = judged()
    assert shared < 0.9 * apart
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_one_that_moves_to_another_group_begins_there_with_an_empty_memory() -> None:
    told = [news(steps((1, float(t), 0), (2, float(t), 0), group=5)) for t in range(3)]
    told += [news(together(steps((1, 3.0 + t, 0), group=5), steps((2, 3.0 + t, 0), group=6))) for t in range(9)]
    games = collector(Story(told), rows=8, grouped=True)
    rollout = one(games.collect())
    assert rollout.states.ravel().tolist() == [0.0] * 4
    assert sorted(agent.state.item() for agent in games._games[0].agents.values()) == [2.0, 5.0]
