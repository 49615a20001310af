"""The unit of rated play: one mirrored pair between two contenders, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from palus.arena.models.entity import Entity
from palus.arena.referee.result import MatchResult, Mode


@dataclass(frozen=True)
class Unit:
    """One mirrored pair: contenders[0] is blue in the first leg, purple in the second.

    seed: of the pair, in [0, 2^63); `MatchResult.seed` is the match seed derived from it, the same for both legs.
    params: what the game is set to, {} for its defaults.
    """

    env: str
    seed: int
    contenders: tuple[Entity, Entity]
    mode: Mode = "stochastic"
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MatchReport:
    """One match as played. replay: a `.match` file, or mp4 where a game is filmed. actions: see
    `palus.arena.referee.actions`; empty where a game is filmed. Both are empty when nothing was played."""

    result: MatchResult
    replay: bytes
    actions: bytes


@dataclass(frozen=True)
class UnitOutcome:
    """What `play_unit` returns; first the leg in which contenders[0] is blue.

    isolation: the strongest means that held the models in, for instance "namespaces+seccomp+limits"; "none" when both
    players are built in.   failures: one sentence per contender whose process failed, "" for the others.
    """

    matches: tuple[MatchReport, MatchReport]
    isolation: str
    failures: tuple[str, str] = ("", "")

    @property
    def results(self) -> tuple[MatchResult, ...]:
        """Of both legs."""
        return tuple(match.result for match in self.matches)


class Held(Protocol):
    """As much of a locked model as an outcome tells."""

    isolation: str
    failure: str


def make_outcome(legs: tuple[MatchReport, MatchReport], models: tuple[Held | None, Held | None]) -> UnitOutcome:
    """models: of both contenders, None for a player of the house."""
    levels = [model.isolation for model in models if model is not None and model.isolation]
    failures = (models[0].failure if models[0] else "", models[1].failure if models[1] else "")
    return UnitOutcome(legs, levels[0] if levels else "none", failures)
