"""A worker's games by themselves: random beginnings, what of them counts, what reaches which game."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any

import numpy as np
import pytest
from counting_game import AGENT, DECISION, EPISODE, CountingGame, counting_spec

from palus.envs.game import Game, GameStep
from palus.errors import EnvError
from palus.rollout.layout import Layout, Table
from palus.rollout.stepper import Assignment, Over, Restart, StepOrder, Stepper
from palus.types import ActionSpec, AgentSpec, BehaviorSpec, Discrete, GameSpec, ObservationSpec


def stepper(
    make: Callable[[], Game], spec: GameSpec, splits: Sequence[range], **facts: Any
) -> tuple[Stepper, list[Table]]:
    """And the memory that it writes, in which all agents decide before its first decision. facts: of its assignment."""
    layout = Layout(spec, splits[-1].stop, 2, 1)
    tables = layout.tables(mmap(-1, layout.size))
    for table in tables:
        table.active[:] = True
    given = Assignment(0, make, tuple(splits), **{"seed": 1, "warm_up": 0, "core": None} | facts)
    return Stepper(given, layout, tables, make), tables


def test_an_episode_that_begins_after_the_random_decisions_is_a_whole_one() -> None:
    games, (table,) = stepper(lambda: CountingGame(length=3), counting_spec(1), [range(24)], warm_up=12)
    answer = games.carry_out(Restart(0, 0))
    played, episodes = table.aside["obs"][:, DECISION], table.aside["obs"][:, EPISODE]
    assert set(played.tolist()) == {0.0, 1.0, 2.0} and set(episodes[played == 0].tolist()) >= {1.0, 2.0, 3.0}
    assert answer.partial == np.flatnonzero(played).tolist()


def test_a_match_counts_where_policies_have_played_it_from_its_beginning() -> None:
    splits = [range(6), range(6, 12)]
    games, _ = stepper(lambda: CountingGame(length=3), counting_spec(1), splits, warm_up=9)
    begun: set[int] = set()
    for counter in (0, 1):  # what came of the first start is given up
        before, begun = begun, {game for k in (0, 1) for game in games.carry_out(Restart(k, counter)).partial}
    assert 0 < len(begun) < 12 and before - begun and begun - before
    ended: dict[int, list[Over]] = {}
    for k in (0, 1):
        for _ in range(6):
            for over in games.carry_out(StepOrder(k, 0, 0)).over:
                ended.setdefault(over.game, []).append(over)
    assert {game: [over.whole for over in told[:2]] for game, told in ended.items()} == {
        game: [game not in begun, True] for game in range(12)
    }
    assert {over.points for told in ended.values() for over in told} == {()}


def test_a_row_is_of_one_agent_where_members_of_a_group_are_no_neighbours_in_the_game() -> None:
    teams = (1, 0, 1, 0)
    games, (table,) = stepper(lambda: CountingGame(agents=4, teams=teams), counting_spec(4, teams=teams), [range(2)])
    games.carry_out(Restart(0, 0))
    table.actions[:, 0] = np.arange(8)
    games.carry_out(StepOrder(0, 0, 0))
    assert table.rewards[0, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]  # what was chosen
    for seen in (table.aside["obs"], table.observations["obs"][0, 1]):
        assert seen[:, AGENT].tolist() == [1, 3, 0, 2] * 2


def test_who_leaves_in_a_random_decision_does_not_decide_in_the_first_one() -> None:
    def make() -> CountingGame:
        return CountingGame(agents=2, length=50, leaves={1: 1})

    games, (table,) = stepper(make, counting_spec(2), [range(10)], warm_up=8)
    games.carry_out(Restart(0, 0))
    stays, leaves = table.active_aside.reshape(10, 2).T
    played = table.aside["obs"][::2, DECISION]
    assert stays.all() and leaves.tolist() == (played == 0).tolist() and leaves.any() and not leaves.all()
    table.active[0, 0] = table.active_aside
    games.carry_out(StepOrder(0, 0, 0))
    assert table.active[0, 1].tolist() == [True, False] * 10


def test_games_are_closed_where_they_refuse_the_parameters_that_they_begin_with() -> None:
    made = []

    def make() -> CountingGame:
        made.append(CountingGame())
        return made[-1]

    with pytest.raises(EnvError, match="no environment parameters; found gravity"):
        stepper(make, counting_spec(1), [range(2), range(2, 4)], parameters={"gravity": 1.0})
    assert [game._closed for game in made] == [True] * 4


class Mixed:
    """One decision of two kinds of agents, in turn, each paid by a number of its own."""

    kinds = tuple(BehaviorSpec(k, (ObservationSpec("obs", (1,)),), ActionSpec((Discrete(2),))) for k in "ab")
    agents = tuple(AgentSpec(f"agent {i}", 0, 0, "ab"[i % 2]) for i in range(4))
    spec = GameSpec("Mixed", kinds, agents, shaping=(("bonus", 0.5),))
    active = np.ones(4, np.bool_)

    def __init__(self) -> None:
        self.shaping = np.full((4, 1), 0.5)

    def reset(self, seed: int) -> None:
        pass

    def observe(self, out: Any) -> None:
        pass

    def step(self, actions: Any) -> GameStep:
        return GameStep(self.shaping[:, 0].astype(np.float32), self.active, ~self.active, True)

    def close(self) -> None:
        pass


def test_each_agent_is_paid_by_its_own_numbers_whatever_its_kind() -> None:
    games, tables = stepper(Mixed, Mixed.spec, [range(2)])
    games.carry_out(Restart(0, 0))
    for table, numbers in zip(tables, ([1, 3, 5, 7], [2, 4, 6, 8]), strict=True):
        table.shaping[:, 0] = numbers
    games.carry_out(StepOrder(0, 0, 0))
    assert [table.rewards[0, 0].tolist() for table in tables] == [[1, 3, 5, 7], [2, 4, 6, 8]]
