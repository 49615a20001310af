"""What games on a square board share: N matches side by side, agents that step from square to square at once.

Random numbers are a pure function of (seed of the slot, number of the draw), so a slot never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palus.envs.toy import ArrayGame, draw
from palus.types import F32, I64, Bool, GameSpec, Step

MOVES: I64 = np.array([(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1)], np.int64)
"""What choice k of an agent adds to its square: stay, the four straight ways, the four diagonal ones."""


class BoardMatches(ArrayGame):
    """A `MultiAgentEnv`. A game brings `_start`, `_play` and `_view`, and adds to `_arrays` what it has to remember.

    A match ends by `_play` or after `ROUNDS` decisions, by the rules both: nothing is ever truncated.
    """

    SIZE = 7
    """Squares along an edge."""
    ROUNDS = 24
    _arrays = (*ArrayGame._arrays, "_round", "_squares")

    def __init__(self, spec: GameSpec, num_matches: int) -> None:
        """num_matches: N, at least 1."""
        super().__init__(spec, num_matches)
        self._round: I64 = np.zeros(num_matches, np.int64)
        self._squares: I64 = np.zeros((num_matches, spec.num_agents, 2), np.int64)

    def _start(self, new: Bool) -> None:
        """Set out the matches that begin. new: [N]."""
        raise NotImplementedError

    def _play(self, before: I64, step: Step) -> None:
        """Fill rewards, `points` for every match, early ends, and who is `terminated` while its match goes on.

        before: the squares [N, P, 2] that agents came from; `active` is who moved.
        """
        raise NotImplementedError

    def _draw(self, slots: Bool, choices: int) -> I64:
        """A uniform number in [0, choices) for each of these slots [N]."""
        drawn = draw(self._seeds[slots], self._drawn[slots], choices)
        self._drawn[slots] += 1
        return drawn

    def _sight(self, squares: I64, origin: I64) -> F32:
        """Offsets [N, ..., 2] in units of the board."""
        offsets: F32 = ((squares - origin) / self.SIZE).astype(np.float32)
        return offsets

    @property
    def _clock(self) -> F32:
        """[N, 1], the share of the match that is over."""
        return (self._round / self.ROUNDS)[:, None].astype(np.float32)

    def reset(self, seeds: I64) -> None:
        """Start N new matches from seeds [N]."""
        super().reset(seeds)
        self._start(np.ones(self.num_matches, np.bool_))

    def step(self, actions: Sequence[F32]) -> Step:
        """Play one decision; actions: per behavior [N, P_b, 1], indices into `MOVES`."""
        shape, played = self.active.shape, self.active.copy()
        before = self._squares.copy()
        for behavior, chosen in zip(self.spec.behaviors, actions, strict=True):
            agents = np.array(self.spec.agents_of(behavior.name))
            moves = MOVES[chosen[:, :, 0].astype(np.int64)] * played[:, agents, None]
            self._squares[:, agents] = (self._squares[:, agents] + moves).clip(0, self.SIZE - 1)
        self._round += 1
        rewards, ends = np.zeros((2, *shape), np.float32), np.zeros((2, *shape), np.bool_)
        points = np.zeros((len(played), len(self.spec.sides)), np.float32)
        step = Step(rewards[0], rewards[1], ends[0], ends[1], self._round == self.ROUNDS, points, {})
        self._play(before, step)
        step.terminated[:] = (step.terminated | step.match_over[:, None]) & played
        points[~step.match_over] = np.nan
        self.active &= ~step.terminated
        self._round[step.match_over], self.active[step.match_over] = 0, True
        self._start(step.match_over)
        return step
