"""Who is on the board: entries and ratings joined, one credited repository per rated entity."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Row, not_, select

from palus.arena.ladder.entries import by_arrival
from palus.arena.referee.games import game_of
from palus.store.derived import Standing, fields, ratings
from palus.store.tables import entries
from palus.web.shapes import Shape

Kind = Literal["house", "model", "baseline"]


class Player(Shape):
    """How a page names a rated entity.

    revision: 40 hex of the commit that brought it. rating: null until the first fit includes the player.
    """

    sha256: str
    repo: str
    owner: str
    name: str
    revision: str
    kind: Kind
    rating: float | None = None
    half_width: float | None = None


Boards = dict[str, dict[str, Standing]]
"""Ratings by env and entity."""


@dataclass(frozen=True)
class Roster:
    """Entries, newest first within each repo; ratings by env and entity; the player that stands for each entity. Of
    repositories that are gone or private those alone that were accepted: matches name them.

    fields: by env, what the last fit says about it as a whole; summaries: what it says beyond numbers. covariance of a
    field: as of `palus.arena.ladder.derive.packed`, None in large ones. current: by env, the entity that the board
    shows for each repo.
    """

    entries_of: dict[str, list[Row[Any]]]
    ratings: Boards
    fields: Mapping[str, Row[Any]]
    summaries: dict[str, dict[str, Any]]
    players: dict[str, Player]
    current: dict[str, dict[str, str]]

    def player(self, sha256: str, repo: str = "unknown/unknown") -> Player:
        """The player that an entity is shown as; named after the log's repo when its entry is gone."""
        return self.players.get(sha256) or _player(repo, "model", None, sha256=sha256, revision="")

    def current_of(self, env: str, repo: str) -> str | None:
        """Entity that stands for a repository in an env."""
        return self.current.get(env, {}).get(repo)

    def rated(self, env: str, sha256: str | None) -> Standing | None:
        """What the rated games say of an entity; None before the first fit that includes it."""
        return self.ratings.get(env, {}).get(sha256 or "")

    def fitted(self, env: str) -> int:
        """Log number of the last match that went into the ratings of an env; 0 before the first fit."""
        return int(self.fields[env].upto_seq) if env in self.fields else 0

    def summary(self, env: str) -> dict[str, Any]:
        """What the last fit says about an env beyond ratings; nothing before the first."""
        return self.summaries.get(env, {})

    def accepted(self, env: str, repo: str) -> list[Player]:
        """Accepted revisions, newest first, one per file. They keep the name of this repository."""
        found: dict[str, Player] = {}
        for entry in self.entries_of.get(repo, ()):
            if entry.env == env and entry.state == "accepted" and entry.sha256 not in found:
                found[entry.sha256] = _player(repo, kind_of(entry), self.rated(env, entry.sha256), entry)
        return list(found.values())

    def same_player_as(self, entry: Row[Any]) -> str | None:
        """The repository under whose name an accepted revision plays, when that is another one."""
        if entry.state != "accepted" or entry.sha256 is None:
            return None
        credited = self.player(entry.sha256, entry.repo).repo
        return credited if credited != entry.repo else None

    def why_unranked(self, entry: Row[Any]) -> str:
        """A sentence for a revision without a row of its own on the board."""
        revision = f"Revision {entry.revision[:7]}"
        if (twin := self.same_player_as(entry)) is not None:
            return f"{revision} is the same player as {twin}, which plays and is rated for both; push one that differs."
        return {
            "refused": f"{revision} was refused: {entry.sentence} {entry.remedy}",
            "waiting": f"{revision} is {entry.sentence}; {entry.remedy}.",
            "withdrawn": f"{revision} was withdrawn by its owner or an administrator.",
            "pending": f"{revision} waits to be checked.",
            "accepted": f"{revision} was accepted; it is ranked once the ratings include its first games, "
            "unless its owner has too many newer models.",
        }[entry.state]


def _player(repo: str, kind: Kind, rated: Standing | None, *entry: Row[Any], **more: str) -> Player:
    owner, _, name = repo.partition("/")
    return Player.like(rated, *entry, repo=repo, owner=owner, name=name, kind=kind, **more)


def kind_of(entry: Row[Any]) -> Kind:
    """What an entry is to readers."""
    if entry.source == "house":
        return "house"
    return "baseline" if entry.repo in game_of(entry.env).baselines else "model"


def read_roster(connection: Connection) -> Roster:
    """Everything that entries and derived ratings say, from one connection."""
    never_in = entries.c.code.is_not(None) | entries.c.checked_ms.is_(None)
    shown = select(entries).where(not_(never_in & (entries.c.state == "withdrawn")))
    rows = list(connection.execute(shown.order_by(entries.c.id.desc())))
    entries_of: dict[str, list[Row[Any]]] = {}
    for row in rows:
        entries_of.setdefault(row.repo, []).append(row)
    rated: Boards = {}
    for row in connection.execute(select(ratings)):
        rated.setdefault(row.env, {})[row.sha256] = Standing.model_validate(row, from_attributes=True)
    current = _current_entities(rows, rated)
    best_known = {sha256: value for board in rated.values() for sha256, value in board.items()}
    players = {
        entry.sha256: _player(entry.repo, kind_of(entry), best_known.get(entry.sha256), entry)
        for entry in _credited(rows, current)
    }
    fitted = {row.env: row for row in connection.execute(select(fields))}
    summaries = {env: json.loads(row.summary) for env, row in fitted.items()}
    return Roster(entries_of, rated, fitted, summaries, players, current)


def _current_entities(newest_first: list[Row[Any]], rated: Boards) -> dict[str, dict[str, str]]:
    """The newest accepted revision of each repo; an older one while only that is ranked."""
    current: dict[str, dict[str, str]] = {}
    ranked = {(env, sha256) for env, board in rated.items() for sha256, line in board.items() if line.rank}
    for entry in newest_first:
        if entry.state != "accepted" or entry.sha256 is None:
            continue
        of_env = current.setdefault(entry.env, {})
        standing = of_env.get(entry.repo)
        if standing is None or ((entry.env, standing) not in ranked and (entry.env, entry.sha256) in ranked):
            of_env[entry.repo] = entry.sha256
    return current


def _credited(rows: list[Row[Any]], current: dict[str, dict[str, str]]) -> Iterable[Row[Any]]:
    """One entry per entity: the first pusher among those whose current revision it is, else the first of all."""
    chosen: dict[str, tuple[bool, Row[Any]]] = {}
    named = [entry for entry in rows if entry.sha256 is not None]
    for entry in by_arrival(named, named):
        is_current = current.get(entry.env, {}).get(entry.repo) == entry.sha256
        standing = chosen.get(entry.sha256)
        if standing is None or (is_current and not standing[0]):
            chosen[entry.sha256] = (is_current, entry)
    return [entry for _, entry in chosen.values()]
