"""Answers of one policy, computed in other ways: the same but for rounding, which the recipe measures."""

from __future__ import annotations

import numpy as np
import pytest

import arena_matches
import rounding
from palus import envs
from palus.arena.models.policies import PolicySession, played_behaviors
from palus.arena.models.policy_graph import read_policy


def test_two_answers_are_apart_by_a_probability_or_by_what_a_drawn_number_is_compared_with() -> None:
    one = np.array([[0.5, 0.5, 0.25, 0.25, 0.25, 0.25]], np.float32)
    assert rounding.distance(one, one, (2, 4)) == 0.0
    shifted = one + np.array([[0.0, 0.0, 0.125, 0.125, -0.125, -0.125]], np.float32)
    assert rounding.distance(one, shifted, (2, 4)) == 0.25  # where 2 and 3 are told from 0 and 1
    across = one + np.array([[0.0, 0.125, 0.125, 0.0, 0.0, 0.0]], np.float32)
    assert rounding.distance(one, across, (2, 4)) == 0.125  # branches are apart


def test_every_way_answers_as_the_arena_does_but_for_rounding() -> None:
    (behavior,) = played_behaviors(envs.make("SoccerTwos", 1).spec)
    graph = read_policy(arena_matches.idle_policy(1, behavior), "", behavior)
    session = PolicySession(graph, behavior, "")
    rng = np.random.default_rng(0)
    decisions = [
        rounding.Decision({o.name: rng.random((2, *o.shape), np.float32) for o in behavior.observations}, none, None)
        for none in [np.zeros((2, 0), np.float32)] * 3
    ]
    feeds = [session.feed(d.seen, d.states, d.masks) for d in decisions]
    here = [session.answer(d.seen, d.states, d.masks)[0] for d in decisions]
    ways = rounding.by_onnxruntime(graph.model, feeds) | {"numpy": rounding.evaluate(graph.model, feeds)}
    assert len(ways) == 5
    for answers in ways.values():
        for answer, expected in zip(answers, here, strict=True):
            assert answer == pytest.approx(expected, abs=1e-5)
    policy = rounding.Heard("idle", b"", False, graph.model, session, decisions, feeds)
    found = rounding.compare(policy, ways | {"elsewhere": [answer + np.float32(1e-3) for answer in here]}, behavior)
    assert found["ways"]["elsewhere"]["apart"] == pytest.approx(3e-3, rel=1e-2)
    assert found["ways"]["elsewhere"]["of_granted"] > 1 > found["ways"]["numpy"]["of_granted"]
