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
    rated, season: not used to play, carried along for the log.   params: what the game is set to, {} for its defaults.
    """

    env: str
    seed: int
    contenders: tuple[Entity, Entity]
    mode: Mode = "stochastic"
    rated: bool = True
    season: int = 1
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class UnitOutcome:
    """What `play_unit` returns; index 0 is the leg in which contenders[0] is blue.

    replays: `.match` files, or mp4 where a game is filmed.   actions: action logs, see `palus.arena.referee.actions`;
    empty where a game is filmed.   isolation: the strongest means that held the models in, for instance
    "namespaces+seccomp+limits"; "none" when both players are built in.
    failures: one sentence per contender whose process failed, "" for the others.
    """

    results: tuple[MatchResult, MatchResult]
    replays: tuple[bytes, bytes]
    actions: tuple[bytes, bytes]
    isolation: str
    failures: tuple[str, str] = ("", "")


class Held(Protocol):
    """As much of a locked model as an outcome tells."""

    isolation: str
    failure: str


def make_outcome(
    legs: tuple[tuple[MatchResult, bytes, bytes], tuple[MatchResult, bytes, bytes]],
    models: tuple[Held | None, Held | None],
) -> UnitOutcome:
    """legs: result, replay and action log of each.   models: of both contenders, None for a player of the house."""
    first, second = legs
    levels = [model.isolation for model in models if model is not None and model.isolation]
    return UnitOutcome(
        results=(first[0], second[0]),
        replays=(first[1], second[1]),
        actions=(first[2], second[2]),
        isolation=levels[0] if levels else "none",
        failures=(models[0].failure if models[0] else "", models[1].failure if models[1] else ""),
    )
