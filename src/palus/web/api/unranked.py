"""Models without a row of their own on the board, and why: waiting, refused, withdrawn, or somebody else's player."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field
from sqlalchemy import Row

from palus.web.api.view import View
from palus.web.shapes import Shape

MOST = 2000
"""Models that one answer lists, the newest; it says of how many."""


class Unranked(Shape):
    """The newest revision of a repository that does not stand on the board under its name, and why."""

    repo: str
    env: str
    revision: str
    state: str
    code: str | None
    sentence: str
    remedy: str | None
    same_as: str | None = Field(description="repository whose player it is: equal models are rated once")
    since_ms: int


class UnrankedModels(Shape):
    """/api/arena/unranked/{env}: the newest first. of: how many there are, which may be more than are listed."""

    env: str
    of: int
    models: list[Unranked]


def unranked_models(view: View, env: str) -> UnrankedModels:
    """Those of one env, the newest first."""
    lines = unranked(view, (env,))
    return UnrankedModels(env=env, of=len(lines), models=lines[:MOST])


def unranked(view: View, envs: Sequence[str]) -> list[Unranked]:
    """Repositories whose newest revision does not stand on the board under their name, the newest first."""
    found = []
    for rows in view.roster.entries_of.values():
        for env in envs:
            entry = next((entry for entry in rows if entry.env == env), None)
            if entry is not None and (line := _line(view, entry)) is not None:
                found.append(line)
    return sorted(found, key=lambda line: (-line.since_ms, line.repo))


def _line(view: View, entry: Row[Any]) -> Unranked | None:
    twin = same_player_as(view, entry)
    rated = view.roster.rated(entry.env, entry.sha256)
    if twin is None and entry.state == "accepted" and rated is not None and rated.rank:
        return None
    explained = entry.state in ("refused", "waiting")
    return Unranked.like(
        entry,
        code=entry.code if explained else None,
        sentence=(entry.sentence if explained else None) or why_unranked(view, entry),
        remedy=entry.remedy if explained else None,
        same_as=twin,
        since_ms=entry.checked_ms or entry.pushed_ms,
    )


def same_player_as(view: View, entry: Row[Any]) -> str | None:
    """The repository under whose name an accepted revision plays, when that is another one."""
    if entry.state != "accepted" or entry.sha256 is None:
        return None
    credited = view.roster.player(entry.sha256, entry.repo).repo
    return credited if credited != entry.repo else None


def why_unranked(view: View, entry: Row[Any]) -> str:
    """A sentence for a revision without a row of its own on the board."""
    revision = f"Revision {entry.revision[:7]}"
    if entry.state == "refused":
        return f"{revision} was refused: {entry.sentence} {entry.remedy}"
    if entry.state == "waiting":
        return f"{revision} is {entry.sentence}; {entry.remedy}."
    if entry.state == "withdrawn":
        return f"{revision} was withdrawn by its owner or an administrator."
    if entry.state == "pending":
        return f"{revision} waits to be checked."
    if (twin := same_player_as(view, entry)) is not None:
        return f"{revision} is the same player as {twin}, which plays and is rated for both; push one that differs."
    return (
        f"{revision} was accepted; it is ranked once the ratings include its first games, "
        "unless its owner has too many newer models."
    )
