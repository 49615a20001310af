"""What agents are shown, and what they may be told beside it, in 23 numbers: weapons, ammunition, health, kills.

From the engine's picture to the network's it is nearest neighbour, or the mean of 2 x 2 pixels, on the colour planes: a
picture is [3, height, width] uint8 in both. Choosing pixels plane by plane gives the bytes that resizing the
[height, width, 3] picture would give, at a fraction of the cost.

Battles and deathmatches always tell the numbers, as in Sample Factory; other games where a run file asks for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from palus.types import F32, F64, AnyArray


class Nearest:
    """Pictures by nearest neighbour: pixel i of n stands for pixel floor(i m / n) of m, as OpenCV's INTER_NEAREST.

    Rows are chosen first, because they are copied whole. Where p of every p + 1 columns stay, as from 160 to 128, these
    p are copied at a time.
    """

    def __init__(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        """source, target: height and width."""
        self._rows, self._columns = (np.arange(n) * m // n for m, n in zip(source, target, strict=True))
        self._chosen: AnyArray = np.empty((3, target[0], source[1]), np.uint8)
        stretch, kept = (width // math.gcd(source[1], target[1]) for width in (source[1], target[1]))
        self._pixels = np.dtype((np.void, kept))
        self._kept: AnyArray | None = None
        if stretch == kept + 1:
            parts = np.dtype({"names": ["kept"], "formats": [self._pixels], "itemsize": stretch})
            self._kept = self._chosen.view(parts)["kept"]

    def write(self, screen: AnyArray, out: AnyArray) -> None:
        """screen: [3, *source] uint8. out: [3, *target], contiguous. Raises ValueError when it is not."""
        if not out.flags.c_contiguous:
            raise ValueError(f"an output with strides {out.strides} would be a copy; expected a contiguous one")
        screen.take(self._rows, 1, self._chosen, "clip")
        if self._kept is None:
            self._chosen.take(self._columns, 2, out, "clip")
        else:
            out.view(self._pixels)[...] = self._kept


def halve(screen: AnyArray, out: AnyArray) -> None:
    """Write the means of `screen`'s blocks of 2 x 2 pixels, rounded half up, to `out`, half as high and wide.

    What is a pixel or two wide then fades with the distance, where choosing pixels makes it flicker.
    """
    rows = screen[:, 0::2].astype(np.uint16)
    rows += screen[:, 1::2]
    blocks = rows[:, :, 0::2] + rows[:, :, 1::2]
    np.copyto(out, (blocks + 2) >> 2, casting="unsafe")


def side_by_side(pictures: list[AnyArray]) -> AnyArray:
    """One picture [height, width, 3] of several players' [3, h, w]: two in a row, four in a square, and so on."""
    frames = [np.ascontiguousarray(picture.transpose(1, 2, 0)) for picture in pictures]
    per_row = int(np.ceil(np.sqrt(len(frames))))
    frames += [np.zeros_like(frames[0])] * (-len(frames) % per_row)
    rows = [np.concatenate(frames[i : i + per_row], axis=1) for i in range(0, len(frames), per_row)]
    return np.concatenate(rows, axis=0)


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
