"""Revisions that bring the model of the one before: a card was changed, or nothing."""

from __future__ import annotations

from arena_records import sha
from sqlalchemy import select

from palus.arena.ladder.discovery import Entry, Sweep
from palus.arena.ladder.entries import ALIKE_KEPT, decide, forget_alike, read_lineup, take_in
from palus.arena.models.entity import Entity
from palus.store import Store
from palus.store.tables import entries

ENV = "SoccerTwos"


def revision(repo: str, push: int) -> Entry:
    """One whose model is always the same."""
    return Entry(Entity(sha("one"), repo, sha(f"{repo} {push}")[:40], ((ENV, sha("one")),)), 5)


def take(store: Store, *found: Entry, source: str = "hub") -> int:
    """Returns how many entries are new or changed."""
    sweep = Sweep(source, ENV, found, frozenset(entry.entity.repo for entry in found))
    with store.write() as connection:
        return len(take_in(connection, sweep, {}, now_ms=9))


def test_of_revisions_that_bring_the_same_model_the_first_and_the_newest_stay(store: Store) -> None:
    take(store, revision("ann/a", 0))
    with store.write() as connection:
        decide(connection, ENV, sha("one"), None, {"p99_ms": 0.1, "computation": sha("one")}, now_ms=10)
    for push in range(1, ALIKE_KEPT + 5):
        take(store, revision("ann/a", push), revision("bob/b", 0))
    take(store, revision("ann/a", 99), source="folder")  # another repository, of the same name
    with store.read() as connection:
        before = read_lineup(connection, ENV, repos_per_owner=0)
    assert forget_alike(store) == 4 and forget_alike(store) == 0
    with store.read() as connection:
        after = read_lineup(connection, ENV, repos_per_owner=0)
        kept = connection.scalars(select(entries.c.revision).where(entries.c.repo == "ann/a").order_by(entries.c.id))
        pushes = (0, *range(5, ALIKE_KEPT + 5), 99)
        assert kept.all() == [revision("ann/a", push).entity.revision for push in pushes]
    assert (after.ranked, after.credited) == (before.ranked, before.credited)
    assert take(store, revision("ann/a", push), revision("bob/b", 0)) == 0
