"""A random policy earns what it earns in Sample Factory's environments, for every map of ViZDoom's own package."""

from __future__ import annotations

import math

import numpy as np
import pytest

from palus.envs.check_game import random_actions
from palus.envs.game import make_game

pytest.importorskip("vizdoom", reason="needs the extra doom")
pytestmark = pytest.mark.slow

REFERENCE_EPISODES = 20
EPISODES = 40


@pytest.mark.parametrize(
    ("name", "returns", "tics"),
    [  # mean and standard deviation over the reference's 20 episodes
        ("doom_health_gathering_supreme", (4.66, 1.13), (416, 46)),
        ("doom_health_gathering", (5.00, 1.63), (440, 78)),
        ("doom_basic", (-1.80, 1.80), (199, 110)),
        ("doom_my_way_home", (-0.15, 0.25), (2023, 337)),
        ("doom_deadly_corridor", (-0.42, 0.78), (165, 214)),
        ("doom_defend_the_center", (0.45, 0.97), (324, 72)),
        ("doom_defend_the_line", (7.65, 3.90), (498, 149)),
    ],
)
def test_a_random_policy_earns_what_the_reference_says(name, returns, tics):
    game = make_game(name)
    generator = np.random.default_rng(0)
    sums, lengths = [], []
    for seed in range(EPISODES):
        game.reset(seed)
        sums.append(0.0)
        over = False
        while not over:
            step = game.step(random_actions(game.spec.actions, 1, generator))
            sums[-1] += float(step.reward[0])
            over = step.over
        lengths.append(step.stats[0]["len"])
    game.close()
    for got, (mean, deviation) in ((sums, returns), (lengths, tics)):
        # Of the difference of two means; 3.5 because fourteen are tested.
        error = math.hypot(deviation / math.sqrt(REFERENCE_EPISODES), np.std(got) / math.sqrt(EPISODES))
        assert abs(np.mean(got) - mean) < 3.5 * error
