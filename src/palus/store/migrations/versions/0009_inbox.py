"""Reports wait beside their jobs until they are linked into the log; workers take several jobs at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add both columns."""
    report = "JSON: what a worker handed in, until it is linked into the log"
    op.add_column("jobs", sa.Column("report", sa.Text(), comment=report))
    taken = sa.Column("jobs", sa.Integer(), nullable=False, server_default="1", comment="that it takes at once")
    op.add_column("workers", taken)
    if op.get_bind().dialect.supports_comments:
        op.alter_column(
            "jobs",
            "state",
            existing_type=sa.String(8),
            existing_nullable=False,
            existing_comment="ready, leased, done or failed",
            comment="ready, leased, reported, done or failed",
        )
