"""Self-play from start to end: what it must learn, and what it must fail to learn."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from palus.config import RunFile, load_run
from palus.train import Run, train
from palus.trust import Trust

TRUST = Trust(frozenset({"line_game"}))
LINE = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 120, "batch_size": 40, "learning_rate": 0.02, "beta": 0.0001},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "max_steps": 2000,
    "summary_freq": 1000,
}
SAMPLING = {"collector": "in_process"}


def run_file(folder: Path, game: str, behaviors: dict[str, Any], **palus: Any) -> RunFile:
    tree = {
        "behaviors": behaviors,
        "checkpoint_settings": {"run_id": "run", "results_dir": str(folder)},
        "env_settings": {"seed": 4},
        "palus": {"env": game, "matmul": "highest", "threads": 1, "num_matches": 10, "sampling": SAMPLING, **palus},
    }
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(tree))
    return load_run(file)


def final_rewards(folder: Path, names: tuple[str, str], ratio: float, **self_play: int) -> list[float]:
    """Each team's mean in the last rollout's matches of a run counted as ML-Agents counts."""
    play = {"save_steps": 5000, "swap_steps": 5000, "play_against_latest_model_ratio": ratio, **self_play}
    options = {"league": {"counting": "reference"}, "env_options": {"names": list(names)}}
    run = run_file(folder, "line_game:LineGame", {name: {**LINE, "self_play": play} for name in names}, **options)
    ended: dict[int, deque[float]] = {0: deque(maxlen=30), 1: deque(maxlen=30)}

    def watch(parts: Run) -> None:
        collect = parts.collector.collect

        def told() -> Any:
            collected = collect()
            for episode in collected.episodes:
                ended[episode.agent].append(episode.reward)
            return collected

        parts.collector.collect = told  # type: ignore[method-assign]

    result = train(run, trust=TRUST, on_start=watch)
    assert result.finished and result.steps >= 2000
    return [float(np.mean(rewards)) for rewards in ended.values()]


def test_asymmetric_self_play_learns_on_both_sides(tmp_path: Path) -> None:
    assert min(final_rewards(tmp_path, ("Line", "Opponent"), 1.0, team_change=2000)) > 0.9


def test_asymmetric_self_play_fails_on_one_side_where_it_plays_as_it_was_at_first(tmp_path: Path) -> None:
    rewards = final_rewards(tmp_path, ("Line", "Opponent"), 0.0, team_change=2000)
    assert max(rewards) > 0.9 and min(rewards) < 0.6


def test_symmetric_self_play_learns_on_both_sides(tmp_path: Path) -> None:
    assert min(final_rewards(tmp_path, ("Line", "Line"), 1.0, team_change=500, swap_steps=100)) > 0.9


def test_symmetric_self_play_fails_on_one_side_where_it_plays_as_it_was_at_first(tmp_path: Path) -> None:
    rewards = final_rewards(tmp_path, ("Line", "Line"), 0.0, team_change=500, swap_steps=100)
    assert max(rewards) > 0.9 and min(rewards) < 0.6
