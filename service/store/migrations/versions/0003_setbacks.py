"""Add how often a trial was stopped by what may pass, and what disk a job takes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("losses", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("trials", sa.Column("memory_failures", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("disk_bytes", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "disk_bytes")
    op.drop_column("trials", "memory_failures")
    op.drop_column("trials", "losses")
