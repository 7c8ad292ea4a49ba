"""Add the index by which the best trial of each phase of a job is found."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_trials_best", "trials", ["job_id", "phase", "state", "value", "number"])


def downgrade() -> None:
    op.drop_index("ix_trials_best", table_name="trials")
