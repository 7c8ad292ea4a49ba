"""Keep what a job's trials have spent beside the job, and what cut it off, so that quotas are cheap to look at."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

INDEX = "ix_jobs_project_state_spent_device_seconds"
JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String()),
    sa.column("specification", sa.JSON().with_variant(JSONB(), "postgresql")),
    sa.column("spent_device_seconds", sa.Double()),
)
TRIALS = sa.table("trials", sa.column("job_id", sa.String()), sa.column("spent_seconds", sa.Double()))


def upgrade() -> None:
    op.add_column("jobs", sa.Column("cut_off", sa.String(), nullable=True))
    op.add_column("jobs", sa.Column("spent_device_seconds", sa.Double(), nullable=False, server_default="0"))
    connection = op.get_bind()
    spent = connection.execute(
        sa.select(TRIALS.c.job_id, sa.func.sum(TRIALS.c.spent_seconds)).group_by(TRIALS.c.job_id)
    )
    seconds = {job_id: found for job_id, found in spent if found}
    for row in connection.execute(sa.select(JOBS.c.id, JOBS.c.specification)).all():
        if row.id in seconds:
            ranks = row.specification.get("resources", {}).get("workers_per_trial", 1)
            own = sa.update(JOBS).where(JOBS.c.id == row.id)
            connection.execute(own.values(spent_device_seconds=seconds[row.id] * ranks))
    op.create_index(INDEX, "jobs", ["project", "state", "spent_device_seconds"])


def downgrade() -> None:
    op.drop_index(INDEX, "jobs")
    op.drop_column("jobs", "spent_device_seconds")
    op.drop_column("jobs", "cut_off")
