"""The action spaces press what their tables say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from palus.envs.doom import actions
from palus.types import Discrete


@pytest.mark.parametrize(
    ("layout", "logits", "combinations"),
    [
        (actions.STRAFE_ATTACK, 4, 4),
        (actions.TURN_OR_ATTACK, 4, 4),
        (actions.MOVE, 5, 5),
        (actions.BENCHMARK, 9, 9),
        (actions.TURN_ATTACK, 5, 6),
        (actions.BASIC, 6, 9),
        (actions.EXTENDED, 11, 54),
        (actions.DISCRETIZED_NO_WEAPON, 21, 396),
        (actions.FULL, 39, 6048),
        (actions.FULL_USE, 41, 12096),
    ],
)
def test_sizes_are_those_of_sample_factory(layout, logits, combinations):
    choices = [part.choices for part in layout.spec.parts if isinstance(part, Discrete)]
    assert layout.spec.parameters == logits
    assert math.prod(choices) == combinations


@pytest.mark.parametrize(
    ("layout", "buttons"),
    [
        (actions.STRAFE_ATTACK, "MOVE_LEFT MOVE_RIGHT ATTACK"),
        (actions.TURN_OR_ATTACK, "TURN_LEFT TURN_RIGHT ATTACK"),
        (actions.MOVE, "TURN_LEFT TURN_RIGHT MOVE_FORWARD MOVE_BACKWARD"),
        (
            actions.BENCHMARK,
            "MOVE_FORWARD MOVE_BACKWARD MOVE_RIGHT MOVE_LEFT TURN_RIGHT TURN_LEFT ATTACK SPEED",
        ),
        (actions.EXTENDED, "TURN_LEFT TURN_RIGHT MOVE_FORWARD MOVE_BACKWARD MOVE_LEFT MOVE_RIGHT ATTACK"),
        (
            actions.DISCRETIZED_NO_WEAPON,
            "MOVE_FORWARD MOVE_BACKWARD MOVE_RIGHT MOVE_LEFT ATTACK SPEED TURN_LEFT_RIGHT_DELTA",
        ),
        (
            actions.FULL_USE,
            "MOVE_FORWARD MOVE_BACKWARD MOVE_RIGHT MOVE_LEFT SELECT_WEAPON1 SELECT_WEAPON2 SELECT_WEAPON3 "
            "SELECT_WEAPON4 SELECT_WEAPON5 SELECT_WEAPON6 SELECT_WEAPON7 ATTACK SPEED USE TURN_LEFT_RIGHT_DELTA",
        ),
        (
            actions.HYBRID,
            "MOVE_FORWARD MOVE_BACKWARD MOVE_RIGHT MOVE_LEFT SELECT_NEXT_WEAPON SELECT_PREV_WEAPON ATTACK SPEED "
            "TURN_LEFT_RIGHT_DELTA",
        ),
    ],
)
def test_buttons_are_in_the_order_of_the_table(layout, buttons):
    assert list(layout.buttons) == buttons.split()


@pytest.mark.parametrize(
    ("layout", "action", "pressed"),
    [
        (actions.MOVE, [0], [0, 0, 0, 0]),
        (actions.MOVE, [3], [0, 0, 1, 0]),
        (actions.BASIC, [2, 1], [0, 1, 1, 0]),
        (actions.TURN_ATTACK, [1, 1], [1, 0, 1]),
        (actions.DISCRETIZED_NO_WEAPON, [0, 0, 0, 0, 5], [0] * 6 + [0.0]),
        (actions.DISCRETIZED_NO_WEAPON, [1, 2, 1, 0, 0], [1, 0, 0, 1, 1, 0, -10.0]),
        (actions.FULL_USE, [0, 0, 7, 0, 1, 1, 11], [0] * 10 + [1, 0, 1, 1, 1.25]),
        (actions.HYBRID, [2, 0, 1, 1, 0, 0.5], [0, 1, 0, 0, 1, 0, 1, 0, 3.75]),
        (actions.HYBRID, [0, 0, 0, 0, 0, -4.0], [0] * 8 + [-7.5]),
    ],
)
def test_an_action_presses_its_buttons(layout, action, pressed):
    assert layout.press(np.array(action, np.float32)) == pressed
