"""Notes what the derived tables were made from. They follow `palus.store.derived` now, without steps.

The digests are those of the columns that earlier forms of the steps before this one gave them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

MADE = {
    "ratings": "eb2d854cc61f758d2adabe1a731c26a5d16ed896db3ce8fdbb9a6b0e0c02cf0a",
    "rating_points": "8485048bb141495f7d5d43f8a0644dcce6edf72e3d7b333aa266bd02b12e4429",
    "fields": "d64a305713ea398a75659925fd1bb720ae19c5268a72ac3d8cffc50ff6859ff7",
    "play_stats": "51a1a99eb14476a83133e11982cfd2f47e3fcf54e33aa0755e85b57682b7ab1b",
}


def upgrade() -> None:
    """Add the table; derived ones that are there are kept as they are."""
    noted = op.create_table(
        "derived_tables",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, comment="of its columns as they were declared"),
        sa.PrimaryKeyConstraint("name", name="pk_derived_tables"),
    )
    found = sa.inspect(op.get_bind()).get_table_names()
    op.bulk_insert(noted, [{"name": name, "digest": digest} for name, digest in MADE.items() if name in found])
