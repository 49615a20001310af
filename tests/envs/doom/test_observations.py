"""Resizing gives the bytes of a nearest-neighbour resize of the whole picture, without the transposed copy."""

from __future__ import annotations

import numpy as np
import pytest

from palus.envs.doom.observations import Nearest, halve, side_by_side


def picture(height, width):
    return np.random.default_rng(0).integers(0, 256, (3, height, width), np.uint8)


@pytest.mark.parametrize(
    ("source", "target"), [((120, 160), (72, 128)), ((144, 256), (72, 128)), ((120, 160), (84, 84)), ((6, 8), (12, 9))]
)
def test_resizing_equals_nearest_neighbour_on_the_transposed_picture(source, target):
    screen = picture(*source)
    out = np.zeros((3, *target), np.uint8)
    Nearest(source, target).write(screen, out)
    # OpenCV's rule: floor(i / scale) with scale = target / source in double precision.
    rows, columns = (np.floor(np.arange(n) * (1.0 / (n / m))).astype(int) for m, n in zip(source, target, strict=True))
    assert np.array_equal(out.transpose(1, 2, 0), screen.transpose(1, 2, 0)[rows][:, columns])


def test_a_target_that_is_not_contiguous_is_refused_instead_of_left_unwritten():
    out = np.zeros((3, 72, 256), np.uint8)[:, :, ::2]
    with pytest.raises(ValueError, match="contiguous"):
        Nearest((120, 160), (72, 128)).write(picture(120, 160), out)


def test_halving_takes_the_mean_of_four_pixels_rounded_half_up():
    screen, out = np.zeros((3, 2, 4), np.uint8), np.zeros((3, 1, 2), np.uint8)
    screen[0] = [[0, 1, 255, 255], [1, 0, 255, 255]]  # means 0.5 and 255
    screen[2] = [[1, 0, 10, 20], [0, 0, 30, 41]]  # 0.25 and 25.25
    halve(screen, out)
    assert out.tolist() == [[[1, 255]], [[0, 0]], [[0, 25]]]


def test_pictures_of_several_players_stand_in_rows():
    two = side_by_side([picture(6, 8), picture(6, 8)])
    three = side_by_side([picture(6, 8)] * 3)
    assert two.shape == (6, 16, 3) and three.shape == (12, 16, 3)
    assert np.array_equal(two[:, 8:], picture(6, 8).transpose(1, 2, 0)) and not three[6:, 8:].any()
