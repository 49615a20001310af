"""What games tell of themselves in a rollout, put together as each statistic asks for.

Source: ML-Agents 1.1.0, `StatsSideChannel` and `AgentManager.record_environment_stats`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from palus.unity.side_channels import MOST_RECENT, SUM, Statistic


class GameStatistics:
    """Of several games side by side."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, int], list[float]] = {}
        self._latest: dict[str, float] = {}

    def begin(self) -> None:
        """A rollout begins."""
        self._heard = {}

    def hear(self, game: int, told: Sequence[Statistic]) -> None:
        """What a game told. Of what only the latest value counts, the first game's does."""
        for own in told:
            if own.aggregation != MOST_RECENT or game == 0:
                self._heard.setdefault((own.name, own.aggregation), []).append(own.value)

    def numbers(self) -> Mapping[str, float]:
        """Name -> number, of the latest rollout that had any."""
        for (name, aggregation), values in self._heard.items():
            total = float(np.sum(values))
            self._latest[name] = values[-1] if aggregation == MOST_RECENT else total
            if aggregation not in (MOST_RECENT, SUM):
                self._latest[name] = total / len(values)
        return self._latest
