"""Random numbers without a generator: the number for a key is a hash of the key.

Nothing has to be stored to resume a run, and no draw depends on which rows are drawn together.
"""

from __future__ import annotations

from numba import njit, uint64


@njit(cache=True, nogil=True, inline="always")
def uniform(seed: int, tick: int, row: int, column: int) -> float:
    """A number in [0, 1). Source: SplitMix64's finaliser (Steele, Lea and Flood 2014), applied to a mixed key."""
    z = uint64(seed) * uint64(0x9E3779B97F4A7C15) + uint64(tick) * uint64(0xD1B54A32D192ED03)
    z ^= uint64(row) * uint64(0xABC98388FB8FAC03) + uint64(column) * uint64(0x8CB92BA72F3D8DD7)
    for _ in range(2):
        z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
        z = z ^ (z >> uint64(31))
    return (z >> uint64(11)) * (1.0 / 9007199254740992.0)
