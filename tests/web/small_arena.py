"""A small arena whose results are known, and a client of what is served of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from synthetic_arena import SyntheticArena

from palus.store import Store
from palus.web.app import WebLimits, make_app

AT_ONCE = WebLimits(fresh_s=0.0, keep_s=0.0, poll_s=0.05)


@pytest.fixture
def arena(store: Store) -> SyntheticArena:
    return small_arena(store)


def small_arena(store: Store) -> SyntheticArena:
    """Ada beats Bob, Bob beats Cy; Ada and Cy have not met."""
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two", "cy/three"):
        arena.add_entry(repo)
    for _ in range(3):
        arena.play("ada/one", "bob/two", "win1", "win2", "win1", "draw")
        arena.play("bob/two", "cy/three", "win1", "win2", "draw", "forfeit1", ticks=1000)
    arena.rate()
    return arena


@pytest.fixture
def client(store: Store, arena: SyntheticArena) -> Iterator[TestClient]:
    with TestClient(make_app(store, limits=AT_ONCE)) as client:
        yield client


def get(client: TestClient, path: str) -> Any:
    answer = client.get(f"/api/arena/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()
