"""The environment contract: N matches of one game, stepped together, data as struct of arrays.

Anything with these members can be trained on, matched and recorded; `palus.envs.check.check_env` tests them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from palus.types import F32, I32, I64, Bool, GameSpec, Step


class MultiAgentEnv(Protocol):
    """N matches side by side. All arrays are C-contiguous; agents are in the order of `spec.agents`.

    Determinism: the same seeds and actions give the same bits, whatever N is.
    """

    spec: GameSpec
    num_matches: int
    active: Bool
    """[N, P]: this agent takes a decision now. Inactive slots have no observation and their actions are ignored."""

    def reset(self, seeds: I64) -> None:
        """Start N new matches. seeds: [N]; slot n's matches, this one and all later ones, depend on seeds[n] alone."""

    def observe(self, behavior: str, rows: I32, out: F32) -> None:
        """Write the current observation of agent (n, p) to `out[rows[n, p]]`.

        rows: [N, P_b] for the P_b agents of the behavior (`spec.agents_of`); -1 skips an agent. out: [rows, D].
        """

    def observe_final(self, behavior: str, rows: I32, out: F32) -> None:
        """Like `observe`, but the last observation of agents that ended in the latest step, before the reset.

        Only rows of agents that were terminated or truncated in that step are written.
        """

    def step(self, actions: Sequence[I32]) -> Step:
        """Play one decision. actions: per behavior, in the order of `spec.behaviors`, [N, P_b, A] branch indices."""

    def set_parameters(self, parameters: Mapping[str, float]) -> None:
        """Change numbers of the game from the next decision on. Raises EnvError for names that it does not have."""

    def get_state(self) -> dict[str, object]:
        """Everything that `set_state` needs to continue bit for bit; values are arrays and plain numbers."""

    def set_state(self, state: dict[str, object]) -> None:
        """Restore what `get_state` returned."""
