"""Add to a job the objectives after the first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("further_objectives", JSON, nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("jobs", "further_objectives")
