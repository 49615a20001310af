"""Logged pairs are played again by workers of other accounts: jobs say whose may not have them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add a column; forget up to where the arena itself had audited the log."""
    whose = "account whose workers may not have it: they played what is audited"
    op.add_column("jobs", sa.Column("not_for", sa.String(96), comment=whose))
    op.execute("DELETE FROM log_heads WHERE name = 'audited'")
    if op.get_bind().dialect.supports_comments:
        states = "ready, leased, reported, {}done or failed"
        for name, size, before, after in (
            ("kind", 10, "validate or pair", "validate, pair, or audit: a logged pair once more"),
            ("state", 8, states.format(""), states.format("disputed, ")),
        ):
            kind = sa.String(size)
            op.alter_column(
                "jobs", name, existing_type=kind, existing_nullable=False, existing_comment=before, comment=after
            )
