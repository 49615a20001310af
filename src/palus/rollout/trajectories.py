"""What sampled games hand to the APPO learner: one frozen record of arrays `[T, B, ...]`, one row per agent.

It stands beside `Rollout` because nearly every field differs: named observations of several types, joint instead of
per-branch log-probabilities, values and distribution parameters of the acting policy, recurrent state, policy lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from palus.types import F32, I32, AnyArray, Bool


@dataclass(frozen=True)
class Trajectories:
    """T decisions of B rows, each row a contiguous stretch of one agent's life; views of the sampler's memory.

    observations: name -> [T + 1, B, *shape]; the last entry follows decision T - 1 and serves the bootstrap.
    states: [B, S] recurrent state before decision 0 (S is 0 without a core); zero again after every end inside the row.
    last_states: [B, S] the state that follows decision T - 1, zero where an episode ended there; for the bootstrap.
    actions: [T, B, A]; parameters: [T, B, L] of the acting distribution; log_probs: [T, B] joint; values: [T, B] by the
    acting weights, denormalised.
    rewards: [T, B], scaled and clipped. terminated, truncated: [T, B] ended at this decision.
    final_values: [T, B] value of the last observation where truncated, 0 elsewhere.
    valid: [T, B] the row holds a decision of this policy (inactive agents, lost workers and other policies do not).
    versions: [T, B] gradient steps behind the acting weights. frames: engine frames of all valid decisions.
    """

    observations: Mapping[str, AnyArray]
    states: F32
    last_states: F32
    actions: F32
    parameters: F32
    log_probs: F32
    values: F32
    rewards: F32
    terminated: Bool
    truncated: Bool
    final_values: F32
    valid: Bool
    versions: I32
    frames: int

    def __post_init__(self) -> None:
        T, B = self.rewards.shape
        for name, array in vars(self).items():
            if name in ("observations", "states", "last_states", "frames"):
                continue
            if array.shape[:2] != (T, B):
                raise ValueError(f"{name}: shape {array.shape}; expected to begin with {(T, B)}, as rewards do")
        for name, array in self.observations.items():
            if array.shape[:2] != (T + 1, B):
                raise ValueError(f"observation {name}: shape {array.shape}; expected to begin with {(T + 1, B)}")
        if len(self.states) != B or self.last_states.shape != self.states.shape:
            raise ValueError(
                f"states: shapes {self.states.shape}, {self.last_states.shape}; expected {B} rows, both alike"
            )

    @property
    def samples(self) -> int:
        """Decisions that the learner can use."""
        return int(self.valid.sum())


@dataclass(frozen=True)
class EpisodeEnd:
    """One finished episode of one agent.

    game: index of the game instance; agent: index within it; policy: who acted. frames: length in engine frames.
    reward: undiscounted, unscaled sum. stats: what the game reported (`GameStep.stats`). start: counts the starts of
    the game instance since all games began anew; it tells episodes of one match from those of the next.
    """

    game: int
    agent: int
    policy: int
    frames: int
    reward: float
    stats: Mapping[str, float]
    start: int = 0

    @property
    def true_objective(self) -> float:
        """What the game calls its objective, else the sum of rewards."""
        return self.stats.get("true_objective", self.reward)


@dataclass(frozen=True)
class SamplerFaults:
    """What went wrong so far and was repaired. dropped: decisions thrown away with lost workers.

    last: which worker was lost last, and how.
    """

    crashed: int = 0
    hung: int = 0
    dropped: int = 0
    last: str = ""

    @property
    def lost(self) -> int:
        """Workers, for whatever reason."""
        return self.crashed + self.hung


FROZEN = 1 << 16
"""Policy ids: 0, 1, ... are learning policies; FROZEN + n is the league's snapshot n, never learned from."""
