"""Where the match log and the annulments end, beside them: a tail that is cut off is missed."""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the table; what an older palus wrote is taken as it is."""
    heads = op.create_table(
        "log_heads",
        sa.Column("name", sa.String(16), nullable=False, comment="of the table: matches or annulments"),
        sa.Column("seq", sa.BigInteger(), nullable=False, comment="how many rows it has"),
        sa.Column("hash", sa.String(64), nullable=False, comment="of the newest match, or of all annulments"),
        sa.PrimaryKeyConstraint("name", name="pk_log_heads"),
    )
    connection = op.get_bind()
    newest = connection.execute(sa.text("SELECT seq, hash FROM matches ORDER BY seq DESC LIMIT 1")).first()
    if newest is not None:
        op.bulk_insert(heads, [{"name": "matches", "seq": newest.seq, "hash": newest.hash}])
    struck = connection.execute(sa.text("SELECT match_id, reason, created_ms FROM annulments")).all()
    if struck:
        digest = hashlib.sha256(json.dumps(sorted(map(list, struck)), separators=(",", ":")).encode()).hexdigest()
        op.bulk_insert(heads, [{"name": "annulments", "seq": len(struck), "hash": digest}])
