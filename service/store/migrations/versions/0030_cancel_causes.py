"""Give cancelled trials the cause for which they were."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

TRIALS = sa.table("trials", sa.column("state"), sa.column("detail"), sa.column("cancel_cause"))
DETAIL = TRIALS.c.detail


def upgrade() -> None:
    op.add_column("trials", sa.Column("cancel_cause", sa.String(20), nullable=True))
    # Until now it was told in words alone. What is not one of these is the failure of a job.
    cause = sa.case(
        (DETAIL == "stopped by a user", "user"),
        (DETAIL == "the job was cancelled", "job_cancelled"),
        (DETAIL == "the budget was spent", "budget"),
        (DETAIL.like("project % has spent the device-hours of its quota (max_device_hours)"), "quota"),
        else_="job_failed",
    )
    op.execute(TRIALS.update().where(TRIALS.c.state == "cancelled").values(cancel_cause=cause))


def downgrade() -> None:
    op.drop_column("trials", "cancel_cause")
