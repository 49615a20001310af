"""Which jobs are for trusted workers alone, and which workers are trusted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add both columns; what waits and cannot be checked later is for trusted workers from now on, leased or not."""
    told = (
        ("jobs", "trusted_only", "not for every worker"),
        ("workers", "trusted", "gets what cannot be checked later"),
    )
    for table, name, comment in told:
        column: sa.Column[bool] = sa.Column(
            name, sa.Boolean(), nullable=False, server_default=sa.false(), comment=comment
        )
        op.add_column(table, column)
    jobs = sa.table(
        "jobs", *(sa.column(name) for name in ("kind", "env", "state", "lease", "lease_until_ms", "trusted_only"))
    )
    unchecked = (jobs.c.kind == "validate") | (jobs.c.env == "doom_duel")
    op.execute(jobs.update().where(unchecked).values(trusted_only=sa.true()))
    held = unchecked & (jobs.c.state == "leased")
    op.execute(jobs.update().where(held).values(state="ready", lease=None, lease_until_ms=None))
    if op.get_bind().dialect.supports_comments:
        op.alter_column(
            "tokens",
            "scopes",
            existing_type=sa.String(96),
            existing_nullable=False,
            existing_comment="of read, write, runner, admin; separated by commas",
            comment="of read, write, runner, trusted, admin; separated by commas",
        )
