"""Two on lines of their own: the game on which ML-Agents shows what self-play must learn, and must fail to learn.

Each sees the side on which its goal lies and walks LENGTH steps to one side or the other; at the end it is paid 1 for
reaching the goal, less for steps the wrong way, down to -1. Nobody's steps concern the other, so who plays badly shows.
"""

from __future__ import annotations

import numpy as np

from palus.envs.game import GameStep
from palus.types import ActionSpec, AgentSpec, BehaviorSpec, Discrete, GameSpec, ObservationSpec

LENGTH = 3


class LineGame:
    """names: the behaviors of the two teams; one name for both makes the game symmetric."""

    def __init__(self, names: tuple[str, str] = ("Line", "Opponent")) -> None:
        kinds = [
            BehaviorSpec(name, (ObservationSpec("goal", (2,)),), ActionSpec((Discrete(2),)))
            for name in dict.fromkeys(names)
        ]
        agents = tuple(AgentSpec(f"team {k}", k, k, name) for k, name in enumerate(names))
        self.spec = GameSpec("line", tuple(kinds), agents, max_decisions=LENGTH)
        self.names, self.active = names, np.ones(2, np.bool_)

    def reset(self, seed: int) -> None:
        self.goals, self.places, self.age = np.random.default_rng(seed).integers(2, size=2), np.zeros(2, int), 0

    def observe(self, out: dict) -> None:
        seen = np.eye(2, dtype=np.float32)[self.goals]
        if self.names[0] == self.names[1]:
            out["goal"][:] = seen
        else:
            for name, row in zip(self.names, seen, strict=True):
                out[name]["goal"][:] = row

    observe_final = observe

    def step(self, actions: object) -> GameStep:
        chosen = np.concatenate(list(actions.values())) if isinstance(actions, dict) else np.asarray(actions)
        self.places += np.where(chosen[:, 0] == self.goals, 1, -1)
        self.age += 1
        over = self.age == LENGTH
        ended = np.full(2, over)
        reward = (self.places / LENGTH * over).astype(np.float32)
        lead = np.sign(self.places[0] - self.places[1])
        points = ((1 + lead) / 2, (1 - lead) / 2) if over else ()
        return GameStep(reward, ended, np.zeros(2, np.bool_), over, {}, points)

    def close(self) -> None:
        pass
