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
from palus.rollout.messages import Answer, Assignment, Over, Restart, StepOrder
from palus.types import F32, F64, AnyArray

WARM_UP_GAMES = 16
"""Decorrelation spreads games over at most this many rollouts, so that its cost grows with the games, not faster."""

OPEN_END = (
    "game {} is over, but the episode of an active agent was neither terminated nor truncated; "
    "its step has to set one of them for every agent"
)


class Stepper:
    """Steps a worker's games. Same seeds, counters and actions give the same bits, if the games keep that promise."""

    def __init__(self, assignment: Assignment, layout: Layout, tables: Sequence[Table], games: Sequence[Game]) -> None:
        """games: in the order of the assignment's splits; they are closed with the stepper."""
        self._games = list(games)
        self._tables = tables
        self._rows = rows = list(zip(layout.rosters, tables, strict=True))
        self._ranges, left = assignment.splits, iter(games)
        self._splits = [[_Hosted(next(left), i, assignment, rows) for i in split] for split in assignment.splits]
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
        for host in self._splits[split]:
            host.restart(counter)
            host.observe([table.aside for table in self._tables])
            for place in host.places:
                place.table.active_aside[place.own] = host.game.active[place.agents]
        return Answer(split, [], {}, [host.index for host in self._splits[split] if not host.whole])

    def _step(self, split: int, page: int, t: int) -> Answer:
        after = [{n: array[page, t + 1] for n, array in table.observations.items()} for table in self._tables]
        blocks = [(table, (page, t, roster.rows(self._ranges[split]))) for roster, table in self._rows]
        for table, block in blocks:
            table.group_rewards[block] = 0.0
        stats, over = {}, []
        for host in self._splits[split]:
            step = host.step()
            for place in host.places:
                place.write((page, t, place.own), step)
            if step.stats:
                stats[host.index] = {agent: dict(numbers) for agent, numbers in step.stats.items()}
            if step.truncated.any():
                host.observe([table.aside for table in self._tables], final=True)
            if step.over:
                if any(place.is_open((page, t, place.own)) for place in host.places):
                    raise EnvError(OPEN_END.format(host.index))
                over.append(Over(host.index, tuple(map(float, step.points)), host.whole))
                host.begin()
            host.observe(after)
            for place in host.places:
                place.table.active[page, t + 1, place.own] = host.game.active[place.agents]
        for table, block in blocks:
            # Rows without a decision count as terminated: whoever reads the page restarts state and returns after them.
            table.terminated[block] |= ~table.active[block]
            table.truncated[block] &= ~table.terminated[block]
        return Answer(split, over, stats, [])

    def close(self) -> None:
        """Close all games."""
        for game in self._games:
            game.close()


class _Place:
    """Where one game's agents of one behavior lie. own: their rows. agents: their indices, in the order of the rows.

    order: what `BehaviorRows.order` says; scratch: arrays in the game's own order, where that is another one.
    """

    def __init__(self, roster: BehaviorRows, table: Table, index: int) -> None:
        self.name, self.order = roster.behavior.name, roster.order
        self.table, self.own = table, roster.rows(range(index, index + 1))
        self.agents = roster.columns
        scratched = {} if roster.order is None else table.aside
        self.scratch = {name: array[self.own].copy() for name, array in scratched.items()}

    @property
    def actions(self) -> F32:
        """In the game's order."""
        actions: F32 = self.table.actions[self.own]
        if self.order is None:
            return actions
        given = np.empty_like(actions)
        given[self.order] = actions
        return given

    def write(self, at: tuple[int, int, slice], step: GameStep) -> None:
        """Keep what a decision brought. at: page, decision, own rows."""
        table, agents = self.table, self.agents
        table.rewards[at] = step.reward[agents]
        table.terminated[at], table.truncated[at] = step.terminated[agents], step.truncated[agents]
        if step.group_reward is not None:
            table.group_rewards[at] = step.group_reward[agents]

    def is_open(self, at: tuple[int, int, slice]) -> bool:
        """Whether an active agent's episode goes on."""
        table = self.table
        return bool((table.active[at] & ~(table.terminated[at] | table.truncated[at])).any())


class _Hosted:
    """A game, its rows, and the seeds of its episodes. whole: policies have played the episode from its beginning."""

    def __init__(
        self, game: Game, index: int, assignment: Assignment, rows: Sequence[tuple[BehaviorRows, Table]]
    ) -> None:
        self.game, self.index, self.whole = game, index, True
        self.places = [_Place(*own, index) for own in rows]
        self._alone = self.places[0] if len(self.places) == 1 else None
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

    def begin(self) -> None:
        """The next episode of this game, with a seed of its own."""
        self._episode += 1
        self.whole = True
        self.game.reset(int(np.random.SeedSequence([*self._key, self._episode]).generate_state(1)[0]) >> 1)

    def step(self) -> GameStep:
        """Play one decision with the actions in shared memory, paid by the numbers there."""
        if self._shaping is not None:
            for place in self.places:
                self._shaping[place.agents] = place.table.shaping[place.own]
        if self._alone is not None:
            return self.game.step(self._alone.actions)
        return self.game.step({place.name: place.actions for place in self.places})

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
