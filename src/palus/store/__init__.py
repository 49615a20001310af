"""Where hub, arena and leagues keep things: a database, blobs by their content, named files under a folder or a URL.

Leaf package; only who asks for the database loads SQLAlchemy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palus.store.blobs import BlobStore as BlobStore
    from palus.store.engine import Store as Store
    from palus.store.engine import open_store as open_store

_HOMES = {"BlobStore": "blobs", "Store": "engine", "open_store": "engine"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no {name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
