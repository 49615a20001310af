"""Decisions in arrays that grow as they come, and stretches of them by hand."""

from __future__ import annotations

import numpy as np
import pytest

from palus.rollout.stretches import WAITS, Decisions, Stretch, build
from palus.types import MASKS, ActionSpec, BehaviorSpec, Discrete, ObservationSpec


def test_as_many_decisions_as_come_at_once_find_room_and_those_of_before_stay() -> None:
    spec = BehaviorSpec("B", (ObservationSpec("obs", (1,)),), ActionSpec((Discrete(2),), masked=True))
    record = Decisions(spec, 0)
    for first, count in ((0, 2), (2, 600), (602, 100)):
        rows = record.add(count, {"rewards": np.arange(first, first + count)})
        assert rows.tolist() == list(range(first, first + count))
    assert record["rewards"][: record.count].tolist() == list(range(702))
    assert (record["followed"][:702] == -1).all() and record[f"seen {MASKS}"][:702].all()


def test_what_is_kept_is_followed_by_what_followed_it() -> None:
    spec = BehaviorSpec("B", (ObservationSpec("obs", (1,)),), ActionSpec((Discrete(2),)))
    record = Decisions(spec, 0)
    record.add(6, {"rewards": np.arange(6), "followed": np.array([-1, 4, -1, -1, -1, 2])})
    assert record.keep([3, 1]) == {1: 0, 3: 1, 4: 2}
    assert record["rewards"][:3].tolist() == [1, 3, 4] and record["followed"][:3].tolist() == [2, -1, -1]


def recorded(known, **fields):
    """Decisions of a game with masks; known: of which the outcome is."""
    spec = BehaviorSpec("B", (ObservationSpec("obs", (1,)),), ActionSpec((Discrete(2),), masked=True))
    record = Decisions(spec, 1)
    record.add(len(known), {"known": np.array(known), **{name: np.array(own) for name, own in fields.items()}})
    return record, spec


def test_the_first_free_place_is_taken() -> None:
    stretch = Stretch()
    assert [stretch.place(agent) for agent in (7, 8, 9)] == [0, 1, 2]
    del stretch.members[8]
    assert [stretch.place(agent) for agent in (5, 7, 6)] == [1, 0, 3]


@pytest.mark.parametrize(("terminated", "followed"), [(True, -1), (False, 1)])
def test_a_step_of_those_who_ended_waits_for_the_others_of_their_group(terminated: bool, followed: int) -> None:
    record, _ = recorded([True, True], terminated=[terminated, False], followed=[followed, -1])
    assert Stretch({2: 1}, [{0: 0, 1: WAITS}]).waits(record) and not Stretch({}, [{0: 0}]).waits(record)


@pytest.mark.parametrize(("terminated", "followed", "after"), [(False, -1, 1), (True, -1, -1), (False, 2, 2)])
def test_who_goes_on_is_cut_off_at_what_its_place_saw_next_and_who_ended_is_not(terminated, followed, after) -> None:
    record, _ = recorded([True, False, False], terminated=[terminated] + [False] * 2, followed=[followed, -1, -1])
    stretch = Stretch({4: 0}, [{0: 0}, {0: 1}])
    assert stretch.cut(record).steps == [{0: 0}] and stretch.steps == [{0: 1}]
    assert record["followed"][0] == after


def test_a_step_of_which_nothing_is_known_is_no_step() -> None:
    record, _ = recorded([False, False], first=[False, False])
    stretch = Stretch({4: 0}, [{0: 0}, {0: 1}])
    assert stretch.cut(record).steps == [] and record["given_up"][:2].tolist() == [True, False]


def test_rows_without_a_decision_are_zeros_and_forbid_nothing() -> None:
    record, spec = recorded([True] * 3, rewards=[1.0, 2.0, 3.0], values=[4.0, 5.0, 6.0], entropies=[1.0, 3.0, 8.0])
    for name in ("rewards", "values", "entropies", "seen obs"):
        record[name][-1] = 9.0  # left by decisions that were forgotten
    record[f"seen {MASKS}"][:] = False
    rollout, entropy = build(record, [Stretch({}, [{0: 0}, {0: 1}]), Stretch({}, [{0: 2}])], spec, True)
    assert rollout.rewards.tolist() == [[1, 3], [2, 0], [0, 0]] and entropy == 4.0
    assert rollout.values is not None and rollout.values.tolist() == [[4, 6], [5, 0], [0, 0]]
    assert not rollout.observations["obs"].any() and rollout.masks is not None
    assert rollout.masks.all(2).tolist() == [[False, False], [False, True], [True, True], [True, True]]
    record["states"][-1] = 9.0
    assert not build(record, [Stretch({}, [{0: 0, 1: 1}]), Stretch({}, [{0: 2}])], spec, True)[0].states.any()


@pytest.mark.parametrize(
    ("born", "followed", "terminated", "truncated"),
    [(False, -1, False, False), (True, -1, True, False), (True, 2, False, True)],
)
def test_who_waited_leaves_where_another_one_is_born_in_its_place(born, followed, terminated, truncated) -> None:
    record, spec = recorded([True] * 3, first=[True, born, False], followed=[followed, -1, -1])
    rollout, _ = build(record, [Stretch({}, [{0: 0}, {0: WAITS}, {0: 1}])], spec, True)
    assert rollout.terminated.ravel().tolist() == [False, terminated, False, False]
    assert rollout.truncated.ravel().tolist() == [False, truncated, False, False]


@pytest.mark.parametrize("remembers", [False, True])
def test_short_stretches_share_rows_unless_their_agents_remember_something(remembers: bool) -> None:
    """One of nine decisions and six of two; the last decision of each ends an episode."""
    lengths, known = [9, *[2] * 6], [True] * 21
    ends = np.cumsum(lengths) - 1
    record, spec = recorded(known, rewards=np.arange(21.0), terminated=np.isin(np.arange(21), ends))
    record["states"][:21] = 7.0  # within an episode; a row begins with what is remembered before its first decision
    first = ends - lengths + 1
    record["states"][first[~np.isin(np.arange(7), [0, 3] if remembers else [0])]] = 0.0
    stretches = [Stretch({}, [{0: int(row)} for row in range(b, e + 1)]) for b, e in zip(first, ends, strict=True)]
    rollout, _ = build(record, stretches, spec, True)
    columns = [rollout.rewards[:, b][rollout.active[:, b]].tolist() for b in range(rollout.rewards.shape[1])]
    nine, short = list(range(9)), list(range(9, 21))
    assert columns == ([nine, short[:4], short[4:10], short[10:]] if remembers else [nine, short[:6], short[6:]])
    assert rollout.states.ravel().tolist() == ([7, 0, 7, 0] if remembers else [7, 0, 0])
    assert (~rollout.goes_on[1] == [False, *[True] * (len(columns) - 1)]).all() and not rollout.active[2, 1:].any()
    assert [stretch.steps for stretch in stretches][1] == [{0: 9}, {0: 10}]


@pytest.mark.parametrize(
    ("longest", "first", "shared"),
    [(5, {0: 9, 1: 10}, True), (4, {0: 9, 1: 10}, False), (5, {0: 9, 1: 12}, False), (5, {0: 9, 1: WAITS}, False)],
)
def test_a_row_is_shared_by_what_fits_and_begun_by_a_group_of_whom_one_remembers_or_waits(
    longest: int, first: dict[int, int], shared: bool
) -> None:
    record, spec = recorded([True] * 13)
    record["states"][12] = 7.0
    short = Stretch({}, [{0: 5, 1: 6}, {0: 7, 1: 8}]), Stretch({}, [first, {0: 11}])
    rollout, _ = build(record, [Stretch({}, [{0: t} for t in range(longest)]), *short], spec, True)
    assert rollout.active.shape == (longest + 1, 4 if shared else 6)
