"""Have the index that lists of jobs read hold the trials' steps, too."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0015"
branch_labels = None
depends_on = None

NAME = "ix_trials_progress"
COLUMNS = ["job_id", "phase", "state", "value", "number", "spent_seconds"]


def upgrade() -> None:
    op.drop_index(NAME, table_name="trials")
    op.create_index(NAME, "trials", [*COLUMNS, "step"])


def downgrade() -> None:
    op.drop_index(NAME, table_name="trials")
    op.create_index(NAME, "trials", COLUMNS)
