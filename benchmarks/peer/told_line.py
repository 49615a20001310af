"""The game on a line of tests/unity, which tells of every episode; for both sides of lessons.py. Imports neither."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "unity"))

from line_envs import Line

TOLD: list[tuple[int, float]] = []
"""Of every agent's episode that ended in this process: decisions of all agents by then, and what it was paid; in teams,
of every team's, with what the group was paid."""


class Told(Line):
    """`Line`, with `TOLD`."""

    def reset(self) -> None:
        super().reset()
        self._earned: dict[int, float] = {}
        self._made = sum(len(deciding) for deciding, _ in self.said.values())

    def step(self) -> None:
        super().step()
        for deciding, ended in self.said.values():
            for agent, reward, group in zip(ended.agent_id, ended.reward, ended.group_reward, strict=True):
                earned = self._earned.pop(int(agent), 0.0) + float(reward)
                if self.size == 1:
                    TOLD.append((self._made, earned))
                elif group:  # who leaves before the others is not told what their group reaches
                    TOLD.append((self._made, float(group)))
            for agent, reward in zip(deciding.agent_id, deciding.reward, strict=True):
                self._earned[int(agent)] = self._earned.get(int(agent), 0.0) + float(reward)
            self._made += len(deciding)
