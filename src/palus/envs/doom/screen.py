"""From the engine's picture to the network's, on the colour planes: nearest neighbour, or the mean of 2 x 2 pixels.

A picture is [3, height, width] uint8 in both. Choosing pixels by one flat index per plane gives the bytes that resizing
the [height, width, 3] picture would give, at a fifth of the cost.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palus.types import AnyArray


def nearest_pixels(source: tuple[int, int], target: tuple[int, int]) -> npt.NDArray[np.intp]:
    """Flat indices into a plane of `source` (height, width) whose pixels make up one of `target`, row by row.

    Pixel i of n stands for pixel floor(i m / n) of m, as OpenCV's INTER_NEAREST has it.
    """
    rows, columns = (np.arange(n) * m // n for m, n in zip(source, target, strict=True))
    return np.asarray((rows[:, None] * source[1] + columns).ravel(), np.intp)


def resize(screen: AnyArray, pixels: npt.NDArray[np.intp], out: AnyArray) -> None:
    """Write the chosen pixels of `screen` to `out`, both contiguous. Raises ValueError when `out` is not."""
    if not out.flags.c_contiguous:
        raise ValueError(f"an output with strides {out.strides} would be written as a copy; expected a contiguous one")
    np.take(screen.reshape(3, -1), pixels, axis=1, out=out.reshape(3, -1), mode="clip")


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
