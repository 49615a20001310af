"""Files are pinned by the matches that are played with them; those that an entry pinned stay so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Say so where the database keeps comments."""
    if op.get_bind().dialect.supports_comments:
        op.alter_column(
            "blobs",
            "pinned",
            existing_type=sa.Boolean(),
            existing_nullable=False,
            existing_comment="an entry named them, or they were here before: never swept",
            comment="a match named them, or they were here before: never swept",
        )
