"""`GameSource`: games by name, many at once or one, and what it says when there is none."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from palus.envs import GameSource, make_game
from palus.envs.game import draw_actions
from palus.errors import EnvError
from palus.trust import Trust
from palus.types import ActionSpec, Continuous, Discrete

MINE = Trust(frozenset({"fractions", "no"}))


def test_a_dotted_path_makes_a_game_with_its_options() -> None:
    assert make_game("fractions:Fraction", MINE, numerator=3) == 3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nowhere", {}, "unknown game 'nowhere'"),
        ("no.such.module:Game", {}, "cannot be imported"),
        ("fractions:Game", {}, "cannot be imported"),
        ("fractions:Fraction", {"speed": 1}, "refuses the options \\['speed'\\]"),
    ],
)
def test_a_game_that_cannot_be_made_says_why(name, options, message) -> None:
    with pytest.raises(EnvError, match=message):
        make_game(name, MINE, **options)


def test_a_source_makes_many_or_one_of_a_game_however_it_is_stepped() -> None:
    duel = GameSource("DuelToy", {"cooperative": True})
    assert duel.prefers_batch and duel.spec.sides == (0,)
    assert (duel.batch(5).num_matches, duel.single().spec) == (5, duel.spec)
    assert pickle.loads(pickle.dumps(duel.single))().spec == duel.spec
    assert not GameSource("fractions:Fraction", {}, MINE).prefers_batch


def test_only_games_that_have_a_use_for_threads_are_told_of_them() -> None:
    assert len(GameSource("SoccerTwos").batch(64, threads=2)._ranges) == 2  # type: ignore[attr-defined]
    assert GameSource("DuelToy").batch(8, threads=2).num_matches == 8


def test_a_source_refuses_at_once_what_it_will_never_make() -> None:
    with pytest.raises(EnvError, match="did you mean DuelToy"):
        GameSource("DualToy")
    with pytest.raises(EnvError, match=r"num_matches: |num_matches"):
        GameSource("DuelToy", {"num_matches": 7}).batch(2)


def test_random_choices_are_even_among_those_that_are_allowed_and_numbers_stay_in_their_range() -> None:
    spec = ActionSpec((Discrete(3), Discrete(2), Continuous(1, low=0.5)), masked=True)
    masks = np.tile([True, False, True, False, True], (2000, 1))
    drawn = draw_actions(spec, 2000, masks, np.random.default_rng(0))
    assert set(drawn[:, 0]) == {0.0, 2.0} and np.mean(drawn[:, 0] == 2) == pytest.approx(0.5, abs=0.04)
    assert (drawn[:, 1] == 1).all() and drawn[:, 2].min() == 0.5
