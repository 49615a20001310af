"""What games tell of themselves until a summary takes it, put together as each statistic asks for.

Source: ML-Agents 1.1.0, `StatsSideChannel` and `AgentManager.record_environment_stats`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from palus.unity.side_channels import HISTOGRAM, MOST_RECENT, SUM, Statistic


@dataclass(frozen=True)
class GameTold:
    """numbers: tag -> number. spread: the same, all numbers of those that are to be shown as a histogram, too."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    spread: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass
class _Heard:
    """Of one statistic."""

    total: float = 0.0
    count: int = 0
    latest: float = 0.0
    spread: list[float] = field(default_factory=list)


class GameStatistics:
    """Of several games side by side, for each learner since its latest summary."""

    def __init__(self) -> None:
        self._heard: dict[int, dict[tuple[str, int], _Heard]] = {}

    def hear(self, game: int, told: Sequence[Statistic], learners: Iterable[int]) -> None:
        """What a game told. Of what only the latest value counts, the first game's does. learners: who are there."""
        told = [own for own in told if own.aggregation != MOST_RECENT or game == 0]
        for learner in learners if told else ():
            known = self._heard.setdefault(learner, {})
            for own in told:
                heard = known.setdefault((own.name, own.aggregation), _Heard())
                heard.total, heard.count, heard.latest = heard.total + own.value, heard.count + 1, own.value
                if own.aggregation == HISTOGRAM:
                    heard.spread.append(own.value)

    def take(self, learner: int) -> GameTold:
        """What came since this was asked for last."""
        found = self._heard.pop(learner, {})
        numbers = {
            name: own.latest
            if aggregation == MOST_RECENT
            else own.total
            if aggregation == SUM
            else own.total / own.count
            for (name, aggregation), own in found.items()
        }
        return GameTold(numbers, {name: own.spread for (name, _), own in found.items() if own.spread})
