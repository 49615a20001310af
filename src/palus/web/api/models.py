"""The page of one repository: card, revisions with what validation said, and its performance in every env."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field, JsonValue
from sqlalchemy import Connection, Row

from palus.arena.ladder.entries import entity_of
from palus.arena.models.refusal import Refusal
from palus.errors import HubError, StorageError
from palus.hub.commits import find_file
from palus.hub.probe_file import MAX_PROBE_BYTES, PROBE, ProbePoint, parse_probe
from palus.hub.repos import Repo, find_repo
from palus.store import Store
from palus.web.api.performance import Performance, performance
from palus.web.api.roster import Kind, kind_of
from palus.web.api.view import View
from palus.web.cards import MAX_CARD_BYTES, TOO_LARGE, card_html
from palus.web.shapes import Shape

LISTED_REVISIONS = 100
"""The newest of a repository; each takes half a kilobyte."""


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
    rating: float | None = None
    half_width: float | None = None
    games: int = 0


class ClaimedProbe(Shape):
    """What the publisher says that a best response took from the model, by the repository's probe.json. Nobody here
    has played these matches."""

    env_id: str
    behavior: str
    symmetric: bool = Field(description="the response played both sides, so the bound is one of exploitability")
    trainer_type: str
    steps: int
    wall_seconds: float
    best: ProbePoint
    curve: list[ProbePoint]
    bound: float = Field(description="won from it at least, in points between -1 and 1")


class ModelPage(Shape):
    """One repository. card_html: sanitised, may be put into a page as it is."""

    repo: str
    owner: str
    name: str
    kind: Kind
    on_hub: bool = Field(description="false for house players and folders: nothing to download")
    tags: tuple[str, ...] = ()
    library_name: str | None = None
    downloads: int = 0
    created_ms: int | None = None
    modified_ms: int | None = None
    card_html: str
    probe: ClaimedProbe | None = Field(description="about the model that the board shows; null where there is none")
    revisions_pushed: int
    revisions: list[Revision] = Field(description="the newest of them, newest first")
    performance: list[Performance] = Field(description="one per env, the most played first")


def model_page(view: View, repo: str) -> ModelPage | None:
    """The page of `owner/name`; None when there is no such public repository and it never took part."""
    with view.store.read() as connection:
        hub = find_repo(connection, "model", repo)
        if hub is not None and hub.private:
            hub = None
        if hub is not None and repo not in view.roster.entries_of:  # asked for in other capitals than it was made with
            repo = hub.name
        entries = view.roster.entries_of.get(repo, [])
        if hub is None and not entries:
            return None
        owner, _, name = repo.partition("/")
        return ModelPage.like(
            hub,
            repo=repo,
            owner=owner,
            name=name,
            kind=kind_of(entries[0]) if entries else "model",
            on_hub=hub is not None,
            card_html=_card(view.store, connection, hub) if hub is not None else "",
            probe=_probe(view, connection, hub, repo) if hub is not None else None,
            revisions_pushed=len(entries),
            revisions=[_revision(view, entry) for entry in entries[:LISTED_REVISIONS]],
            performance=[
                performance(view, connection, env, repo)
                for env in sorted({entry.env for entry in entries}, key=view.envs.index)
            ],
        )


def _card(store: Store, connection: Connection, hub: Repo) -> str:
    """The README at head as safe HTML; empty where there is none that can be read."""
    file = find_file(connection, hub.head, "README.md")
    if file is None:
        return ""
    if file.size > MAX_CARD_BYTES:
        return TOO_LARGE
    try:
        markdown = store.blobs.read(file.sha256).decode("utf-8", "replace")
    except StorageError:  # a damaged card must not take the page down; `palus audit` reports damaged blobs
        return ""
    return card_html(markdown, hub.name, hub.head)


def _probe(view: View, connection: Connection, hub: Repo, repo: str) -> ClaimedProbe | None:
    """The probe.json at head, where it is one and names a model that the board shows in the game that it names."""
    file = find_file(connection, hub.head, PROBE)
    if file is None or file.size > MAX_PROBE_BYTES:
        return None
    try:
        probe = parse_probe(view.store.blobs.read(file.sha256))
    except (HubError, StorageError):
        return None
    shown = view.roster.current_of(probe.env_id, repo)
    return ClaimedProbe.like(probe) if shown is not None and shown == probe.model_sha256 else None


def _revision(view: View, entry: Row[Any]) -> Revision:
    refusal = None
    if entry.state in ("refused", "waiting"):
        refusal = Refusal(entry.code or "", entry.sentence or "", entry.remedy or "")
    return Revision.like(
        entry,
        view.roster.rated(entry.env, entry.sha256),
        file=entity_of(entry).file,
        refusal=refusal,
        details=json.loads(entry.details) if entry.state != "withdrawn" else {},
        current=entry.sha256 is not None and view.roster.current_of(entry.env, entry.repo) == entry.sha256,
    )
