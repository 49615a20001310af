"""What Alembic runs around the files of `versions/`: on the connection and in the transaction of `engine.migrate`."""

from __future__ import annotations

from alembic import context

from palus.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
