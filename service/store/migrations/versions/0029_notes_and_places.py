"""Give trials notes, and the places where they trained."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("note", sa.Text(), nullable=True))
    op.add_column(
        "trials", sa.Column("places", sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=True)
    )


def downgrade() -> None:
    op.drop_column("trials", "places")
    op.drop_column("trials", "note")
