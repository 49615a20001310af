"""Random numbers of the league: as often as their weights say, and none where there is nothing to choose."""

from __future__ import annotations

from collections import Counter

import pytest

from palus.league.draws import Draws


def test_choices_come_as_often_as_their_weights_say_whatever_these_add_up_to() -> None:
    draws = Draws(0, 0, 0)
    found = Counter(draws.one_of("abc", (6.0, 0.0, 2.0)) for _ in range(400))
    assert found.keys() == {"a", "c"} and found["a"] == pytest.approx(300, abs=30)
    alike = Counter(draws.one_of("abcd") for _ in range(400))
    assert min(alike.values()) > 70 and len(alike) == 4


def test_one_alone_takes_no_number() -> None:
    one, other = Draws(1, 2, 3), Draws(1, 2, 3)
    assert other.one_of("a") == other.one_of("a", (0.5,)) == "a"
    assert one() == other() != one()
