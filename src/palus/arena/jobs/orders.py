"""What a worker is told of a job: the lease on it, and who plays whom, as its payload says it and back again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from palus.arena.models.entity import Entity, house_player
from palus.arena.referee.result import Mode, Side

JobKind = Literal["validate", "pair"]


@dataclass(frozen=True)
class Lease:
    """A job in the hands of a worker. secret: proves the lease. attempts: this one included."""

    job_id: int
    kind: JobKind
    payload: dict[str, Any]
    secret: str
    attempts: int


@dataclass(frozen=True)
class PairOrder:
    """A unit of play as the scheduler orders it. a: blue in leg 1. legs: (1, 2), or (1,) in `rounds` mode.

    params: what the game is set to, {} for its defaults.
    """

    env: str
    seed: int
    season: int
    sampling: Mode
    rated: bool
    a: Entity
    b: Entity
    legs: tuple[int, ...] = (1, 2)
    round: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unit_id(self) -> str:
        """The same players, seed and rules give the same id, whoever of them is called first."""
        players = sorted((entity.sha256, entity.repo) for entity in (self.a, self.b))
        return _digest([self.env, self.seed, self.season, self.sampling, players])

    def sides(self, leg: int) -> tuple[Side, Side]:
        """Who plays the first and the second side of a leg."""
        first, second = (self.a, self.b) if leg == 1 else (self.b, self.a)
        return Side(first, self.sampling), Side(second, self.sampling)

    def match_id(self, leg: int) -> str:
        """Id of one of the unit's games."""
        return _digest([self.unit_id, leg])

    def to_payload(self) -> dict[str, Any]:
        """For a job."""
        return {
            "env": self.env,
            "seed": self.seed,
            "season": self.season,
            "sampling": self.sampling,
            "rated": self.rated,
            "contenders": [self.a.to_json(), self.b.to_json()],
            "legs": list(self.legs),
            "round": self.round,
            "params": dict(self.params),
        }

    @staticmethod
    def from_payload(payload: dict[str, Any]) -> PairOrder:
        """The inverse of `to_payload`."""
        first, second = map(Entity.from_json, payload["contenders"])
        return PairOrder(
            env=payload["env"],
            seed=payload["seed"],
            season=payload["season"],
            sampling=payload["sampling"],
            rated=payload["rated"],
            a=first,
            b=second,
            legs=tuple(payload["legs"]),
            round=payload["round"],
            params=payload.get("params", {}),
        )


def trial_order(payload: dict[str, Any]) -> PairOrder:
    """The first pair of a file that is being validated: unrated, against the random player, by a seed of its own."""
    env, entity = payload["env"], Entity.from_json(payload["contender"])
    return PairOrder(
        env=env,
        seed=int(entity.sha256[:12], 16),
        season=0,
        sampling="stochastic",
        rated=False,
        a=entity,
        b=house_player("random", env),
        params=payload.get("params", {}),
    )


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
