"""The verdict of a match as a record that is written once and never changed, and the summary of many.

Everything published (boards, tables, pages) is a function of these records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from palus.arena.models.entity import Entity
from palus.arena.models.forms import Instant, Measure, Score, Sha256, ShortId
from palus.envs.recording import MatchLayout, RecordedEvent, Tick
from palus.errors import ArenaError, ReplayError
from palus.ratings.interval import score_interval

SCHEMA = 4
"""Of results, and of records of the log. 2 added `final_state`, `finished_ms` and the causes of a process that failed,
3 the files of both sides; from 4 on the row of a match holds its actions, and replays of games that repeat are made
from them. Older ones are read."""

Mode = Literal["stochastic", "greedy"]
Verdict = Literal["win1", "win2", "draw", "forfeit1", "forfeit2", "void"]
Cause = Annotated[str, Field(pattern=r"^[a-z_-]{1,40}$")]
PLAYED = ("win1", "win2", "draw")
"""Verdicts of matches that were played to the end."""

POINTS = {"win1": 1.0, "win2": 0.0, "draw": 0.5, "forfeit1": 0.0, "forfeit2": 1.0}
"""Of the first side, by verdict; none for a void match."""


@dataclass(frozen=True)
class Side:
    """Who played one side. entropy: mean over the distributions that it answered, nats summed over the action branches;
    None for who answered none, as scripted bots, and in what workers send and the log holds."""

    entity: Entity
    mode: Mode
    entropy: Measure | None = None

    def to_json(self) -> dict[str, Any]:
        """As results and the log hold it."""
        return {**self.entity.to_json(), "mode": self.mode, "entropy": self.entropy}

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> Side:
        """The inverse of `to_json`, of every schema. Raises LookupError, TypeError or AttributeError for others."""
        # Results had a name only before schema 3.
        entity = Entity(told["sha256"] or "", told["name"]) if "name" in told else Entity.from_json(told)
        return Side(entity, told["mode"], told.get("entropy"))


@dataclass(frozen=True)
class MatchResult:
    """One match: one episode, from the start to the verdict.

    id, unit_id: same players, seed and modes give the same ids; the two matches of a mirrored pair share `unit_id`.
    leg: 1 or 2, which of the pair.   sides: (blue, purple).   result: by side, `forfeit1` = blue forfeited.
    cause: by the rules of the game its `ArenaGame.decided_by`, or "time_limit"; a side answered no distribution
    ("non_finite"), not in time ("timeout"), died ("crash") or never became a policy ("invalid"); "engine": our own
    fault, always void.
    score: of (blue, purple), by `ArenaGame.score`.   duration_ticks: steps of the game's clock, of `ArenaGame.tick_s`.
    final_state: SHA-256 of the match as played (`palus.arena.referee.actions.state_hash`); None when not recorded.
    started: UTC, ISO 8601; wall_ms: from then to the verdict, shared with the matches played beside it. Both are left
    out of comparisons: everything else of a match is repeatable.
    """

    id: ShortId
    unit_id: ShortId
    env: Annotated[str, Field(max_length=64)]
    seed: Annotated[int, Field(ge=0, lt=2**53, strict=True)]
    leg: Annotated[int, Field(ge=1, le=2, strict=True)]
    sides: tuple[Side, Side]
    result: Verdict
    cause: Cause
    score: tuple[Score, Score]
    duration_ticks: Tick
    events: Annotated[tuple[RecordedEvent, ...], Field(max_length=1000)]
    started: Instant = field(compare=False)
    wall_ms: Measure = field(compare=False)
    final_state: Sha256 | None = None
    schema: int = SCHEMA

    @property
    def points(self) -> float | None:
        """Of the first side: 1 won, 0.5 drawn, 0 lost; None when the match does not count."""
        return POINTS.get(self.result)

    @property
    def outcome(self) -> Literal["blue", "purple", "draw"]:
        """What a replay shows as the result."""
        return "draw" if self.points in (None, 0.5) else "blue" if self.points else "purple"

    def to_json(self) -> str:
        """One line, canonical: sorted keys, no spaces, so that equal records are equal bytes."""
        return json.dumps(vars(self), default=_as_json, separators=(",", ":"), sort_keys=True)

    @staticmethod
    def from_json(line: str) -> MatchResult:
        """The record of one line. Raises ReplayError when it is not one, or of a newer schema."""
        try:
            record: dict[str, Any] = json.loads(line)
            if not 1 <= record["schema"] <= SCHEMA:
                raise ReplayError(
                    f"match record of schema {record['schema']}; this palus reads 1 to {SCHEMA}: update it"
                )
            return MatchResult(**record | parts_of(record))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ReplayError(f"not a match record ({error}): {line[:80]!r}") from error


def checked(text: object) -> dict[str, Any]:
    """The fields of a result that a worker sent, for pydantic, which knows their ranges.

    What a model's answers add up to is left out: nobody looks at it, and a model could lead it out of its range.
    Raises ValueError when it is none, or not as palus writes them; ArenaError when another palus wrote it.
    """
    if not isinstance(text, str) or len(text) > 200_000:
        raise ValueError("not a match record")
    try:
        schema = json.loads(text)["schema"]
        if isinstance(schema, int) and schema != SCHEMA and 0 < schema < SCHEMA + 100:
            # Who has an older or a newer palus has done nothing wrong.
            raise ArenaError(f"match record of schema {schema}; this arena takes {SCHEMA}: both need the same palus")
        result = MatchResult.from_json(text)
    except (ValueError, KeyError, TypeError, RecursionError, ReplayError) as error:
        raise ValueError(f"not a match record ({type(error).__name__})") from error
    if result.to_json() != text:
        raise ValueError("not a match record as palus writes it")
    fields = asdict(result)
    for side in fields["sides"]:
        side["entropy"] = None
    return fields


@dataclass(frozen=True)
class PairingSummary:
    """Many mirrored pairs of the same two players, seen from player A.

    score: share of points of A. interval: 95 %, over mirrored pairs (`palus.ratings.interval`).
    wins, draws, losses: matches of A. mean_steps: fixed steps per match. entropy_a, entropy_b: nats, None for bots.
    """

    score: float
    interval: tuple[float, float]
    wins: int
    draws: int
    losses: int
    pairs: int
    mean_steps: float
    entropy_a: float | None
    entropy_b: float | None


def verdict_of(score: Sequence[float]) -> Verdict:
    """What points or a score mean that both sides played for to the end."""
    return "draw" if score[0] == score[1] else "win1" if score[0] > score[1] else "win2"


def verdict_events(layout: MatchLayout | None, result: Verdict, cause: Cause, ticks: int) -> tuple[RecordedEvent, ...]:
    """The events of a result: how it was won, in games that tell. What else happened is in the actions."""
    winner = {"win1": 0, "win2": 1}.get(result, -1)
    told = winner >= 0 and layout is not None and cause in layout.events
    return (RecordedEvent(ticks, cause, winner, -1),) if told else ()


def match_ids(env: str, seed: int, leg: int, sides: Sequence[Side]) -> tuple[str, str]:
    """(id, unit_id) of a match. sides: blue and purple; the unit forgets who was which."""
    who = [(side.entity.repo, side.entity.sha256 or None, side.mode) for side in sides]
    unit = short_digest([env, seed, sorted(who, key=str)])
    return short_digest([unit, leg, who]), unit


def points_of_a(results: Sequence[MatchResult]) -> list[float | None]:
    """Points of A in each match of `play_pairs`: A is blue in the first leg and purple in the second."""
    return [r.points if r.leg == 1 or r.points is None else 1.0 - r.points for r in results]


def summarize(results: Sequence[MatchResult]) -> PairingSummary:
    """Summary of what `play_pairs` returned. A pair with a void match does not count."""
    points = points_of_a(results)
    by_unit: dict[str, list[float | None]] = {}
    for result, point in zip(results, points, strict=True):
        by_unit.setdefault(result.unit_id, []).append(point)
    counted = [games for games in by_unit.values() if None not in games]
    shares = np.array([np.mean([g for g in games if g is not None]) for games in counted])
    flat = [g for games in counted for g in games]
    return PairingSummary(
        score=float(shares.mean()) if len(shares) else 0.5,
        interval=score_interval(shares),
        wins=flat.count(1.0),
        draws=flat.count(0.5),
        losses=flat.count(0.0),
        pairs=len(counted),
        mean_steps=float(np.mean([r.duration_ticks for r in results])) if results else 0.0,
        entropy_a=_mean_entropy([(r.sides[r.leg - 1].entropy, r.duration_ticks) for r in results]),
        entropy_b=_mean_entropy([(r.sides[2 - r.leg].entropy, r.duration_ticks) for r in results]),
    )


def _mean_entropy(entropies: Sequence[tuple[float | None, int]]) -> float | None:
    """Mean over decisions: long matches weigh more. entropies: (mean of a match, its ticks)."""
    known = [(value, ticks) for value, ticks in entropies if value is not None]
    ticks_played = sum(ticks for _, ticks in known)
    return sum(value * ticks for value, ticks in known) / ticks_played if ticks_played else None


def parts_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON holds in forms of its own. Raises ValueError, LookupError, TypeError or AttributeError."""
    (first, second), (blue, purple) = record["sides"], record["score"]
    return {
        "sides": (Side.from_json(first), Side.from_json(second)),
        "score": (int(blue), int(purple)),
        "events": tuple(RecordedEvent(**event) for event in record["events"]),
    }


def _as_json(part: object) -> dict[str, Any]:
    """Whatever a record holds that JSON does not know."""
    return part.to_json() if isinstance(part, Side) else vars(part)


def short_digest(content: object) -> str:
    """An id that follows from what JSON can hold: of a match, a unit, an order."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
