"""Add the shapes of models that trials had, by fingerprint."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_shapes",
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("content", sa.JSON().with_variant(postgresql.JSONB(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", name=op.f("pk_model_shapes")),
    )


def downgrade() -> None:
    op.drop_table("model_shapes")
