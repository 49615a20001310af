"""The contract between collecting and learning: one frozen record of arrays `[T, B, ...]`.

A row is one agent slot of the learning policy. Rows of one group are neighbours: row = group * group_size + member.
"""

from __future__ import annotations

from dataclasses import dataclass

from palus.types import F32, I32, Bool


@dataclass(frozen=True)
class Rollout:
    """T decisions of B rows.

    observations: [T, B, D]; actions: [T, B, A] branch indices; log_probs: [T, B, A] of the taken choices.
    rewards: [T, B] the agent's own; group_rewards: [T, B] its group's.
    terminated: [T, B] ended by the rules at this decision; truncated: [T, B] cut off by the time limit.
    active: [T, B] the slot holds a decision (an agent that left early is inactive until its match ends).
    last_observations: [B, D] after decision T - 1; last_active: [B].
    final_observations: [K, D] of truncated rows, in the order of `np.argwhere(truncated)`.
    group_size: rows per group.   policy_version: updates behind the acting weights.
    """

    observations: F32
    actions: I32
    log_probs: F32
    rewards: F32
    group_rewards: F32
    terminated: Bool
    truncated: Bool
    active: Bool
    last_observations: F32
    last_active: Bool
    final_observations: F32
    group_size: int
    policy_version: int

    @property
    def agent_steps(self) -> int:
        """Decisions that the learner can use."""
        return int(self.active.sum())


@dataclass(frozen=True)
class Episode:
    """One finished episode of a learning agent.

    opponent: id of the opposing snapshot, -1 for the latest policy. length: decisions. The returns are undiscounted.
    left_early: others of its group played on; what the group reached is told by them.
    result: sign of the last reward plus group reward, or None where there is none to rate: the match was cut off (as in
    ML-Agents), the agent left early, or its group was out, paid nothing, while others played on.
    """

    team: int
    opponent: int
    result: int | None
    length: int
    reward: float
    group_reward: float
    left_early: bool = False


@dataclass(frozen=True)
class Matchup:
    """Who learns and against whom in one match slot. opponent: snapshot id, -1 for the latest policy."""

    learning_team: int
    opponent: int


LATEST = -1
"""The opponent id of the policy that is being trained."""
