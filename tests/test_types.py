"""Observation and action spaces of sampled games: sizes, layouts, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from palus.types import ActionSpec, Continuous, Discrete, GameSpec, ObservationSpec

TURNING = Discrete(21, -12.5, 12.5)


def test_a_tuple_of_parts_is_laid_out_side_by_side() -> None:
    spec = ActionSpec((Discrete(3), Continuous(2, -1.0, 1.0), Discrete(2)))
    assert (spec.columns, spec.parameters, spec.is_discrete) == (4, 9, False)
    assert spec.column_slices == (slice(0, 1), slice(1, 3), slice(3, 4))
    assert spec.parameter_slices == (slice(0, 3), slice(3, 7), slice(7, 9))


def test_the_full_action_space_of_doom_has_39_logits() -> None:
    spec = ActionSpec((Discrete(3), Discrete(3), Discrete(8), Discrete(2), Discrete(2), TURNING))
    assert (spec.parameters, spec.columns, spec.is_discrete) == (39, 6, True)


def test_a_discretised_part_means_numbers() -> None:
    assert [TURNING.value(k) for k in (0, 10, 11, 20)] == [-12.5, 0.0, 1.25, 12.5]
    assert Discrete(5).value(3) == 3.0


def test_images_are_three_dimensional() -> None:
    image = ObservationSpec("obs", (3, 72, 128), "uint8")
    assert (image.is_image, image.size) == (True, 27648)
    assert not ObservationSpec("measurements", (23,)).is_image


def test_numbers_of_a_games_library_become_pythons_own() -> None:
    """Of them an exported file is written, which takes no 1 for 1.0 and no numpy."""
    box, turn = Continuous(np.int64(2), -1, np.float32(1)), Discrete(np.int64(3), 0, np.int64(1))
    image = ObservationSpec("obs", (np.int32(3), np.int64(8), 8))
    numbers = [box.size, box.low, box.high, turn.choices, turn.low, turn.high, *image.shape]
    assert numbers == [2, -1.0, 1.0, 3, 0.0, 1.0, 3, 8, 8]
    assert [type(n) for n in numbers] == [int, float, float, int, float, float, int, int, int]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ObservationSpec("obs", (2, 3, 72, 128)), "expected \\(size,\\) or"),
        (lambda: ObservationSpec("obs", (0,)), "expected \\(size,\\) or"),
        (lambda: ObservationSpec("obs", (9,), rays=2), "as many numbers of each ray, 2 or more"),
        (lambda: ObservationSpec("obs", (9,), rays=9), "as many numbers of each ray, 2 or more"),
        (lambda: ObservationSpec("obs", (9,), rays=-3), "as many numbers of each ray, 2 or more"),
        (lambda: ObservationSpec("obs", (3, 3), rays=3), "as many numbers of each ray, 2 or more"),
        (lambda: ObservationSpec("obs", (2.0,)), "obs: a size is 2.0; expected a whole number"),
        (lambda: Discrete(2.5), "choices is 2.5; expected a whole number"),
        (lambda: Continuous(1.0), "size is 1.0; expected a whole number"),
        (lambda: Discrete(0), "expected 1 or more"),
        (lambda: Discrete(3, -1.0), "needs low, high"),
        (lambda: Continuous(1, 2.0, 1.0), "expected a box"),
        (lambda: ActionSpec(()), "at least one part"),
        (lambda: game(observations=()), "at least one"),
        (lambda: game(observations=(ObservationSpec("obs", (2,)),) * 2), "each name once"),
        (lambda: game(frameskip=0), "expected >= 1"),
        (lambda: game(num_agents=2, teams=(0,)), "expected one each"),
    ],
)
def test_what_no_game_can_mean_is_refused(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def game(**changes) -> GameSpec:
    facts = {"observations": (ObservationSpec("obs", (2,)),), "actions": ActionSpec((Discrete(2),))}
    return GameSpec.alike("game", **{**facts, **changes})
