"""Add who proposed a trial, and by which request."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

INDEX = "ix_trials_job_id_idempotency_key"


def upgrade() -> None:
    op.add_column("trials", sa.Column("proposed", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("trials", sa.Column("idempotency_key", sa.String(length=255), nullable=True))
    op.add_column("trials", sa.Column("request_digest", sa.String(length=64), nullable=True))
    op.create_index(INDEX, "trials", ["job_id", "idempotency_key"], unique=True)


def downgrade() -> None:
    op.drop_index(INDEX, table_name="trials")
    op.drop_column("trials", "request_digest")
    op.drop_column("trials", "idempotency_key")
    op.drop_column("trials", "proposed")
