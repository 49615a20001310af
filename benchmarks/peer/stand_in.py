"""A stand-in for the SoccerTwos executable: the right shapes and message pattern, at next to no cost.

Observations come from a pool drawn once, so whatever time is measured around this environment belongs to the trainer.
It answers as Unity does: one message per decision, decisions and endings apart, new agent ids after every ending,
one group per team and match. Runs in the peer's environment; imports nothing of palus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorMapping,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)

OBSERVATION_SIZES = (264, 72)  # forward and backward rays, three stacked frames
BRANCHES = (3, 3, 3)
TEAMS = 2
TEAM_SIZE = 2
EPISODE_DECISIONS = (150, 450)  # the range of match lengths between players of like strength
POOL_FRAMES = 64


@dataclass
class _Team:
    """One team over all matches; row 2m + i is agent i of match m."""

    frames: list[list[np.ndarray[Any, Any]]]  # POOL_FRAMES x one [rows, size] array per observation
    agent_ids: np.ndarray[Any, Any]  # [rows] int32, unique over the life of the environment
    group_ids: np.ndarray[Any, Any]  # [rows] int32
    endings: TerminalSteps


class StandInSoccerTwos(BaseEnv):  # type: ignore[misc]
    """`matches` pitches of two against two. Matches end at random, staggered from the start; one side wins each."""

    def __init__(self, matches: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._matches = matches
        self._rows = matches * TEAM_SIZE
        observations = [
            ObservationSpec((size,), (DimensionProperty.NONE,), ObservationType.DEFAULT, f"rays_{size}")
            for size in OBSERVATION_SIZES
        ]
        spec = BehaviorSpec(observations, ActionSpec.create_discrete(BRANCHES))
        self._specs = {f"SoccerTwos?team={team}": spec for team in range(TEAMS)}
        self._no_reward = np.zeros(self._rows, np.float32)
        self._nothing_masked = [np.zeros((self._rows, choices), bool) for choices in BRANCHES]
        self._ids_given = 0
        self._decision = 0
        self._teams = {name: self._team(index, spec) for index, name in enumerate(self._specs)}
        self.reset()

    @property
    def behavior_specs(self) -> BehaviorMapping:
        return BehaviorMapping(self._specs)

    def reset(self) -> None:
        self._left = self._rng.integers(1, EPISODE_DECISIONS[1], self._matches)
        for name, team in self._teams.items():
            team.agent_ids = self._new_ids(self._rows)
            team.endings = TerminalSteps.empty(self._specs[name])

    def step(self) -> None:
        self._decision += 1
        self._left -= 1
        over = np.flatnonzero(self._left == 0)
        self._left[over] = self._rng.integers(*EPISODE_DECISIONS, len(over))
        rows = (over[:, None] * TEAM_SIZE + np.arange(TEAM_SIZE)).ravel()
        win = np.repeat(self._rng.choice(np.array([-1, 1], np.float32), len(over)), TEAM_SIZE)
        for (name, team), group_reward in zip(self._teams.items(), (win, -win), strict=True):
            if len(rows) == 0:
                team.endings = TerminalSteps.empty(self._specs[name])
                continue
            team.endings = TerminalSteps(
                [frame[rows] for frame in self._frame(team)],
                self._no_reward[rows],
                np.zeros(len(rows), bool),
                team.agent_ids[rows],
                team.group_ids[rows],
                group_reward,
            )
            # A fresh array: the trainer may still hold the one of the last message.
            team.agent_ids = team.agent_ids.copy()
            team.agent_ids[rows] = self._new_ids(len(rows))

    def get_steps(self, behavior_name: str) -> tuple[DecisionSteps, TerminalSteps]:
        team = self._teams[behavior_name]
        decisions = DecisionSteps(
            self._frame(team), self._no_reward, team.agent_ids, self._nothing_masked, team.group_ids, self._no_reward
        )
        return decisions, team.endings

    def set_actions(self, behavior_name: str, action: ActionTuple) -> None:
        expected = (self._rows, len(BRANCHES))
        if action.discrete.shape != expected:
            raise ValueError(f"{behavior_name}: actions of shape {action.discrete.shape}, expected {expected}")

    def set_action_for_agent(self, behavior_name: str, agent_id: int, action: ActionTuple) -> None:
        raise ValueError("actions arrive for all agents at once here; call set_actions")

    def close(self) -> None:
        """Nothing is held."""

    def _team(self, index: int, spec: BehaviorSpec) -> _Team:
        frames = [
            [self._rng.random((self._rows, size), dtype=np.float32) for size in OBSERVATION_SIZES]
            for _ in range(POOL_FRAMES)
        ]
        first_group = 1 + index * self._matches  # 0 means no group
        groups = np.repeat(np.arange(first_group, first_group + self._matches, dtype=np.int32), TEAM_SIZE)
        return _Team(frames, np.empty(0, np.int32), groups, TerminalSteps.empty(spec))

    def _frame(self, team: _Team) -> list[np.ndarray[Any, Any]]:
        return team.frames[self._decision % POOL_FRAMES]

    def _new_ids(self, count: int) -> np.ndarray[Any, Any]:
        first = self._ids_given + 1
        self._ids_given += count
        return np.arange(first, first + count, dtype=np.int32)
