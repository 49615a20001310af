"""Where hub and arena keep things: one database and one folder of content-addressed blobs. Leaf package."""

from palus.store.blobs import BlobStore
from palus.store.engine import Store, open_store

__all__ = ["BlobStore", "Store", "open_store"]
