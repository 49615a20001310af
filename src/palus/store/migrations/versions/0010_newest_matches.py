"""The newest matches of a player, and of a game, are found without reading the others."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Make three indexes in place of two."""
    for name in ("blue", "purple"):
        op.drop_index(f"ix_matches_{name}", "matches")
    for name in ("blue", "purple", "env"):
        op.create_index(f"ix_matches_{name}_seq", "matches", [name, "seq"])
