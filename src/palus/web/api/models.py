"""The page of one repository: card, revisions with what validation said, and its performance in every env."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field, JsonValue
from sqlalchemy import Connection, Row, select

from palus.arena.ladder.entries import entity_of
from palus.arena.referee.games import game_of
from palus.errors import StorageError
from palus.store import Store
from palus.store.derived import rating_points
from palus.store.tables import commit_files, repo_tags, repos
from palus.web.api.compare import RevisionComparison, compare_revisions
from palus.web.api.leaderboard import LeaderboardRow
from palus.web.api.performance import (
    EntityMatches,
    Goals,
    NextOpponent,
    StrengthBin,
    best_wins,
    by_side,
    by_strength,
    games_of,
    goals,
    opponents_met,
    play_next,
    recent,
    standing,
    worst_losses,
)
from palus.web.api.play_stats import MATCHES, PlayStats, read_play_stats
from palus.web.api.players import accepted_revisions
from palus.web.api.roster import Kind, Player, kind_of
from palus.web.api.summaries import HeadToHead, MatchLine, Tally
from palus.web.api.unranked import same_player_as, why_unranked
from palus.web.api.view import View
from palus.web.cards import MAX_CARD_BYTES, TOO_LARGE, card_html
from palus.web.shapes import Shape

HISTORY_POINTS = 300
"""Per revision: more cannot be told apart on a screen."""
COMPARED_REVISIONS = 5


class Refusal(Shape):
    """Why a file was not accepted. `code` is stable, `sentence` says what was found, `remedy` what to do."""

    code: str
    sentence: str
    remedy: str


class Revision(Shape):
    """One pushed commit in one env. details: what validation measured, free-form."""

    env: str
    revision: str
    file: str
    sha256: str | None
    state: Literal["pending", "waiting", "accepted", "refused", "withdrawn"]
    refusal: Refusal | None = Field(description="why it was refused, or what it waits for")
    details: dict[str, JsonValue]
    pushed_ms: int
    checked_ms: int | None
    current: bool = Field(description="the revision that the board shows")
    rating: float | None
    half_width: float | None
    games: int


class RatingPoint(Shape):
    """Rating after one match of the log; the band is rating +- half_width."""

    at_ms: int
    seq: int
    rating: float
    half_width: float
    games: int


class RatingSeries(Shape):
    """Rating over time of one revision, oldest point first."""

    revision: str
    sha256: str
    points: list[RatingPoint]


class Performance(Shape):
    """How a repository does in one env. Lists of matches concern the current revision."""

    env: str
    filmed: bool = Field(description="replays are videos: no statistics of them, no matches in the demo room")
    standing: LeaderboardRow | None
    why_unranked: str | None = Field(description="a sentence where standing is null")
    same_as: str | None = Field(description="repository whose player the newest revision is, if another one")
    history: list[RatingSeries]
    head_to_head: list[HeadToHead]
    best_wins: list[MatchLine] = Field(description="strongest opponents first")
    worst_losses: list[MatchLine] = Field(description="weakest opponents first")
    recent: list[MatchLine]
    blue: Tally
    purple: Tally
    goals: Goals
    by_strength: list[StrengthBin]
    play: PlayStats | None
    play_next: list[NextOpponent]
    revision_comparisons: list[RevisionComparison]


class ModelPage(Shape):
    """One repository. card_html: sanitised, may be put into a page as it is."""

    repo: str
    owner: str
    name: str
    kind: Kind
    on_hub: bool = Field(description="false for house players and folders: nothing to download")
    tags: list[str]
    library_name: str | None
    downloads: int
    created_ms: int | None
    modified_ms: int | None
    card_html: str
    revisions: list[Revision] = Field(description="newest first")
    performance: list[Performance] = Field(description="one per env, the most played first")


def model_page(view: View, store: Store, connection: Connection, repo: str) -> ModelPage | None:
    """The page of `owner/name`; None when there is no such public repository and it never took part."""
    entries = view.roster.entries_of.get(repo, [])
    hub = connection.execute(
        select(repos).where(repos.c.kind == "model", repos.c.key == repo.lower(), repos.c.private.is_(False))
    ).first()
    if hub is None and not entries:
        return None
    name = hub.name if hub is not None else repo
    if hub is not None and not entries:  # asked for in other capitals than it was made with
        entries = view.roster.entries_of.get(name, [])
    envs = sorted({entry.env for entry in entries}, key=view.envs().index)
    owner, _, short = name.partition("/")
    return ModelPage(
        repo=name,
        owner=owner,
        name=short,
        kind=kind_of(entries[0]) if entries else "model",
        on_hub=hub is not None,
        tags=_tags(connection, hub),
        library_name=hub.library_name if hub is not None else None,
        downloads=hub.downloads if hub is not None else 0,
        created_ms=hub.created_ms if hub is not None else None,
        modified_ms=hub.modified_ms if hub is not None else None,
        card_html=_card(store, connection, hub),
        revisions=[_revision(view, entry) for entry in entries],
        performance=[_performance(view, connection, env, name) for env in envs],
    )


def _tags(connection: Connection, hub: Row[Any] | None) -> list[str]:
    if hub is None:
        return []
    wanted = select(repo_tags.c.tag).where(repo_tags.c.repo_id == hub.id).order_by(repo_tags.c.tag)
    return list(connection.scalars(wanted))


def _card(store: Store, connection: Connection, hub: Row[Any] | None) -> str:
    """The README at head as safe HTML; empty where there is none that can be read."""
    if hub is None or hub.head is None:
        return ""
    file = connection.execute(
        select(commit_files.c.sha256, commit_files.c.size).where(
            commit_files.c.commit_id == hub.head, commit_files.c.path == "README.md"
        )
    ).first()
    if file is None:
        return ""
    if file.size > MAX_CARD_BYTES:
        return TOO_LARGE
    try:
        markdown = store.blobs.read(file.sha256).decode("utf-8", "replace")
    except StorageError:  # a damaged card must not take the page down; `palus audit` reports damaged blobs
        return ""
    return card_html(markdown, hub.name, hub.head)


def _revision(view: View, entry: Row[Any]) -> Revision:
    explained = entry.state in ("refused", "waiting")
    rated = view.roster.ratings.get(entry.env, {}).get(entry.sha256 or "")
    return Revision(
        env=entry.env,
        revision=entry.revision,
        file=entity_of(entry).file,
        sha256=entry.sha256,
        state=entry.state,
        refusal=Refusal(code=entry.code or "", sentence=entry.sentence or "", remedy=entry.remedy or "")
        if explained
        else None,
        details=json.loads(entry.details),
        pushed_ms=entry.pushed_ms,
        checked_ms=entry.checked_ms,
        current=entry.sha256 is not None and view.roster.current_of(entry.env, entry.repo) == entry.sha256,
        rating=rated.rating if rated else None,
        half_width=rated.half_width if rated else None,
        games=rated.games if rated else 0,
    )


def _performance(view: View, connection: Connection, env: str, repo: str) -> Performance:
    sha256 = view.roster.current_of(env, repo)
    games = games_of(view, env, sha256 or "")
    row = standing(view, env, games)
    newest = next(entry for entry in view.roster.entries_of[repo] if entry.env == env)
    blue, purple = by_side(games)
    revisions = accepted_revisions(view, env, repo)
    return Performance(
        env=env,
        filmed=game_of(env).filmed,
        standing=row,
        why_unranked=None if row is not None else why_unranked(view, newest),
        same_as=same_player_as(view, newest),
        history=[_history(connection, env, player) for player in revisions],
        head_to_head=opponents_met(games),
        best_wins=best_wins(games),
        worst_losses=worst_losses(games),
        recent=recent(games),
        blue=blue,
        purple=purple,
        goals=goals(games),
        by_strength=by_strength(games),
        play=_play_stats(connection, games),
        play_next=play_next(view, env, games),
        revision_comparisons=[
            compare_revisions(view, env, newer, older) for newer, older in pairwise(revisions[: COMPARED_REVISIONS + 1])
        ],
    )


def _history(connection: Connection, env: str, player: Player) -> RatingSeries:
    rows = connection.execute(
        select(rating_points)
        .where(rating_points.c.env == env, rating_points.c.sha256 == player.sha256)
        .order_by(rating_points.c.seq)
    ).all()
    step = max(1, -(-len(rows) // HISTORY_POINTS))
    kept = rows[::-1][::step][::-1]  # counted from the end: the newest point is always shown
    return RatingSeries(
        revision=player.revision,
        sha256=player.sha256,
        points=[
            RatingPoint(at_ms=row.at_ms, seq=row.seq, rating=row.rating, half_width=row.half_width, games=row.games)
            for row in kept
        ],
    )


def _play_stats(connection: Connection, games: EntityMatches) -> PlayStats | None:
    log, rows = games.view.log, games.counted[::-1][:MATCHES]
    sides = [(log.id_text(row), bool(is_blue)) for row, is_blue in zip(rows, games.is_blue(rows), strict=True)]
    return read_play_stats(connection, sides) if sides else None
