"""The game of every job, so that workers take what they can play. Earlier arenas knew one game.

Entries of games that are not played here have a state of their own, which the comment of its column now names.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column, change the comment."""
    env = sa.Column(
        "env", sa.String(64), nullable=False, server_default="SoccerTwos", comment="game that it takes to do it"
    )
    op.add_column("jobs", env)
    if op.get_bind().dialect.supports_comments:
        op.alter_column(
            "entries",
            "state",
            existing_type=sa.String(10),
            existing_nullable=False,
            existing_comment="pending, accepted, refused or withdrawn",
            comment="pending, waiting, accepted, refused or withdrawn",
        )
