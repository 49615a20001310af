"""Brings a database to the tables that this palus expects."""

from __future__ import annotations

from sqlalchemy import Engine

from palus.store.tables import metadata


def migrate(engine: Engine) -> None:
    """Create what is missing."""
    metadata.create_all(engine)
