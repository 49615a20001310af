"""Jobs say since when they are held: workers that are not trusted do not hold them for ever."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column. What such workers hold now is not renewed, and goes to others."""
    op.add_column("jobs", sa.Column("leased_ms", sa.BigInteger(), comment="when its worker took it"))
