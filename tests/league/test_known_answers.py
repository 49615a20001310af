"""Games whose right answer is known: the league finds it, self-play against the latest policy does not.

Measured is what each way of self-play has to offer, by what the best answer wins from it (`exploitability`): self-play
the policy that it has now, PFSP the average of its history, a league with exploiters that of its main learner's, PSRO
the mixture of past selves that its meta-solver plays.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from palus.config import load_run
from palus.envs.matrix import ROCK_PAPER_SCISSORS, exploitability, random_payoffs
from palus.rollout.rollout import FROZEN
from palus.train import Run, train
from palus.types import F64

SOLVED = 0.05
SEED = 1


def played(folder: Path, game: str, steps: int, league: dict[str, Any], *, latest: float = 0.0, **keys: Any) -> Run:
    """A run of PPO whose every snapshot stays."""
    play = {"save_steps": keys.pop("save_steps"), "swap_steps": 0, "window": 1000, "team_change": 10**9}
    behavior = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 128, "learning_rate_schedule": "constant", **keys},
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "max_steps": steps,
        "time_horizon": 1,
        "checkpoint_interval": 10**9,
        "self_play": {**play, "play_against_latest_model_ratio": latest},
    }
    palus = {"env": game, "threads": 1, "matmul": "highest", "num_matches": 64, "league": league}
    file = folder / "run.yaml"
    file.write_text(json.dumps({"behaviors": {game: behavior}, "palus": palus, "env_settings": {"seed": SEED}}))
    overrides = [
        f"checkpoint_settings.results_dir={folder}",
        f"checkpoint_settings.run_id={league.get('opponents', 'latest')}-{len(league)}",
    ]
    if game == "RandomMatrix":
        overrides.append(f"palus.env_options.seed={SEED}")
    runs: list[Run] = []
    train(load_run(file, overrides), on_start=runs.append)
    return runs[0]


def policies(run: Run) -> dict[int, F64]:
    """Snapshot, by policy id -> its mixture of strategies, in the order of time."""
    found = {}
    for snapshot in run.league.pools[0].window:
        network = run.saving.load_policy(run.saving.find(snapshot))
        logits = network.act({"obs_0": torch.ones(1, 1)}, torch.zeros(1, network.state_size))[0][0]
        found[FROZEN + snapshot] = torch.softmax(logits.double(), 0).numpy()
    return found


def average(run: Run) -> F64:
    """Of the history, every snapshot alike."""
    return np.mean(list(policies(run).values()), axis=0)


def meta_mixture(run: Run) -> F64:
    """What the opponents play as the run's own payoffs have it."""
    pool, past = run.league.pools[0], policies(run)
    odds = run.league.odds(pool.contender, [pool])
    weights = odds.weights or [1 / len(odds.others)] * len(odds.others)
    return np.sum([weight * past[k] for k, weight in zip(odds.others, weights, strict=True)], axis=0)


HUNTED = {"main_exploiter": 1, "league_exploiter": 1}
RPS = {"buffer_size": 256, "learning_rate": 8e-3, "beta": 0.3, "steps": 32000}


def test_rock_paper_scissors_is_solved_by_a_league_with_exploiters(tmp_path: Path) -> None:
    hunted = played(
        tmp_path,
        "RockPaperScissors",
        **RPS | {"steps": 6000, "buffer_size": 768, "save_steps": 250},
        league={"opponents": "pfsp_hard", "roles": HUNTED},
        latest=0.35,
    )
    assert exploitability(ROCK_PAPER_SCISSORS, average(hunted)) < SOLVED
    assert {hunted.book.records[FROZEN + k].role for k in hunted.league.pools[0].window} == {"main"}


@pytest.mark.slow
def test_rock_paper_scissors_is_solved_by_the_league_and_not_by_self_play(tmp_path: Path) -> None:
    def run(**more: Any) -> Run:
        return played(tmp_path, "RockPaperScissors", **RPS | more)

    latest = policies(run(league={}, latest=1.0, save_steps=250, steps=12000))
    late = [exploitability(ROCK_PAPER_SCISSORS, policy) for policy in [*latest.values()][-20:]]
    assert min(late) > SOLVED and np.mean(late) > 4 * SOLVED
    prioritized = run(league={"opponents": "pfsp_hard"}, save_steps=250)
    assert exploitability(ROCK_PAPER_SCISSORS, average(prioritized)) < SOLVED
    oracles = run(league={"opponents": "psro_entropy", "evaluation_share": 0.5}, save_steps=2000)
    assert exploitability(ROCK_PAPER_SCISSORS, meta_mixture(oracles)) < SOLVED


MATRIX = {"buffer_size": 512, "learning_rate": 5e-3, "beta": 0.1, "steps": 150000}


@pytest.mark.slow
def test_a_game_of_twenty_strategies_is_solved_by_the_league_and_not_by_self_play(tmp_path: Path) -> None:
    payoffs = random_payoffs(20, SEED)

    def run(**more: Any) -> Run:
        return played(tmp_path, "RandomMatrix", **MATRIX | more)

    assert exploitability(payoffs, np.full(20, 1 / 20)) > 4 * SOLVED  # what nobody has trained yet
    latest = policies(run(league={}, latest=1.0, save_steps=1000, steps=50000))
    late = [exploitability(payoffs, policy) for policy in [*latest.values()][-25:]]
    assert np.mean(late) > 2 * SOLVED
    larger = {"buffer_size": 2048, "learning_rate": 1e-2, "steps": 600000}
    prioritized = run(league={"opponents": "pfsp_hard"}, save_steps=1000, **larger)
    assert exploitability(payoffs, average(prioritized)) < SOLVED
    larger = {"buffer_size": 1024, "steps": 300000}
    oracles = run(league={"opponents": "psro_entropy", "evaluation_share": 0.5}, save_steps=10000, **larger)
    assert exploitability(payoffs, meta_mixture(oracles)) < SOLVED
