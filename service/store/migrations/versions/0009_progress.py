"""Add the index from which lists of jobs tell how far their trials are."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_trials_progress", "trials", ["job_id", "phase", "state", "value", "number", "spent_seconds"])


def downgrade() -> None:
    op.drop_index("ix_trials_progress", table_name="trials")
