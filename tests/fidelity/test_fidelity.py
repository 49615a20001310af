"""Policies trained in Unity play here as they did there, and broken conventions break what they should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scenes import set_scene

from palus import envs
from palus.arena.models.policies import OnnxPlayer, RandomPlayer
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import summarize
from palus.envs.protocol import observe_slots
from palus.fidelity.conventions import CONVENTIONS, AlteredPolicy
from palus.fidelity.logs import measure
from palus.types import BehaviorSpec

SOCCER = BehaviorSpec.of_vectors("SoccerTwos", (264, 72), (3, 3, 3))
MODELS = Path(__file__).parents[3] / "shared" / "models" / "soccertwos"
needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason="the Unity-trained policies of ../shared are not here")
RANDOM = RandomPlayer(SOCCER)
BY_NAME = {c.name: c for c in CONVENTIONS}


def observe(agents: list[tuple[float, float, float]], ball: tuple[float, float]) -> np.ndarray:
    env = envs.make("SoccerTwos", 1)
    set_scene(env, 0, agents, ball)
    seen, _ = observe_slots(env, env.spec.behaviors[0], np.ones((1, 4), np.bool_))
    return np.concatenate(list(seen.values()), axis=1)


def test_mirrored_rays_are_what_agents_see_in_a_mirrored_scene():
    agents, ball = [(0.0, 1.0, 80.0), (8.0, -3.0, -70.0), (-5.0, 5.0, 90.0), (-8.0, -6.0, -100.0)], (5.0, 0.5)
    mirrored = [(x, -z, 180.0 - yaw) for x, z, yaw in agents]
    order = BY_NAME["mirror image of the game"].observation
    np.testing.assert_allclose(observe(mirrored, (5.0, -0.5)), observe(agents, ball)[:, order], atol=1e-5)


def test_every_altered_convention_changes_something_and_loses_nothing():
    for convention in CONVENTIONS:
        assert sorted(convention.observation) == list(range(336))
        assert sorted(convention.choices) == list(range(9))
        altered = (convention.observation != np.arange(336)).any() or (convention.choices != np.arange(9)).any()
        assert altered == (convention.name != "none")


@needs_models
def test_entropy_of_unitys_policies_is_what_unity_logged():
    names = ("lmn8r-5.0M", "crisbret33-140M", "frakw-run3-4.7M")
    policies = [OnnxPlayer(MODELS / f"{name}.onnx", SOCCER) for name in names]
    for row in measure(policies, RANDOM, pairs=10, self_play_games=96, seed=0):
        assert row.entropy_error is not None
        assert abs(row.entropy_error) <= 0.04, row
        assert row.against_random.score >= 0.9, row


@needs_models
def test_wrong_conventions_cost_the_official_policy_what_they_should():
    official = OnnxPlayer(MODELS / "unity-official-soccertwos.onnx", SOCCER)

    def score(name: str) -> float:
        return summarize(play_pairs(AlteredPolicy(official, BY_NAME[name]), RANDOM, 32, seed=0)).score

    assert score("mirror image of the game") > 0.93
    assert 0.55 < score("newest frame first") < 0.92
    assert score("forward axis 1 and 2 swapped") < 0.65
