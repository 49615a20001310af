"""The action log of a match lies in its row; those of older matches stay blobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column."""
    what = "its action log, deflated; of older matches a blob has it"
    op.add_column("matches", sa.Column("actions", sa.LargeBinary(), comment=what))
