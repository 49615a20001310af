"""The joint covariance of an env's ratings, for the interval of a difference. Filled by the next refit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column where the table is older than its declaration in `palus.store.derived`."""
    if sa.inspect(op.get_bind()).has_table("fields"):
        comment = "of the ratings, by SHA-256: lower triangle by rows, float32"
        op.add_column("fields", sa.Column("covariance", sa.LargeBinary(), comment=comment))
