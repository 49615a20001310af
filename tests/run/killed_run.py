"""A small run of self-play that goes on from wherever it was killed; tests start it in a process of its own."""

from __future__ import annotations

import json

from palus.config import load_run
from palus.errors import CheckpointError
from palus.train import train

SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 256, "buffer_size": 512},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "max_steps": 8000, "checkpoint_interval": 2000, "summary_freq": 2000, "time_horizon": 64,
    "self_play": {"save_steps": 250, "team_change": 2000, "swap_steps": 200, "window": 3},
}  # fmt: skip
RUN = ["palus.env=DuelToy", "palus.num_matches=8", "palus.matmul=highest", "palus.threads=1", "env_settings.seed=7",
       "palus.baseline_interval=0", "palus.league.landmarks=3"]  # fmt: skip


def go_on(folder: str, *overrides: str) -> None:
    """Train on from where the run was killed, in a process of its own."""
    run = load_run("debug", [*RUN, *overrides, f"behaviors={json.dumps({'DuelToy': SETTINGS})}"])
    run = run.changed(checkpoint_settings={"results_dir": folder})
    try:
        train(run, resume=True)
    except CheckpointError as error:
        assert "nothing to resume" in str(error)
        train(run, force=True)
