"""One behavior's page by hand: who learned, what ended, what is left of it once a worker is lost."""

from __future__ import annotations

import mmap
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from readable import two_matches

from palus import envs
from palus.rollout.buffer import NOBODY, UNWATCHED, Buffer
from palus.rollout.layout import Layout
from palus.rollout.rollout import FROZEN, Seat
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec

ALL = slice(0, 3)


class Counting:
    """Policies with a memory that counts decisions."""

    def __getitem__(self, policy):
        return SimpleNamespace(state_size=1)

    def act(self, seen, states, policies, parameters):
        return np.zeros((len(states), parameters)), np.zeros(len(states)), states + 1, np.zeros(len(states), np.int32)

    def told(self, actions, policies, spec):
        return actions


def draw(parameters, spec, seed, tick, keys):
    """Decisions that are as uncertain as a table says."""
    nothing = np.zeros((len(parameters), spec.columns), np.float32)
    return nothing, nothing, np.array([[1, 2, 3], [4, 50, 6]])[tick, keys]


def buffers(spec, games):
    """One for each behavior, of a page of two decisions."""
    layout = Layout(spec, games, 2, 1)
    tables = layout.tables(mmap.mmap(-1, layout.size))
    rows = [np.arange(len(table.actions)) for table in tables]
    return [
        Buffer(spec.env_id, roster, table, 1, keys, draw)
        for roster, table, keys in zip(layout.rosters, tables, rows, strict=True)
    ]


def test_a_page_holds_what_its_decisions_led_to_and_loses_what_a_worker_takes_with_it() -> None:
    actions = ActionSpec((Discrete(2),), masked=True)
    (buffer,) = buffers(GameSpec.alike("X", (ObservationSpec("obs", (1,)),), actions, 3, frameskip=1), 1)
    table, policies = buffer.table, Counting()
    buffer.seat(0, [Seat(0, True)] * 3, policies, {0: np.zeros(0)})
    table.active[0] = [[1, 1, 1], [1, 0, 1], [1, 0, 1]]  # the second leaves
    table.rewards[0], table.group_rewards[0] = [[1, 2, 3], [4, np.nan, 6]], [[0, 0, 0], [1, 5, 2]]
    table.truncated[0], table.terminated[0] = [[0, 1, 1], [1, 0, 0]], [[0, 0, 0], [0, 1, 0]]
    buffer.states[1] = 5
    buffer.decide(policies, (0, 0, ALL), ALL, 1, 0)
    table.aside["obs"][:] = [[10], [11], [12]]
    for rows in (slice(2, 3), slice(0, 2)):  # splits come in any order
        buffer.settle((0, 0, rows), rows)
    buffer.decide(policies, (0, 1, ALL), ALL, 1, 1)
    table.aside["obs"][:] = [[20], [21], [22]]
    told = [part.tolist() for part in buffer.settle((0, 1, ALL), ALL)]
    assert told == [[True, False, True], [4.0, 0.0, 6.0], [1.0, 0.0, 2.0], [True, False, False]]
    buffer.close(0, ALL)

    rollout, entropy = buffer.rollout(0, 0, 1, False)
    assert {name: seen.tolist() for name, seen in rollout.final_observations.items()} == {"obs": [[11], [12], [20]]}
    assert rollout.final_states.tolist() == [[6], [1], [2]] and rollout.last_states.tolist() == [[0], [0], [1]]
    assert rollout.rewards.tolist() == [[1, 2, 3], [4, 0, 6]] and rollout.group_rewards.tolist() == [[0] * 3, [1, 0, 2]]
    assert rollout.last_active.tolist() == [True, False, True] and entropy == np.float32(16 / 5)

    assert buffer.lose(0, 1, slice(0, 2)) == 2
    rollout, _ = buffer.rollout(0, 0, 1, False)
    assert rollout.active.tolist() == [[False, False, True]] * 2
    assert rollout.final_observations["obs"].tolist() == [[12.0]] and not buffer.is_empty(0)
    buffer.lose(0, 2, slice(2, 3))
    assert buffer.is_empty(0)
    buffer.clear(0)
    assert not buffer.is_empty(0)
    buffer.settle((0, 1, ALL), ALL)
    table.truncated[0, 0] = False
    assert buffer.rollout(0, 0, 1, False)[0].final_observations["obs"].tolist() == [[20.0]]
    table.active[0, :2] = False
    assert buffer.is_empty(0)  # who is there from the next page on has decided nothing in this one


def test_opponents_of_another_behavior_are_watched_where_anybody_learns() -> None:
    made, policies = buffers(envs.make("PenaltyToy", 1).spec, 2), Counting()
    for game, learns in ((0, True), (1, False)):
        for buffer in made:
            seats = Seat(0 if learns else FROZEN, learns), Seat(FROZEN, False)
            buffer.seat(game, seats, policies, dict.fromkeys((0, FROZEN), np.zeros(0)))
    striker, keeper = made
    assert striker.learners.tolist() == [0, UNWATCHED] and keeper.learners.tolist() == [NOBODY, UNWATCHED]
    keeper.table.active[:] = True
    for t in range(2):
        keeper.decide(policies, (0, t, slice(0, 2)), slice(0, 2), 1, t)
    assert keeper.ghost_steps(0) == 2
    keeper.lose(0, 2, slice(0, 1))
    assert keeper.ghost_steps(0) == 0


@pytest.mark.parametrize(
    "name",
    ["actions", "log_probs", "parameters", "values", "group_rewards", "terminated", "truncated", "active", "versions",
     "paused", "unended", "left", "shown"],
)  # fmt: skip
def test_a_rollout_is_refused_of_which_an_array_has_other_rows_than_the_rewards(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: shape \(3, 1\); expected to begin with \(3, 4\), as rewards do"):
        replace(two_matches(), **{name: np.zeros((3, 1))})
