"""The games of one worker, stepped split by split straight into shared memory, and what is said about that.

Runs in the worker process, or in the main process when there are no workers: it imports no torch and no compiler.
None as an order: close all games and leave. None as an answer: still alive, while games are being made, and while they
carry out an order, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from palus.envs.drawing import MatchParameters
from palus.envs.game import Game, random_actions
from palus.envs.matches import Matches
from palus.rollout.layout import Layout, Table
from palus.types import I32, AnyArray

if TYPE_CHECKING:  # see palus.envs.drawing
    from palus.config.environment import Value

WARM_UP_GAMES = 16
"""Decorrelation spreads games over at most this many rollouts, so that its cost grows with the games, not faster."""


@dataclass(frozen=True)
class Assignment:
    """What a worker has to know. splits: indices of the games of each split. life: how often it was replaced before.

    make: makes one more instance of the game, in any process. warm_up: the most random decisions before a game counts.
    core: the processor to stay on, None for any. parameters: numbers of the game to change before it starts. first: the
    number of the first match in the run.
    """

    worker: int
    make: Callable[[], Game]
    splits: tuple[range, ...]
    seed: int
    warm_up: int
    core: int | None
    life: int = 0
    parameters: Mapping[str, Value] = field(default_factory=dict)
    first: int = 0


class Restart(NamedTuple):
    """Order: start all games of a split anew, their first observations to `aside`."""

    split: int
    counter: int


class StepOrder(NamedTuple):
    """Order: play decision t of a page with the actions in shared memory."""

    split: int
    page: int
    t: int


class SetParameters(NamedTuple):
    """Change numbers of all games; it is not answered."""

    parameters: Mapping[str, Value]


class Over(NamedTuple):
    """A game that ended and has started anew. whole: policies have played it from its beginning."""

    game: int
    points: tuple[float, ...]
    whole: bool


class Answer(NamedTuple):
    """An order was carried out. stats: game -> agent -> name -> number. partial: games whose episodes were begun by
    random decisions."""

    split: int
    over: list[Over]
    stats: Mapping[int, Mapping[int, Mapping[str, float]]]
    partial: list[int]


class Failure(NamedTuple):
    """Sent before the worker ends by an exception. kind: its class; at_start: no game had played yet."""

    kind: str
    text: str
    at_start: bool


class Stepper:
    """Steps a worker's games. Same seeds, counters and actions give the same bits, if the games keep that promise."""

    def __init__(
        self,
        assignment: Assignment,
        layout: Layout,
        tables: Sequence[Table],
        make: Callable[[], Game],
        alive: Callable[[], object] = lambda: None,
    ) -> None:
        """make: the assignment's, or one that does more. alive: called after each thing that a game does for an order.
        Raises what `make` raises; games made by then are closed."""
        self._assignment, self._spec, self._alive = assignment, layout.spec, alive
        self._rows = list(zip(layout.rosters, tables, strict=True))
        self._splits: list[Matches] = []
        try:
            for games in assignment.splits:
                self._splits.append(Matches(make, len(games), alive=alive))
            self._parameters = [MatchParameters(env) for env in self._splits]
            self.set_parameters(assignment.parameters)
        except BaseException:
            self.close()
            raise
        self._partial: set[int] = set()
        # [N, P_b] of every behavior, by split: where the agents of the games' own arrays stand in the shared ones.
        self._places = [
            [
                (np.array(games)[:, None] * len(roster.agents) + roster.places).astype(np.int32)
                for roster, _ in self._rows
            ]
            for games in assignment.splits
        ]

    def set_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Change numbers of all games. Raises EnvError for names that they do not have."""
        for own in self._parameters:
            own.change(parameters)

    def carry_out(self, order: Restart | StepOrder) -> Answer:
        """Obey one order. Raises what the games raise, and EnvError when one breaks its contract."""
        return self._step(*order) if isinstance(order, StepOrder) else self._restart(*order)

    def _restart(self, split: int, counter: int) -> Answer:
        env, games, told = self._splits[split], self._assignment.splits[split], self._assignment
        # A replaced worker must not play its first life's episodes again.
        keys = [(told.seed, told.first + game, counter, told.life) for game in games]
        self._parameters[split].restart(keys)
        env.restart(keys)
        partial = [game for n, game in enumerate(games) if self._warm_up(env, n, np.random.default_rng([*keys[n], 0]))]
        self._partial = self._partial - set(games) | set(partial)
        self._look(split, env.observe, [table.aside for _, table in self._rows])
        for roster, table in self._rows:
            table.active_aside[roster.rows(games)] = env.active[:, roster.columns].ravel()
        return Answer(split, [], {}, partial)

    def _warm_up(self, env: Matches, n: int, generator: np.random.Generator) -> bool:
        """Play some random decisions of a game; returns whether its episode was begun by them."""
        game, partial = env.games[n], False
        for _ in range(int(generator.random() * self._assignment.warm_up)):
            over = game.step(random_actions(game, generator)).over
            partial = not over
            if over:
                env.begin(n)
            self._alive()
        env.active[n] = game.active
        return partial

    def _step(self, split: int, page: int, t: int) -> Answer:
        env, games = self._splits[split], self._assignment.splits[split]
        actions = []
        for roster, table in self._rows:
            own, each = roster.rows(games), (len(games), len(roster.agents), -1)
            actions.append(table.actions[own].reshape(each)[:, roster.places])
            if self._spec.shaping:
                for numbers, paid in zip(env.shaping, table.shaping[own].reshape(each), strict=True):
                    numbers[roster.columns] = paid
        step = env.step(actions)
        if step.truncated.any():
            self._look(split, env.observe_final, [table.aside for _, table in self._rows])
        over, ended = [], np.flatnonzero(step.match_over).tolist()
        if ended:
            self._parameters[split].begin(ended)
        for n in ended:
            points = () if np.isnan(step.points[n]).any() else tuple(step.points[n].tolist())
            over.append(Over(games[n], points, games[n] not in self._partial))
            self._partial.discard(games[n])
        self._look(
            split, env.observe, [{n: a[page, t + 1] for n, a in table.observations.items()} for _, table in self._rows]
        )
        for roster, table in self._rows:
            at, after = (page, t, roster.rows(games)), (page, t + 1, roster.rows(games))
            for brought, kept in (
                (step.reward, table.rewards),
                (step.group_reward, table.group_rewards),
                (step.terminated, table.terminated),
                (step.truncated, table.truncated),
            ):
                kept[at] = brought[:, roster.columns].ravel()
            table.active[after] = env.active[:, roster.columns].ravel()
            # Rows without a decision count as terminated: whoever reads the page restarts state and returns after them.
            table.terminated[at] |= ~table.active[at]
            table.truncated[at] &= ~table.terminated[at]
        return Answer(split, over, {games[n]: told for n, told in step.stats.items()}, [])

    def _look(
        self,
        split: int,
        observe: Callable[[str, I32, Mapping[str, AnyArray]], None],
        tables: Sequence[Mapping[str, AnyArray]],
    ) -> None:
        """Write observations into these arrays [B, *shape], by name and for each behavior."""
        for (roster, _), rows, arrays in zip(self._rows, self._places[split], tables, strict=True):
            observe(roster.behavior.name, rows, arrays)

    def close(self) -> None:
        """Close all games."""
        for env in self._splits:
            env.close()
