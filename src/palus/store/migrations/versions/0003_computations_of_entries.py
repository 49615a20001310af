"""What the model of an entry computes, beside the hash of its file: files that compute the same are one rated entity.

Entries that an earlier palus accepted keep their own place; they are compared once they are pushed and checked anew.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the columns; so far the entity was the file."""
    op.add_column("entries", sa.Column("file_sha256", sa.String(64), comment="of the file itself"))
    what = "of what it computes, however that is written down; null before its check"
    op.add_column("entries", sa.Column("computation", sa.String(64), comment=what))
    op.execute("UPDATE entries SET file_sha256 = sha256")
    op.create_index("ix_entries_file_sha256", "entries", ["file_sha256"])
    op.create_index("ix_entries_computation", "entries", ["computation"])
    if op.get_bind().dialect.supports_comments:
        op.alter_column(
            "entries",
            "sha256",
            existing_type=sa.String(64),
            existing_nullable=True,
            existing_comment="of the file: the rated entity; equal files are one entity",
            comment="the rated entity: of the first file that computes the same",
        )
