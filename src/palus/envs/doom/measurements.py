"""What agents may be told beside the picture, in 23 numbers: weapons, ammunition, health, kills.

Battles and deathmatches always tell it, as in Sample Factory; other games where a run file asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palus.types import F32, F64

SIZE = 23
NAMES = (
    *("SELECTED_WEAPON", "SELECTED_WEAPON_AMMO", "HEALTH", "ARMOR", "USER2", "ATTACK_READY", "PLAYER_COUNT"),
    *(f"WEAPON{slot}" for slot in range(8)),
    *(f"AMMO{slot}" for slot in range(8)),
)
_AMMUNITION = np.array(["AMMO" in name for name in NAMES])
_SCALES = {"HEALTH": 30.0, "ARMOR": 30.0, "USER2": 10.0, "PLAYER_COUNT": 5.0}
MOST_AMMUNITION = 5.0
_FLOORED = ("SELECTED_WEAPON", "HEALTH")


class Measurements:
    """Reads them from a scenario's variables; a variable that the scenario lacks reads 0, an unknown player count 1."""

    def __init__(self, variables: Sequence[str]) -> None:
        # A row of zeros behind the variables serves those that are missing.
        self._source = np.array([variables.index(n) if n in variables else len(variables) for n in NAMES])
        self._scale = np.array(
            [15.0 if ammo else _SCALES.get(n, 1.0) for n, ammo in zip(NAMES, _AMMUNITION, strict=True)]
        )
        self._most = np.where(_AMMUNITION, MOST_AMMUNITION, np.inf)
        self._least = np.array([0.0 if name in _FLOORED else -np.inf for name in NAMES])
        self._counts_players = "PLAYER_COUNT" in variables

    def write(self, values: F64, out: F32) -> None:
        """values: [V] as the engine reports them. out: [23]."""
        numbers = np.append(values, 0.0)[self._source] / self._scale
        np.clip(numbers, self._least, self._most, out=numbers)
        if not self._counts_players:
            numbers[NAMES.index("PLAYER_COUNT")] = 1 / _SCALES["PLAYER_COUNT"]
        out[:] = numbers
