"""Small stand-ins for the games of ML-Agents' run files: same behaviors, kinds of spaces and groups, nothing to win.

Sizes are those of ML-Agents' example environments, pictures and grids included; what is seen and paid is noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from palus.envs.game import GameStep, draw_actions
from palus.types import MASKS, ActionSpec, AgentSpec, BehaviorSpec, Continuous, Discrete, GameSpec, ObservationSpec
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

LENGTH = 10


@dataclass(frozen=True)
class Kind:
    """What agents of a behavior see and do. group: members of a group. goal: the last thing seen is one."""

    sees: tuple[tuple[int, ...], ...]
    numbers: int = 0
    branches: tuple[int, ...] = ()
    masked: bool = False
    group: int = 1
    goal: bool = False


KINDS = {
    "3DBall": Kind(((8,),), 2),
    "3DBallHard": Kind(((45,),), 2),
    "Basic": Kind(((20,),), 0, (3,)),
    "Crawler": Kind(((172,),), 20),
    "DungeonEscape": Kind(((350,), (1,)), 0, (7,), group=3),
    "GridFoodCollector": Kind(((6, 40, 40),), 3, (2,)),
    "GridWorld": Kind(((3, 64, 84), (2,)), 0, (5,), masked=True, goal=True),
    "Hallway": Kind(((30,),), 0, (5,)),
    "Match3SimpleHeuristic": Kind(((8, 8, 9),), 0, (127,), masked=True),
    "Match3SmartHeuristic": Kind(((8, 8, 9),), 0, (127,), masked=True),
    "Match3VisualObs": Kind(((8, 8, 9),), 0, (127,), masked=True),
    "PushBlock": Kind(((105,), (105,)), 0, (7,)),
    "PushBlockCollab": Kind(((5, 20, 20),), 0, (7,), group=3),
    "Pyramids": Kind(((56,), (56,), (56,), (4,)), 0, (5,)),
    "Sorter": Kind(((20, 24), (4,)), 0, (3, 3, 3)),
    "Visual3DBall": Kind(((3, 84, 84),), 2),
    "VisualFoodCollector": Kind(((3, 84, 84),), 3, (2,)),
    "Walker": Kind(((243,),), 39),
    "BigWallJump": Kind(((70,), (4,)), 0, (3, 3, 3, 2)),
    "SmallWallJump": Kind(((70,), (4,)), 0, (3, 3, 3, 2)),
    "Worm": Kind(((64,),), 9),
}


class StandIn:
    """A game with the behaviors of a file, LENGTH decisions long: every other one is cut off, the rest end."""

    def __init__(self, behaviors: list[str]) -> None:
        kinds = [(name, KINDS[name]) for name in behaviors]
        specs, agents = [], []
        for team, (name, kind) in enumerate(kinds):
            last = len(kind.sees) - 1
            seen = tuple(
                ObservationSpec(f"obs_{i}", shape, goal=kind.goal and i == last) for i, shape in enumerate(kind.sees)
            )
            parts = [Continuous(kind.numbers, -1.0, 1.0)] if kind.numbers else []
            actions = ActionSpec((*parts, *(Discrete(size) for size in kind.branches)), masked=kind.masked)
            specs.append(BehaviorSpec(name, seen, actions))
            agents += [AgentSpec(f"{name} {i}", team, team, name) for i in range(kind.group)]
        self.spec = GameSpec("stand-in", tuple(specs), tuple(agents))
        self.active = np.ones(len(agents), np.bool_)

    def reset(self, seed: int) -> None:
        self.age, self.cut, self.random = 0, bool(seed % 2), np.random.default_rng(seed)

    def observe(self, out: Any) -> None:
        several = len(self.spec.behaviors) > 1
        for behavior in self.spec.behaviors:
            arrays = out[behavior.name] if several else out
            for seen in behavior.observations:
                arrays[seen.name][:] = self.random.random(arrays[seen.name].shape, np.float32)
            if behavior.actions.masked and MASKS in arrays:
                arrays[MASKS][:] = True
                arrays[MASKS][:, 0] = False

    observe_final = observe

    def set_parameters(self, parameters: Any) -> None:
        """Takes what the file has."""
        self.parameters = dict(parameters)

    def step(self, actions: Any) -> GameStep:
        self.age += 1
        over, n = self.age == LENGTH, len(self.active)
        ended, nobody = np.full(n, over), np.zeros(n, np.bool_)
        paid = self.random.random(n).astype(np.float32)
        first = (nobody, ended) if self.cut else (ended, nobody)
        return GameStep(paid, *first, over, group_reward=np.full(n, np.float32(over)))

    def close(self) -> None:
        pass


def demonstrate(behavior: str, path: Path) -> None:
    """Write an episode of somebody who does anything."""
    spec = StandIn([behavior]).spec.behaviors[0]
    random, nothing = np.random.default_rng(0), np.zeros(LENGTH, np.float32)
    seen = {o.name: random.random((LENGTH, *o.shape), np.float32) for o in spec.observations}
    actions = draw_actions(spec.actions, LENGTH, None, random)
    write_demonstrations(path, spec, behavior, [ExpertEpisode(seen, actions, None, nothing, nothing, False)])
