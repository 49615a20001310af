"""`make_game`: a user's game by its dotted path, and what it says when there is none."""

from __future__ import annotations

import pytest

from palus.envs.game import make_game
from palus.errors import EnvError
from palus.trust import Trust

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
