"""The league of a run as its folder tells it: `league/league.json`, or what older folders keep instead."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from palus.errors import PalusError
from palus.export.policy_file import read_policy
from palus.types import FROZEN, MEMBERS
from palus.web.shapes import Shape
from palus.web.watch.figures import Curves

LEAGUE = Path("league") / "league.json"
_SNAPSHOT = re.compile(r"snapshot-(\d{1,9})\.npz")


class Span(Shape):
    """A rating with the ends of its interval."""

    mean: float
    low: float
    high: float


class LeaguePolicy(Shape):
    """A policy that plays in training. parent: policy id of the learner that it was. origin: of the snapshot before it
    in its line, another learner's where it went on from that one's weights. kept: its file is still there."""

    id: int
    kind: Literal["learner", "snapshot", "member"]
    label: str
    behavior: str
    parent: int | None
    origin: int | None
    step: int | None
    elo: float | None
    rating: Span | None
    landmark: bool
    kept: bool


class Share(Shape):
    """How many of its matches of late a behavior played against somebody."""

    behavior: str
    opponent: str
    share: float


class LeagueView(Shape):
    """training, evaluation: [policy, opponent, points of the policy, matches], both directions. mix: of the last
    summary, or, in a league of several runs, of the last checkpoint of each. A run that keeps no league file has no
    ratings with intervals, no evaluation and no mix."""

    policies: list[LeaguePolicy]
    training: list[tuple[int, int, float, int]]
    evaluation: list[tuple[int, int, float, int]]
    mix: list[Share]
    mix_of: Literal["summary", "checkpoints"]


class _Rating(BaseModel):
    mean: float
    low: float
    high: float


class _Policy(BaseModel):
    behavior: str
    role: str | None = None
    parent: int | None = None
    origin: int | None = None
    step: int | None = None
    elo: float | None = None
    rating: _Rating | None = None
    landmark: bool = False
    kept: bool = True


class _Learner(_Policy):
    id: int = Field(alias="policy")


class _Snapshot(_Policy):
    id: int
    name: str | None = None


class _Member(_Policy):
    id: int
    name: str


class _File(BaseModel):
    """`league/league.json`, as far as the page reads it."""

    format: Literal[1]
    learners: list[_Learner] = Field(default_factory=list)
    snapshots: list[_Snapshot] = Field(default_factory=list)
    members: list[_Member] = Field(default_factory=list)
    training: list[tuple[int, int, float, int]] = Field(default_factory=list)
    evaluation: list[tuple[int, int, float, int]] = Field(default_factory=list)
    mix: dict[str, dict[str, float]] = Field(default_factory=dict)
    mix_of: Literal["summary", "checkpoints"] = "summary"


def snapshot_names(folder: Path) -> dict[int, str]:
    """Number -> name of the snapshots that have one, as those of a league of several runs do."""
    file = _read(folder)
    return {told.id - FROZEN: told.name for told in file.snapshots if told.name is not None} if file else {}


def _read(folder: Path) -> _File | None:
    try:
        return _File.model_validate_json((folder / LEAGUE).read_bytes())
    except (OSError, ValidationError):
        return None


def read_league(folder: Path, curves: Sequence[Curves]) -> LeagueView | None:
    """The league of a run's folder; None where nobody plays a past self. curves: of its learners."""
    file = _read(folder) or _from_older(folder, curves)
    if file is None:
        return None
    labels = {curve.policy: curve.learner for curve in curves}
    policies = [
        *(LeaguePolicy.like(p, kind="learner", label=_role_of(p, labels.get(p.id, p.behavior))) for p in file.learners),
        *(LeaguePolicy.like(p, kind="snapshot", label=_role_of(p, p.name or _name(p.id))) for p in file.snapshots),
        *(LeaguePolicy.like(p, kind="member", label=p.name) for p in file.members),
    ]
    names = {str(policy.id): policy.label for policy in policies}
    mix = [
        Share(behavior=behavior, opponent=names.get(opponent, opponent), share=share)
        for behavior, shares in file.mix.items()
        for opponent, share in shares.items()
    ]
    return LeagueView.like(file, policies=policies, mix=mix)


def _role_of(policy: _Policy, name: str) -> str:
    """Its name, and what it is for where that is not what most are for."""
    return name if policy.role in (None, "main") or policy.role in name else f"{name} {policy.role}"


def _from_older(folder: Path, curves: Sequence[Curves]) -> _File | None:
    """The same from the snapshots that lie there, and the table of payoffs, which knows those that do not any more."""
    rows = [row for path in sorted(folder.glob("*/payoffs.json")) for row in _payoffs(path)]
    there = snapshot_files(folder)
    if not rows and not there:
        return None
    parents = {curve.behavior: curve.policy for curve in reversed(curves)}
    snapshots = [
        _Snapshot(id=FROZEN + number, behavior=behavior, parent=parents.get(behavior), step=trained_steps(path))
        for (behavior, number), path in there.items()
    ]
    others = {policy for policy, *_ in rows} - {snapshot.id for snapshot in snapshots}
    snapshots += [_Snapshot(id=policy, behavior="", kept=False) for policy in others if FROZEN <= policy < MEMBERS]
    return _File(
        format=1,
        learners=[
            _Learner(policy=c.policy, behavior=c.behavior, step=c.step, elo=_last(c.values.get("Self-play/ELO", ())))
            for c in curves
        ],
        snapshots=sorted(snapshots, key=lambda snapshot: snapshot.id),
        members=[_Member(id=policy, name=_name(policy), behavior="") for policy in sorted(others) if policy >= MEMBERS],
        training=rows,
    )


def _name(policy: int) -> str:
    """Of somebody frozen, by the id."""
    return f"member {policy - MEMBERS}" if policy >= MEMBERS else f"#{policy - FROZEN}"


def _payoffs(path: Path) -> list[tuple[int, int, float, int]]:
    try:
        rows = json.loads(path.read_bytes())["rows"]
        return [(int(a), int(b), float(points), int(matches)) for a, b, points, matches in rows]
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return []


def snapshot_files(folder: Path) -> dict[tuple[str, int], Path]:
    """(behavior, number) -> file, of all snapshots of a run, oldest first."""
    found = [
        (int(name[1]), path)
        for path in folder.glob("*/snapshots/*.npz")
        if (name := _SNAPSHOT.fullmatch(path.name)) is not None
    ]
    return {(path.parent.parent.name, number): path for number, path in sorted(found)}


def trained_steps(path: Path) -> int | None:
    """Trainer steps of a policy's file; None where it went while we looked, or is none."""
    try:
        return _steps_in(path, path.stat().st_mtime_ns)
    except (OSError, PalusError):
        return None


@lru_cache(maxsize=2048)
def _steps_in(path: Path, _stamp: int) -> int:
    return read_policy(path).steps


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)
