"""The games of one worker, stepped split by split straight into shared memory.

Runs in the worker process, or in the main process when there are no workers: it imports no torch and no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from palus.envs.game import Game, GameStep, ShapedGame, joined, random_actions, set_parameters
from palus.errors import EnvError
from palus.rollout.layout import Layout, Roster, Table
from palus.rollout.messages import Answer, Assignment, Ended, Over, Restart, Step
from palus.types import F32, F64, I64, AnyArray, Bool

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
        self._groups = np.array([agent.group for agent in layout.spec.agents])
        self.set_parameters(assignment.parameters)

    def set_parameters(self, parameters: Mapping[str, float]) -> None:
        """Change numbers of all games. Raises EnvError for names that they do not have."""
        if parameters:
            for game in self._games:
                set_parameters(game, parameters)

    def carry_out(self, order: Restart | Step) -> Answer:
        """Obey one order. Raises what the games raise, and EnvError when one breaks its contract."""
        return self._step(*order) if isinstance(order, Step) else self._restart(*order)

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
        after = [{name: array[page, t + 1] for name, array in r.table.observations.items()} for r in self._rows]
        stats: dict[Agent, Mapping[str, float]] = {}
        early: set[Agent] = set()
        over = []
        for host in self._splits[split]:
            active = host.game.active.copy()
            step = host.step()
            for place in host.places:
                place.write(step, page, t)
            early |= {(host.index, agent) for agent in self._left_early(active, step)}
            stats.update({(host.index, agent): dict(numbers) for agent, numbers in step.stats.items()})
            if step.truncated.any():
                host.observe([rows.table.aside for rows in self._rows], final=True)
            if step.over:
                if any(place.is_open(page, t) for place in host.places):
                    raise EnvError(OPEN_END.format(host.index))
                over.append(Over(host.index, tuple(map(float, step.points)), host.whole))
                host.begin()
            host.observe(after)
            for place in host.places:
                place.rows.table.active[page, t + 1, place.own] = host.game.active[place.agents]
        ended = []
        for rows in self._rows:
            ended += rows.close_episodes(page, t, rows.roster.rows(self._ranges[split]), stats, early)
        return Answer(split, ended, over)

    def _left_early(self, active: Bool, step: GameStep) -> list[int]:
        """Agents whose episode ended while others of their group play on."""
        ended = step.terminated | step.truncated
        if step.over or not ended.any():
            return []
        plays_on = {int(group) for group in self._groups[active & ~ended]}
        return [agent for agent in np.flatnonzero(ended).tolist() if self._groups[agent] in plays_on]

    def close(self) -> None:
        """Close all games."""
        for game in self._games:
            game.close()


class _Rows:
    """One behavior's rows: their table, and the episodes that are under way in them."""

    def __init__(self, roster: Roster, table: Table) -> None:
        self.roster, self.table = roster, table
        # One number per row of the whole run: a worker uses its own.
        B = len(table.actions)
        self._decisions = np.zeros(B, np.int64)
        self._returns, self._group_returns = np.zeros(B), np.zeros(B)
        self.whole = np.ones(B, np.bool_)

    def forget(self, block: slice) -> None:
        """Episodes begin anew."""
        self._decisions[block] = 0
        self._returns[block] = self._group_returns[block] = 0.0

    def close_episodes(
        self, page: int, t: int, block: slice, stats: Mapping[Agent, Mapping[str, float]], early: set[Agent]
    ) -> list[Ended]:
        """Add a decision to the episodes; tell those that ended with it. early: others of their group play on."""
        table, P = self.table, len(self.roster.agents)
        active, terminated, truncated = (a[page, t, block] for a in (table.active, table.terminated, table.truncated))
        # Rows without a decision count as terminated: whoever reads the page restarts state and returns after them.
        terminated |= ~active
        truncated &= ~terminated
        self._decisions[block] += active
        self._returns[block] += np.where(active, table.rewards[page, t, block], 0.0)
        self._group_returns[block] += np.where(active, table.group_rewards[page, t, block], 0.0)
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

    order: what `Roster.order` says; scratch: arrays in the game's own order, where that is another one.
    """

    def __init__(self, rows: _Rows, index: int, num_agents: int) -> None:
        roster = rows.roster
        self.name = roster.behavior.name
        self.rows, self.own, self.order = rows, roster.rows(range(index, index + 1)), roster.order
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

    def write(self, step: GameStep, page: int, t: int) -> None:
        """Keep what a decision brought."""
        table, at = self.rows.table, (page, t, self.own)
        table.rewards[at], table.terminated[at] = step.reward[self.agents], step.terminated[self.agents]
        table.truncated[at] = step.truncated[self.agents]
        table.group_rewards[at] = 0.0 if step.group_reward is None else step.group_reward[self.agents]

    def is_open(self, page: int, t: int) -> bool:
        """Whether an active agent's episode goes on."""
        table, at = self.rows.table, (page, t, self.own)
        return bool((table.active[at] & ~(table.terminated[at] | table.truncated[at])).any())


class _Hosted:
    """A game, its rows, and the seeds of its episodes. whole: policies have played the episode from its beginning."""

    def __init__(self, game: Game, index: int, assignment: Assignment, rows: Sequence[_Rows]) -> None:
        self.game, self.index, self.whole = game, index, True
        self.places = [_Place(r, index, game.spec.num_agents) for r in rows]
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
        return self.game.step(joined(self.game.spec, {place.name: place.actions for place in self.places}))

    def observe(self, tables: Sequence[Mapping[str, AnyArray]], final: bool = False) -> None:
        """Write observations into these arrays [B, *shape], by name and for each behavior."""
        outs = {
            place.name: place.scratch or {name: array[place.own] for name, array in table.items()}
            for place, table in zip(self.places, tables, strict=True)
        }
        (self.game.observe_final if final else self.game.observe)(joined(self.game.spec, outs))
        for place, table in zip(self.places, tables, strict=True):
            for name, array in place.scratch.items():
                table[name][place.own] = array[place.order]
