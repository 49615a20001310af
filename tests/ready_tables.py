"""Databases that begin as the copy of one that has all tables: making these takes several times as long as a copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from palus.store import Store, open_store
from palus.store import engine as store_engine


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file of an arena in which nothing has happened."""
    store = open_store(tmp_path_factory.mktemp("tables"))
    store.close()
    return store.folder / store_engine.DATABASE_FILE


@pytest.fixture(scope="module", autouse=True)
def ready_tables(tables: Path) -> Iterator[None]:
    """For the tests of a module; `tests/store` has those of how tables are made."""
    migrate = store_engine.migrate

    def fill(engine: Engine) -> None:
        file = engine.url.database if engine.dialect.name == "sqlite" else None
        if file is not None and not Path(file).exists():
            shutil.copyfile(tables, file)
        migrate(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_engine, "migrate", fill)
        yield


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An arena's data folder, in which nothing has happened."""
    opened = open_store(tmp_path / "arena")
    yield opened
    opened.close()
