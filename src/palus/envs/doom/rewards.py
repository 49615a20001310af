"""Reward terms beside the engine's own: pickups of health, and changes of the player's variables.

Three things differ from Sample Factory 2.1.1 on purpose. Holding a weapon earns 0.0002 p per step with the preference p
of that weapon, as was meant there; its releases pay 0.002 whatever is held. What a dead player's last shot brings is
rewarded; only the step of the respawn itself is not. And a drop of health counts for 200 at most, since some maps kill
by a damage of a million.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from palus.types import F64

PREFERENCES = (1, 1, 1, 5, 5, 5, 10, 10)
"""How much each weapon slot 0..7 is worth: pistol 1; shotguns, machine gun, rockets 5; plasma, BFG 10."""
HOLDING_REWARD = 0.0002
HOLDING_STEPS = 5
RISE_CAPS = {"DAMAGECOUNT": 200.0, "HITCOUNT": 5.0}
DROP_CAPS = {"HEALTH": 200.0}
CELLS = "CELLS"
"""A variable that the engine has not: how many squares of the map the player has been in during this episode.

An episodic novelty, for rewards alone. Source of the idea: Stanton & Clune, "Deep Curiosity Search" (arXiv 1806.00553,
2018), which pays once for every cell of a grid over the map and starts anew with each episode."""
CELL_SIZE = 128.0
"""Side of such a square in map units; a player walks about 8 units a tic."""

Scheme = Mapping[str, tuple[float, float]]
"""Variable -> (reward per unit of rise, reward per unit of drop)."""

_ITEMS: Scheme = {
    **{f"WEAPON{slot}": (0.02 * p, -0.01 * p) for slot, p in enumerate(PREFERENCES)},
    **{f"AMMO{slot}": (0.0002 * p, -0.0001 * p) for slot, p in enumerate(PREFERENCES)},
}
BOTS: Scheme = {
    "FRAGCOUNT": (1.0, -1.5),
    "DEATHCOUNT": (-0.75, 0.75),
    "HITCOUNT": (0.01, -0.01),
    "DAMAGECOUNT": (0.003, -0.003),
    "HEALTH": (0.005, -0.003),
    "ARMOR": (0.005, -0.001),
    **_ITEMS,
}
"""Against bots and monsters (Sample Factory's scheme V0)."""
DUELS: Scheme = {
    **BOTS,
    "FRAGCOUNT": (1.0, -0.001),
    "DEATHCOUNT": (-1.0, 1.0),
    "HITCOUNT": (0.0, 0.0),
    "DAMAGECOUNT": (0.01, -0.01),
    "HEALTH": (0.01, -0.01),
}
"""Between agents (scheme V1)."""


def square(x: float, y: float) -> tuple[int, int]:
    """The square of the map that a point in map units lies in."""
    return int(x // CELL_SIZE), int(y // CELL_SIZE)


def gathering_reward(health_before: float, health_after: float) -> float:
    """1 for any rise of the health, else 0."""
    return 1.0 if health_after > health_before else 0.0


def holding_reward(slot: int, ammunition: float, steps: int) -> float:
    """For a weapon with ammunition in hand for HOLDING_STEPS steps or more. slot: 0..7, others earn nothing."""
    if steps < HOLDING_STEPS or ammunition <= 0 or not 0 <= slot < len(PREFERENCES):
        return 0.0
    return HOLDING_REWARD * PREFERENCES[slot]


def tunable(scheme: Scheme, variables: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """A scheme's numbers, by name, for the variables that are read: what populations tune (`GameSpec.shaping`)."""
    read = [(name, rise, drop) for name, (rise, drop) in scheme.items() if name in variables]
    return tuple(pair for name, rise, drop in read for pair in ((f"{name}.rise", rise), (f"{name}.drop", drop)))


class Shaping:
    """Rewards of one player, decision by decision: what changed, plus the weapon that is held where it is read."""

    def __init__(self, scheme: Scheme, variables: Sequence[str], numbers: F64 | None = None) -> None:
        """numbers: those of `tunable`, read anew at every step; by default the scheme's."""
        names = [name for name in scheme if name in variables]
        self._places = np.array([variables.index(name) for name in names], np.int64)
        own = np.array([number for _, number in tunable(scheme, variables)]) if numbers is None else numbers
        self._weights = own.reshape(-1, 2)  # per unit of rise and of drop
        self._least = -np.array([DROP_CAPS.get(name, np.inf) for name in names])
        self._most = np.array([RISE_CAPS.get(name, np.inf) for name in names])
        self._dead, self._weapon, self._ammunition = (
            variables.index(name) if name in variables else None
            for name in ("DEAD", "SELECTED_WEAPON", "SELECTED_WEAPON_AMMO")
        )
        self.begin()

    def begin(self) -> None:
        """A new episode: its first step is not shaped."""
        self._before: F64 | None = None
        self._held = 0

    def step(self, after: F64) -> float:
        """Reward of a decision that the episode survived. after: [V]; 0 on the first step and on that of a respawn."""
        before, self._before = self._before, after
        if before is None or (self._dead is not None and before[self._dead] > after[self._dead]):
            self._held = 0
            return 0.0
        change = np.clip(after[self._places] - before[self._places], self._least, self._most)
        reward = float(np.where(change > 0, self._weights[:, 0], -self._weights[:, 1]) @ change)
        if self._weapon is None or self._ammunition is None:
            return reward
        self._held = self._held + 1 if before[self._weapon] == after[self._weapon] else 0
        return reward + holding_reward(round(after[self._weapon]), after[self._ammunition], self._held)
