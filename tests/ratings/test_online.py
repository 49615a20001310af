"""openskill's belief about every player."""

from __future__ import annotations

import random

import pytest
from openskill.models import PlackettLuce

from palus.ratings.online import Skill, rated


def test_a_match_of_two_is_rated_in_closed_form_as_openskill_rates_it() -> None:
    model, draw = PlackettLuce(), random.Random(1)
    for _ in range(200):
        a, b = (Skill(draw.gauss(25, 40), draw.uniform(0.5, 9)) for _ in "ab")
        points = draw.choice([(1.0, 0.0), (0.5, 0.5), (0.2, 0.8)])
        teams = [[model.rating(mu=skill.mu, sigma=skill.sigma)] for skill in (a, b)]
        after = model.rate(teams, ranks=[int(points[0] < points[1]), int(points[1] < points[0])])
        ours = [number for ((mu, sigma),) in rated([[a], [b]], points) for number in (mu, sigma)]
        assert ours == pytest.approx([n for (r,) in after for n in (r.mu, r.sigma)], rel=1e-9, abs=1e-9)


def test_mixed_teams_and_free_for_alls_are_rated_at_once() -> None:
    (a, b), (c, _) = rated([[Skill(), Skill()], [Skill(), Skill()]], [1.0, 0.0])
    assert a.mu == b.mu > 25.0 > c.mu and a.sigma < 25.0 / 3.0
    ((first,), (second,), (third,)) = rated([[Skill()]] * 3, [0.1, 0.5, 0.4])
    assert second.mu > third.mu > first.mu
