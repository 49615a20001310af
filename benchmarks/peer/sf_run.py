"""One training run of Sample Factory 2.1.1, in its own environment: its command line, and one game more.

    python sf_run.py --env=doom_health_gathering_supreme --num_workers=2 ...
    python sf_run.py --env=synthetic --num_workers=1 --serial_mode=True ...

`synthetic` is the game of benchmarks/synthetic_game.py: 256 agents that cost next to nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np

AGENTS, SIZE, LENGTH = 256, 336, 1000


class Synthetic(gymnasium.Env):  # type: ignore[misc]
    """Observations from a table, the first choice as reward, episodes of 1000 decisions that end out of step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (SIZE,), np.float32)
    action_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3)] * 3)
    is_multiagent = True
    num_agents = AGENTS

    def __init__(self) -> None:
        self.rows = np.random.default_rng(0).uniform(-1, 1, (16, AGENTS, SIZE)).astype(np.float32)
        self.age = np.arange(AGENTS) * 3 % LENGTH
        self.decision = 0
        self.never = np.zeros(AGENTS, np.bool_)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.rows[0], {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        self.decision += 1
        self.age += 1
        over = self.age >= LENGTH
        self.age[over] = 0
        first = np.asarray(actions[0] if isinstance(actions, (list, tuple)) else actions[:, 0], np.float32)
        return self.rows[self.decision % 16], np.float32(0.01) * first, over, self.never, {}


def make(name: str, config: Any = None, env_config: Any = None, render_mode: Any = None) -> Synthetic:
    """The factory that gets sent to other processes."""
    return Synthetic()


def main(words: list[str]) -> int:
    from sample_factory.train import run_rl

    if any(word.startswith("--env=doom") for word in words):
        from sf_examples.vizdoom.train_vizdoom import parse_vizdoom_cfg, register_vizdoom_components

        register_vizdoom_components()
        return int(run_rl(parse_vizdoom_cfg(words)))
    from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
    from sample_factory.envs.env_utils import register_env

    register_env("synthetic", make)
    parser, _ = parse_sf_args(words)
    return int(run_rl(parse_full_cfg(parser, words)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
