"""What the players of a logged match say to it, asked in this process."""

from __future__ import annotations

import numpy as np
from helpers import LAYOUT, idle
from numpy.typing import NDArray

from palus.arena.locked import witness
from palus.arena.referee.actions import encode_actions, replay_match
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder

F32 = NDArray[np.float32]


class Wanderer:
    """Remembers a number that doubles its rounding at every decision. elsewhere: its products are rounded otherwise."""

    name, sha256, state_size = "wanderer", None, 1

    def __init__(self, pull: float, *, elsewhere: bool = False) -> None:
        self.pull, self.elsewhere = np.float32(pull), elsewhere

    def answer(self, observations: object, states: F32, masks: object = None) -> tuple[F32, F32]:
        square = (self.pull * states) * states if self.elsewhere else self.pull * (states * states)
        after = 1 - square
        likely = (1 + 0.5 * after) / 3
        return np.tile(np.concatenate([likely, likely, 1 - 2 * likely], axis=1), (1, 3)), after


def heard(played: Wanderer, asked: Wanderer) -> witness.Testimony:
    recorder = Recorder({0})
    (result,) = play_pairs(played, idle(), 1, 5, legs=(1,), recorder=recorder)
    actions = recorder.recordings[0].actions
    assert len(actions) > 100
    asking = witness._Asking([asked, idle()], np.array([result.seed]), "stochastic")
    replay_match("SoccerTwos", result.seed, encode_actions(actions, LAYOUT), asking)
    return asking.sides[0]


def test_nobody_forged_what_a_model_chooses_whose_memory_is_led_away_by_rounding() -> None:
    chaos = heard(Wanderer(1.99, elsewhere=True), Wanderer(1.99))
    assert chaos.strange > 100 and chaos.is_unsteady
    assert heard(Wanderer(1.99), Wanderer(1.99)).strange == 0


def test_a_model_that_forgets_rounding_is_not_called_unsteady_and_answers_for_its_choices() -> None:
    calm = heard(Wanderer(0.5, elsewhere=True), Wanderer(0.5))
    assert calm.strange == 0
    other = heard(Wanderer(0.6), Wanderer(0.5))
    assert other.strange > 0 and not other.is_unsteady
