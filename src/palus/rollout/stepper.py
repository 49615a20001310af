"""The games of one worker, stepped split by split straight into shared memory.

Runs in the worker process, or in the main process when there are no workers: it imports no torch and no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from palus.envs.game import Game, GameStep, ShapedGame, joined, random_actions, set_parameters
from palus.errors import EnvError
from palus.rollout.layout import BehaviorRows, Layout, Table
from palus.rollout.messages import Answer, Assignment, Ended, Over, Restart, StepOrder
from palus.types import F32, F64, I64, AnyArray

WARM_UP_GAMES = 16
"""Decorrelation spreads games over at most this many rollouts, so that its cost grows with the games, not faster."""

Agent = tuple[int, int]
"""Game, agent in it."""

OPEN_END = (
    "game {} is over, but the episode of an active agent was neither terminated nor truncated; "
    "its step has to set one of them for every agent"
)


class Stepper:
    """Steps a worker's games. Same seeds, counters and actions give the same bits, if the games keep that promise."""

    def __init__(self, assignment: Assignment, layout: Layout, tables: Sequence[Table], games: Sequence[Game]) -> None:
        """games: in the order of the assignment's splits; they are closed with the stepper."""
        self._games = list(games)
        self._rows = [_Rows(roster, table) for roster, table in zip(layout.rosters, tables, strict=True)]
        left = iter(games)
        self._splits = [[_Hosted(next(left), i, assignment, self._rows) for i in split] for split in assignment.splits]
        self._ranges = assignment.splits
        self.set_parameters(assignment.parameters)

    def set_parameters(self, parameters: Mapping[str, float]) -> None:
        """Change numbers of all games. Raises EnvError for names that they do not have."""
        if parameters:
            for game in self._games:
                set_parameters(game, parameters)

    def carry_out(self, order: Restart | StepOrder) -> Answer:
        """Obey one order. Raises what the games raise, and EnvError when one breaks its contract."""
        return self._step(*order) if isinstance(order, StepOrder) else self._restart(*order)

    def _restart(self, split: int, counter: int) -> Answer:
        for rows in self._rows:
            rows.forget(rows.roster.rows(self._ranges[split]))
        for host in self._splits[split]:
            host.restart(counter)
            host.observe([rows.table.aside for rows in self._rows])
            for place in host.places:
                place.rows.table.active_aside[place.own] = host.game.active[place.agents]
        return Answer(split, [], [])

    def _step(self, split: int, page: int, t: int) -> Answer:
        for rows in self._rows:
            rows.turn_to(page, t, rows.roster.rows(self._ranges[split]))
        after = [rows.after for rows in self._rows]
        stats: dict[Agent, Mapping[str, float]] = {}
        early: set[Agent] = set()
        over = []
        for host in self._splits[split]:
            step = host.step()
            for place in host.places:
                place.write(step)
            for agent, numbers in step.stats.items():
                stats[host.index, agent] = dict(numbers)
            if step.truncated.any():
                host.observe([rows.table.aside for rows in self._rows], final=True)
            if step.over:
                if any(place.is_open for place in host.places):
                    raise EnvError(OPEN_END.format(host.index))
                over.append(Over(host.index, tuple(map(float, step.points)), host.whole))
                host.begin()
            elif host.shared:
                early |= host.left_early(step)
            host.observe(after)
            for place in host.places:
                place.rows.active_after[place.own] = host.game.active[place.agents]
        return Answer(split, [end for rows in self._rows for end in rows.close_episodes(stats, early)], over)

    def close(self) -> None:
        """Close all games."""
        for game in self._games:
            game.close()


class _Rows:
    """One behavior's rows: their table, its entries of one decision, and the episodes that are under way."""

    def __init__(self, roster: BehaviorRows, table: Table) -> None:
        self.roster, self.table = roster, table
        # One number per row of the whole run: a worker uses its own.
        B = len(table.actions)
        self._decisions = np.zeros(B, np.int64)
        self._returns, self._group_returns = np.zeros(B), np.zeros(B)
        self.whole = np.ones(B, np.bool_)

    def turn_to(self, page: int, t: int, block: slice) -> None:
        """A decision of these rows is to be written."""
        table, self._block = self.table, block
        self.active, self.active_after = table.active[page, t], table.active[page, t + 1]
        self.rewards, self.group_rewards = table.rewards[page, t], table.group_rewards[page, t]
        self.terminated, self.truncated = table.terminated[page, t], table.truncated[page, t]
        self.after = {name: array[page, t + 1] for name, array in table.observations.items()}
        self.group_rewards[block] = 0.0

    def forget(self, block: slice) -> None:
        """Episodes begin anew."""
        self._decisions[block] = 0
        self._returns[block] = self._group_returns[block] = 0.0

    def close_episodes(self, stats: Mapping[Agent, Mapping[str, float]], early: set[Agent]) -> list[Ended]:
        """Add the decision to the episodes; tell those that ended with it. early: others of their group play on."""
        block, P = self._block, len(self.roster.agents)
        active, terminated, truncated = self.active[block], self.terminated[block], self.truncated[block]
        # Rows without a decision count as terminated: whoever reads the page restarts state and returns after them.
        terminated |= ~active
        truncated &= ~terminated
        self._decisions[block] += active
        self._returns[block] += np.where(active, self.rewards[block], 0.0)
        self._group_returns[block] += np.where(active, self.group_rewards[block], 0.0)
        closed = active & (terminated | truncated)
        ended = []
        for row in (np.flatnonzero(closed) + block.start).tolist():
            who = row // P, self.roster.agents[row % P]
            if self.whole[row]:
                length, paid = int(self._decisions[row]), (float(self._returns[row]), float(self._group_returns[row]))
                ended.append(Ended(*who, length, *paid, who in early, stats.get(who, {})))
            self.forget(slice(row, row + 1))
            self.whole[row] = True
        return ended


class _Place:
    """Where one game's agents of one behavior lie. own: their rows. agents: their indices, in the order of the rows.

    order: what `BehaviorRows.order` says; scratch: arrays in the game's own order, where that is another one.
    """

    def __init__(self, rows: _Rows, index: int, num_agents: int) -> None:
        roster = rows.roster
        self.name, self.order = roster.behavior.name, roster.order
        self.rows, self.own = rows, roster.rows(range(index, index + 1))
        in_place = roster.agents == tuple(range(num_agents))
        self.agents: slice | I64 = slice(None) if in_place else np.array(roster.agents)
        scratched = {} if roster.order is None else rows.table.aside
        self.scratch = {name: array[self.own].copy() for name, array in scratched.items()}

    @property
    def actions(self) -> F32:
        """In the game's order."""
        actions: F32 = self.rows.table.actions[self.own]
        if self.order is None:
            return actions
        given = np.empty_like(actions)
        given[self.order] = actions
        return given

    def write(self, step: GameStep) -> None:
        """Keep what a decision brought."""
        rows, own = self.rows, self.own
        rows.rewards[own] = step.reward[self.agents]
        rows.terminated[own], rows.truncated[own] = step.terminated[self.agents], step.truncated[self.agents]
        if step.group_reward is not None:
            rows.group_rewards[own] = step.group_reward[self.agents]

    @property
    def is_open(self) -> bool:
        """Whether an active agent's episode goes on."""
        rows, own = self.rows, self.own
        return bool((rows.active[own] & ~(rows.terminated[own] | rows.truncated[own])).any())


class _Hosted:
    """A game, its rows, and the seeds of its episodes. whole: policies have played the episode from its beginning.

    shared: some of its agents share a group.
    """

    def __init__(self, game: Game, index: int, assignment: Assignment, rows: Sequence[_Rows]) -> None:
        self.game, self.index, self.whole = game, index, True
        self.places = [_Place(r, index, game.spec.num_agents) for r in rows]
        self._alone = self.places[0] if len(self.places) == 1 else None
        self._groups = np.array([agent.group for agent in game.spec.agents])
        self.shared = len(set(self._groups.tolist())) < len(self._groups)
        self._shaping: F64 | None = cast(ShapedGame, game).shaping if game.spec.shaping else None
        self._assignment = assignment
        self._key: tuple[int, ...] = ()
        self._episode = 0

    def restart(self, counter: int) -> None:
        """Begin anew and play some random decisions."""
        # A replaced worker must not play its first life's episodes again.
        self._key = (self._assignment.seed, self.index, counter, self._assignment.life)
        self._episode = 0
        self.begin()
        generator = np.random.default_rng([*self._key, 0])
        for _ in range(int(generator.random() * self._assignment.warm_up)):
            step = self.game.step(random_actions(self.game, generator))
            self.whole = step.over
            if step.over:
                self.begin()
        for place in self.places:
            place.rows.whole[place.own] = self.whole

    def begin(self) -> None:
        """The next episode of this game, with a seed of its own."""
        self._episode += 1
        self.whole = True
        self.game.reset(int(np.random.SeedSequence([*self._key, self._episode]).generate_state(1)[0]) >> 1)

    def step(self) -> GameStep:
        """Play one decision with the actions in shared memory, paid by the numbers there."""
        if self._shaping is not None:
            for place in self.places:
                self._shaping[place.agents] = place.rows.table.shaping[place.own]
        if self._alone is not None:
            return self.game.step(self._alone.actions)
        return self.game.step({place.name: place.actions for place in self.places})

    def left_early(self, step: GameStep) -> set[Agent]:
        """Agents whose episode ended while others of their group play on."""
        ended = np.flatnonzero(step.terminated | step.truncated).tolist()
        plays_on = set(self._groups[self.game.active & ~(step.terminated | step.truncated)].tolist()) if ended else ()
        return {(self.index, agent) for agent in ended if int(self._groups[agent]) in plays_on}

    def observe(self, tables: Sequence[Mapping[str, AnyArray]], final: bool = False) -> None:
        """Write observations into these arrays [B, *shape], by name and for each behavior."""
        write = self.game.observe_final if final else self.game.observe
        if self._alone is not None and self._alone.order is None:
            own = self._alone.own
            write({name: array[own] for name, array in tables[0].items()})
            return
        outs = {
            place.name: place.scratch or {name: array[place.own] for name, array in table.items()}
            for place, table in zip(self.places, tables, strict=True)
        }
        write(joined(self.game.spec, outs))
        for place, table in zip(self.places, tables, strict=True):
            for name, array in place.scratch.items():
                table[name][place.own] = array[place.order]
