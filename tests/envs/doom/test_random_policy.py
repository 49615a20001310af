"""A random policy earns what it earns in Sample Factory's environments, on every map that is at hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from palus.envs import make_game
from palus.envs.game import random_actions
from palus.errors import ScenarioError

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
        ("doom_two_colors_easy", (3.88, 0.65), (379, 42)),
        ("doom_two_colors_hard", (4.07, 0.90), (392, 44)),
        ("doom_battle", (1.51, 1.42), (589, 273)),
        ("doom_battle2", (0.97, 1.07), (972, 531)),
        ("doom_benchmark", (0.75, 1.18), (390, 198)),
    ],
)
def test_a_random_policy_earns_what_the_reference_says(name, returns, tics):
    try:
        game = make_game(name)
    except ScenarioError as error:
        pytest.skip(str(error))
    generator = np.random.default_rng(0)
    sums, lengths = [], []
    for seed in range(EPISODES):
        game.reset(seed)
        sums.append(0.0)
        over = False
        while not over:
            step = game.step(random_actions(game, generator))
            sums[-1] += float(step.reward[0])
            over = step.over
        lengths.append(step.stats[0]["len"])
    game.close()
    for got, (mean, deviation) in ((sums, returns), (lengths, tics)):
        # Of the difference of two means. Seeds are fixed: it passes always or never.
        error = math.hypot(deviation / math.sqrt(REFERENCE_EPISODES), np.std(got) / math.sqrt(EPISODES))
        assert abs(np.mean(got) - mean) < 3 * error
