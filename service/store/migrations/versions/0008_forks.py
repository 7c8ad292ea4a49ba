"""Add to a trial which other one's checkpoint it begins from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("forked_from", sa.Integer(), nullable=True))
    op.add_column("trials", sa.Column("forked_at_step", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("trials", "forked_at_step")
    op.drop_column("trials", "forked_from")
