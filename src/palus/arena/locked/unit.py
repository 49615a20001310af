"""The unit of play, as the scheduler orders it, and what came of it, as a worker reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from palus.arena.models.entity import Entity, house_player
from palus.arena.models.forms import Blob, Isolation
from palus.arena.referee.games import EnvBuild
from palus.arena.referee.result import MatchResult, Mode, Side, checked, short_digest


@dataclass(frozen=True)
class Unit:
    """A mirrored pair, or its first leg alone: contenders[0] is blue in leg 1, purple in leg 2.

    seed: of the pair, in [0, 2^63); `MatchResult.seed` is the match seed derived from it, the same for both legs.
    params: what the game is set to, {} for its defaults. round: its number in `rounds` mode, where legs are (1,).
    """

    env: str
    seed: int
    contenders: tuple[Entity, Entity]
    sampling: Mode = "stochastic"
    params: Mapping[str, Any] = field(default_factory=dict)
    legs: tuple[int, ...] = (1, 2)
    season: int = 0
    rated: bool = False
    round: int | None = None

    @property
    def unit_id(self) -> str:
        """The same players, seed and rules give the same id, whoever of them is called first."""
        players = sorted((entity.sha256, entity.repo) for entity in self.contenders)
        return short_digest([self.env, self.seed, self.season, self.sampling, players])

    def sides(self, leg: int) -> tuple[Side, Side]:
        """Who plays the first and the second side of a leg."""
        first, second = self.contenders[:: 1 if leg == 1 else -1]
        return Side(first, self.sampling), Side(second, self.sampling)

    def match_id(self, leg: int) -> str:
        """Id of one of the unit's matches."""
        return short_digest([self.unit_id, leg])

    def to_payload(self) -> dict[str, Any]:
        """For a job."""
        return vars(self) | {"contenders": [entity.to_json() for entity in self.contenders]}

    @staticmethod
    def from_payload(payload: Mapping[str, Any]) -> Unit:
        """The inverse of `to_payload`."""
        first, second = map(Entity.from_json, payload["contenders"])
        known = {own.name: payload[own.name] for own in fields(Unit) if own.name in payload}
        return Unit(**known | {"contenders": (first, second), "legs": tuple(payload["legs"])})

    @staticmethod
    def trial(payload: Mapping[str, Any]) -> Unit:
        """The first pair of an entity that is being validated: unrated, against the random player, by a seed of its
        own."""
        env, entity = payload["env"], Entity.from_json(payload["contender"])
        seed = int(entity.sha256[:12], 16)
        return Unit(env, seed, (entity, house_player("random", env)), params=payload.get("params", {}))


@dataclass(frozen=True)
class MatchReport:
    """One match as played. replay: mp4 where a game is filmed, else empty. actions: see `palus.arena.referee.actions`;
    empty where a game is filmed. Both are empty when nothing was played."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    result: Annotated[MatchResult, BeforeValidator(checked), PlainSerializer(MatchResult.to_json)]
    replay: Blob
    actions: Blob


@dataclass(frozen=True)
class UnitReport:
    """What came of a unit: its matches in the order of its legs, and the build of the game that was played.

    isolation: the strongest means that held the models in, for instance "namespaces+seccomp+limits"; "none" when both
    players are built in.   failures: one sentence per contender whose process failed, "" for the others.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    matches: Annotated[tuple[MatchReport, ...], Field(alias="games", min_length=1, max_length=2)]
    env: EnvBuild
    isolation: Isolation
    failures: Annotated[tuple[str, str], Field(exclude=True)] = ("", "")

    @property
    def results(self) -> tuple[MatchResult, ...]:
        """Of all matches."""
        return tuple(match.result for match in self.matches)
