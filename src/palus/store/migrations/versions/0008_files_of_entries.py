"""An entry is a set of files, one per behavior: one column says which behavior each is of, and its hash."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """`file`, the path of the only one, becomes `files`; what an entity is called stays."""
    op.execute("ALTER TABLE entries RENAME COLUMN file TO files")
    entries = sa.table("entries", *(sa.column(name) for name in ("id", "files", "sha256", "code")))
    connection = op.get_bind()
    for row in connection.execute(sa.select(entries)).all():
        known = row.files and (row.sha256 or row.code == "too-large")
        files = {row.files.removesuffix(".onnx"): row.sha256 or ""} if known else {}
        connection.execute(entries.update().where(entries.c.id == row.id).values(files=json.dumps(files)))
    if connection.dialect.supports_comments:
        said = {
            "files": "JSON: SHA-256 of the rated entity's files by behavior",
            "sha256": "the rated entity: of the first files that compute the same",
            "file_sha256": "of the files as they were pushed",
        }
        for name, comment in said.items():
            op.execute(sa.text(f"COMMENT ON COLUMN entries.{name} IS '{comment.replace(chr(39), chr(39) * 2)}'"))
