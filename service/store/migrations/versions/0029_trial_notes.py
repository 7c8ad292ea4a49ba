"""Give trials notes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("note", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "note")
