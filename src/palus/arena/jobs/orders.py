"""What a worker is told of a job: the lease on it, and who plays whom, as its payload says it and back again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from palus.arena.referee.result import Mode

JobKind = Literal["validate", "pair"]

HOUSE_OWNER = "palus"
HOUSE_VERSION = "1"
"""Changes when a house player plays differently: it is another rated entity then."""


@dataclass(frozen=True)
class Lease:
    """A job in the hands of a worker. secret: proves the lease. attempts: this one included."""

    job_id: int
    kind: JobKind
    payload: dict[str, Any]
    secret: str
    attempts: int


@dataclass(frozen=True)
class Entity:
    """A rated entity that takes part. repo, owner, revision, file: of the entry that is credited with it.

    Others may have pushed the same: that gives them nothing, and takes nothing from the one who is credited.
    p99_ms: processor time of a slow answer when it was validated.
    house: name of the built-in player, None for models.
    """

    sha256: str
    repo: str
    owner: str
    revision: str
    file: str
    p99_ms: float = 0.0

    @property
    def house(self) -> str | None:
        """Name of the built-in player; None for a model."""
        return self.repo.partition("/")[2] if self.owner == HOUSE_OWNER and not self.file else None

    def to_payload(self) -> dict[str, Any]:
        """For a job; bytes travel by their SHA-256."""
        return {
            "sha256": self.sha256,
            "repo": self.repo,
            "owner": self.owner,
            "revision": self.revision,
            "file": self.file,
            "house": self.house,
        }


def house_player(name: str, env: str) -> Entity:
    """A built-in player as one who takes part; its entity stands for this version of it."""
    sha256 = hashlib.sha256(f"{name} {HOUSE_VERSION} {env}".encode()).hexdigest()
    return Entity(sha256, f"{HOUSE_OWNER}/{name}", HOUSE_OWNER, sha256[:40], "")


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
    a: dict[str, Any]
    b: dict[str, Any]
    legs: tuple[int, ...] = (1, 2)
    round: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unit_id(self) -> str:
        """The same players, seed and rules give the same id, whoever of them is called first."""
        players = sorted((side["sha256"], side["repo"]) for side in (self.a, self.b))
        return _digest([self.env, self.seed, self.season, self.sampling, players])

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
            "contenders": [self.a, self.b],
            "legs": list(self.legs),
            "round": self.round,
            "params": dict(self.params),
        }

    @staticmethod
    def from_payload(payload: dict[str, Any]) -> PairOrder:
        """The inverse of `to_payload`."""
        first, second = payload["contenders"]
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
    env, contender = payload["env"], payload["contender"]
    return PairOrder(
        env=env,
        seed=int(contender["sha256"][:12], 16),
        season=0,
        sampling="stochastic",
        rated=False,
        a=contender,
        b=house_player("random", env).to_payload(),
        params=payload.get("params", {}),
    )


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
