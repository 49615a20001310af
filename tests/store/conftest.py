"""Stores on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres import postgres_server, postgres_url  # noqa: F401

from palus.store import Store, open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Address of an empty database of each kind; None means SQLite in the data folder."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def store(tmp_path: Path, url: str | None) -> Iterator[Store]:
    """An empty, open store of each kind."""
    opened = open_store(tmp_path / "data", url)
    yield opened
    opened.close()
