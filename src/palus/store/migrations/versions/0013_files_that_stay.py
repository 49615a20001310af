"""Files that an entry named are pinned, each of a set too; the sweep does not look for entries and matches any more."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Pin what the sweep left alone because of an entry or a match, and the files of sets, which it took."""
    connection = op.get_bind()
    entries = sa.table("entries", sa.column("sha256"), sa.column("files"))
    matches = sa.table("matches", sa.column("blue"), sa.column("purple"))
    blobs = sa.table("blobs", sa.column("sha256"), sa.column("pinned"))
    named = sa.select(entries.c.sha256).union(sa.select(matches.c.blue), sa.select(matches.c.purple))
    connection.execute(blobs.update().where(blobs.c.sha256.in_(named)).values(pinned=sa.true()))
    for files in connection.scalars(sa.select(entries.c.files).where(entries.c.sha256.is_not(None)).distinct()).all():
        of_a_set = blobs.c.sha256.in_(json.loads(files).values())
        connection.execute(blobs.update().where(of_a_set).values(pinned=sa.true()))
    if connection.dialect.supports_comments:
        op.alter_column(
            "blobs",
            "pinned",
            existing_type=sa.Boolean(),
            existing_nullable=False,
            existing_comment="the arena had them before the hub: never swept",
            comment="an entry named them, or they were here before: never swept",
        )
