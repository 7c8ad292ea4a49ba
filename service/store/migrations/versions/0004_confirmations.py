"""Add to a trial which other one it confirms."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("confirms", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "confirms")
