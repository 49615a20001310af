"""What a repository takes is kept as it grows; its commits are no longer added up with every new one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

LISTED_BYTES = 300  # as of `palus.hub.commits` then


def upgrade() -> None:
    """Add up what is there, once."""
    comment = "of its files with their history, and of their lists"
    column = sa.Column("used_bytes", sa.BigInteger(), nullable=False, server_default="0", comment=comment)
    op.add_column("repos", column)
    repos = sa.table("repos", sa.column("id"), sa.column("used_bytes"))
    commits = sa.table("commits", sa.column("id"), sa.column("repo_id"))
    files = sa.table("commit_files", *map(sa.column, ("commit_id", "path", "sha256", "size")))
    joined = files.join(commits, files.c.commit_id == commits.c.id)
    each = sa.select(commits.c.repo_id, files.c.sha256, files.c.size).select_from(joined).distinct().subquery()
    stored = sa.select(sa.func.sum(each.c.size)).where(each.c.repo_id == repos.c.id).scalar_subquery()
    of_lists = sa.func.sum(2 * sa.func.length(files.c.path) + LISTED_BYTES)
    listed = sa.select(of_lists).select_from(joined).where(commits.c.repo_id == repos.c.id).scalar_subquery()
    used = sa.func.coalesce(stored, 0) + sa.func.coalesce(listed, 0)
    op.execute(repos.update().values(used_bytes=used))
