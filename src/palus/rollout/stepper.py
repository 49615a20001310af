"""The games of one worker, stepped group by group straight into shared memory.

Runs in the worker process, or in the main process when there are no workers: it imports no torch and no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from palus.envs.game import Game, ShapedGame, random_actions
from palus.errors import EnvError
from palus.rollout.layout import Layout, SharedArrays
from palus.rollout.messages import Answer, Ended, Posting, Restart, Step

WARM_UP_GAMES = 16
"""Decorrelation spreads games over at most this many rollouts, so that its cost grows with the games, not faster."""

OPEN_END = (
    "game {} is over, but the episode of an active agent was neither terminated nor truncated; "
    "its step has to set one of them for every agent"
)


class Stepper:
    """Steps a worker's games. Same seeds, counters and actions give the same bits, if the games keep that promise."""

    def __init__(self, posting: Posting, layout: Layout, arrays: SharedArrays, games: Sequence[Game]) -> None:
        """games: in the order of the posting's splits; they are closed with the stepper."""
        self._arrays = arrays
        self._games = list(games)
        P = layout.spec.num_agents
        pairs = iter(games)
        self._splits = [[_Hosted(next(pairs), index, posting, P) for index in split] for split in posting.splits]
        self._rows = [slice(split.start * P, split.stop * P) for split in posting.splits]
        # One number per row of the whole run: a worker uses its own.
        self._decisions = np.zeros(layout.rows, np.int64)
        self._returns = np.zeros(layout.rows, np.float64)
        self._whole = np.ones(layout.rows, np.bool_)

    def carry_out(self, order: Restart | Step) -> Answer:
        """Obey one order. Raises what the games raise, and EnvError when one breaks its contract."""
        return self._step(order) if isinstance(order, Step) else self._restart(order)

    def _restart(self, order: Restart) -> Answer:
        arrays, block = self._arrays, self._rows[order.split]
        self._decisions[block] = 0
        self._returns[block] = 0.0
        for host in self._splits[order.split]:
            self._whole[host.rows] = host.restart(order.counter)
            host.game.observe({name: array[host.rows] for name, array in arrays.aside.items()})
            arrays.active_aside[host.rows] = host.game.active
        return Answer(order.split, [], [])

    def _step(self, order: Step) -> Answer:
        split, page, t = order
        arrays, block = self._arrays, self._rows[split]
        rewards, active = arrays.rewards[page, t], arrays.active[page, t]
        terminated, truncated = arrays.terminated[page, t], arrays.truncated[page, t]
        after = {name: array[page, t + 1] for name, array in arrays.observations.items()}
        stats: dict[int, dict[str, float]] = {}
        over = []
        for host in self._splits[split]:
            rows, game = host.rows, host.game
            if host.shaping is not None:
                host.shaping[:] = arrays.shaping[rows]
            step = game.step(arrays.actions[rows])
            rewards[rows], terminated[rows], truncated[rows] = step.reward, step.terminated, step.truncated
            stats.update({rows.start + agent: dict(numbers) for agent, numbers in step.stats.items()})
            if step.truncated.any():
                game.observe_final({name: array[rows] for name, array in arrays.aside.items()})
            if step.over:
                if (active[rows] & ~(step.terminated | step.truncated)).any():
                    raise EnvError(OPEN_END.format(host.index))
                over.append(host.index)
                host.begin()
            game.observe({name: array[rows] for name, array in after.items()})
            arrays.active[page, t + 1, rows] = game.active
        # Rows without a decision count as terminated: whoever reads the page restarts state and returns after them.
        terminated[block] |= ~active[block]
        truncated[block] &= ~terminated[block]
        return Answer(split, self._close_episodes(page, t, block, stats), over)

    def _close_episodes(self, page: int, t: int, block: slice, stats: Mapping[int, Mapping[str, float]]) -> list[Ended]:
        arrays = self._arrays
        active = arrays.active[page, t, block]
        self._decisions[block] += active
        self._returns[block] += np.where(active, arrays.rewards[page, t, block], 0.0)
        closed = active & (arrays.terminated[page, t, block] | arrays.truncated[page, t, block])
        ended = []
        for row in (np.flatnonzero(closed) + block.start).tolist():
            whole = bool(self._whole[row])
            ended.append(Ended(row, int(self._decisions[row]), float(self._returns[row]), stats.get(row, {}), whole))
            self._decisions[row], self._returns[row], self._whole[row] = 0, 0.0, True
        return ended

    def close(self) -> None:
        """Close all games."""
        for game in self._games:
            game.close()


class _Hosted:
    """A game, its rows, and the seeds of its episodes."""

    def __init__(self, game: Game, index: int, posting: Posting, agents: int) -> None:
        self.game = game
        self.index = index
        self.rows = slice(index * agents, (index + 1) * agents)
        self.shaping = cast(ShapedGame, game).shaping if game.spec.shaping else None
        self._posting = posting
        self._key: tuple[int, ...] = ()
        self._episode = 0

    def restart(self, counter: int) -> bool:
        """Begin anew and play some random decisions; returns whether the episode is still untouched."""
        # A replaced worker must not play its first life's episodes again.
        self._key = (self._posting.seed, self.index, counter, self._posting.life)
        self._episode = 0
        self.begin()
        untouched = True
        generator = np.random.default_rng([*self._key, 0])
        for _ in range(int(generator.random() * self._posting.warm_up)):
            step = self.game.step(random_actions(self.game.spec, generator))
            untouched = step.over
            if step.over:
                self.begin()
        return untouched

    def begin(self) -> None:
        """The next episode of this game, with a seed of its own."""
        self._episode += 1
        self.game.reset(int(np.random.SeedSequence([*self._key, self._episode]).generate_state(1)[0]) >> 1)
