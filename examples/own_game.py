"""A game of your own: walk along a line of cells to the goal.

From this folder: PYTHONPATH=. palus train line.yaml --trust own_game
"""

import numpy as np

from palus.envs.game import GameStep
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec


class Line:
    def __init__(self, cells: int = 5, limit: int = 20) -> None:  # options of the run file
        self.cells, self.limit = cells, limit
        self.spec = GameSpec.alike("line", (ObservationSpec("place", (cells,)),), ActionSpec((Discrete(2),)))
        self.active = np.ones(1, bool)  # the only agent always acts

    def reset(self, seed: int) -> None:
        self.place, self.steps = int(np.random.default_rng(seed).integers(self.cells - 1)), 0

    def observe(self, out) -> None:
        out["place"][0] = np.eye(self.cells, dtype=np.float32)[self.place]

    observe_final = observe

    def step(self, actions) -> GameStep:
        self.place = min(max(self.place + (1 if actions[0, 0] else -1), 0), self.cells - 1)
        self.steps += 1
        won, late = self.place == self.cells - 1, self.steps == self.limit
        ends = np.array([won]), np.array([late and not won])
        return GameStep(np.array([float(won)], np.float32), *ends, over=won or late)

    def close(self) -> None:
        pass
