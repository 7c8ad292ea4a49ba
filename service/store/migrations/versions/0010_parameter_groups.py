"""Add to a job the parameters that its workload trains with settings of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("parameter_groups", JSON, nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "parameter_groups")
