"""Cart-poles under palus' protocol: the classic of a game that pays 1 per decision, so that returns are large.

Source: Barto, Sutton and Anderson 1983, with the constants that everybody uses; limit of 500 decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from palus.envs.toy import draw
from palus.errors import EnvError
from palus.types import F32, F64, I32, I64, AgentSpec, AnyArray, BehaviorSpec, Bool, GameSpec, Step

LIMIT = 500
FORCE, GRAVITY, CART_MASS, POLE_MASS, HALF_LENGTH, STEP_S = 10.0, 9.8, 1.0, 0.1, 0.5, 0.02
EDGE_M, FALLEN_RAD = 2.4, np.deg2rad(12.0)
STARTS = 1 << 20
"""Different values that a coordinate can have at the start, in +-0.05."""


class CartPole:
    """One group, each agent with a cart of its own. Whose pole falls leaves; the match ends with the last one.

    Observation, 4 floats: position, speed, angle, angular speed. Actions: one branch of 2, push left or right.
    """

    def __init__(self, num_matches: int, agents: int = 1) -> None:
        behavior = BehaviorSpec.of_vectors("CartPole", (4,), (2,))
        self.spec = GameSpec(
            "CartPole", (behavior,), tuple(AgentSpec(f"cart {i}", 0, 0, "CartPole") for i in range(agents)), LIMIT
        )
        self.num_matches = num_matches
        self.active = np.ones((num_matches, agents), np.bool_)
        self._ended = np.zeros_like(self.active)
        self._state = self._last = np.zeros((num_matches, agents, 4))
        self._seeds, self._match, self._age = np.zeros((3, num_matches), np.int64)

    def reset(self, seeds: I64) -> None:
        """Start N new matches from seeds [N]."""
        self._seeds[:], self._match[:], self._age[:], self._ended[:] = seeds, 0, 0, False
        self._start(np.ones(self.num_matches, np.bool_))

    def _start(self, over: np.ndarray) -> None:
        numbers = self.active.shape[1] * 4
        drawn = [draw(self._seeds[over], self._match[over] * numbers + k, STARTS) for k in range(numbers)]
        self._state[over] = (np.stack(drawn, -1).reshape(-1, *self._state.shape[1:]) / STARTS - 0.5) / 10
        self._age[over], self.active[over] = 0, True

    def observe(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Write what the carts still driving see."""
        wanted = self.active & (rows >= 0)
        out["obs_0"][rows[wanted]] = self._state[wanted]

    def observe_final(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Write what those saw last that ended in the latest step."""
        wanted = self._ended & (rows >= 0)
        out["obs_0"][rows[wanted]] = self._last[wanted]

    def step(self, actions: Sequence[F32]) -> Step:
        """Play one decision; actions: one array [N, P, 1]."""
        x, speed, angle, turn = np.moveaxis(self._state, -1, 0)
        mass, moment = CART_MASS + POLE_MASS, POLE_MASS * HALF_LENGTH
        push = np.where(actions[0][:, :, 0] == 1, FORCE, -FORCE)
        pull = (push + moment * turn**2 * np.sin(angle)) / mass
        twist = (GRAVITY * np.sin(angle) - np.cos(angle) * pull) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * np.cos(angle) ** 2 / mass)
        )
        drive = pull - moment * twist * np.cos(angle) / mass
        moved = np.stack([x + STEP_S * speed, speed + STEP_S * drive, angle + STEP_S * turn, turn + STEP_S * twist], -1)
        acted = self.active.copy()
        self._last = np.where(acted[:, :, None], moved, self._state)
        self._age += 1
        fallen: Bool = acted & ((np.abs(moved[:, :, 0]) > EDGE_M) | (np.abs(moved[:, :, 2]) > FALLEN_RAD))
        late = acted & ~fallen & (self._age == LIMIT)[:, None]
        self._ended = fallen | late
        self.active = acted & ~self._ended
        over: Bool = np.logical_not(self.active.any(1))
        self._state = self._last.copy()
        self._match += over
        self._start(over)
        nothing = np.full((self.num_matches, 1), np.nan, np.float32)
        return Step(acted.astype(np.float32), np.zeros(acted.shape, np.float32), fallen, late, over, nothing)

    def set_parameters(self, parameters: Mapping[str, float | F64]) -> None:
        """There are none. Raises EnvError for any."""
        if parameters:
            raise EnvError(f"CartPole has no environment parameters; found {', '.join(parameters)}")

    def get_state(self) -> dict[str, object]:
        """Copies of what the next decision depends on."""
        names = ("_seeds", "_match", "_age", "_state", "active")
        return {name: getattr(self, name).copy() for name in names}

    def set_state(self, state: dict[str, object]) -> None:
        """Restore what `get_state` returned."""
        for name, value in state.items():
            getattr(self, name)[:] = value

    def close(self) -> None:
        """There is nothing to free."""
