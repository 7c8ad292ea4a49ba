"""Add what controls and budgets need: the time a job has run, what is asked of jobs and trials, what trials spent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("running_seconds", sa.Double(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("reopened_at", TIME, nullable=True))
    op.add_column("jobs", sa.Column("running_since", TIME, nullable=True))
    op.add_column("jobs", sa.Column("requested", sa.String(length=20), nullable=True))
    op.add_column("trials", sa.Column("spent_seconds", sa.Double(), nullable=False, server_default="0"))
    op.add_column("trials", sa.Column("requested", sa.String(length=20), nullable=True))
    op.add_column("trials", sa.Column("spared", sa.Boolean(), nullable=False, server_default=sa.false()))
    where = sa.text("requested IS NOT NULL")
    op.create_index("ix_trials_requested", "trials", ["job_id"], sqlite_where=where, postgresql_where=where)
    _fill()


def _fill() -> None:
    """The best that is known of earlier jobs: they ran from their start to their end, and no step twice."""
    connection = op.get_bind()
    jobs = sa.table(
        "jobs",
        sa.column("id", sa.String),
        sa.column("state", sa.String),
        sa.column("started_at", TIME),
        sa.column("finished_at", TIME),
        sa.column("running_seconds", sa.Double),
        sa.column("running_since", TIME),
    )
    started = sa.select(jobs.c.id, jobs.c.state, jobs.c.started_at, jobs.c.finished_at).where(
        jobs.c.started_at.is_not(None)
    )
    now = datetime.now(UTC).replace(tzinfo=None)
    for job_id, state, started_at, finished_at in connection.execute(started).all():
        if state == "running":
            values: dict[str, Any] = {"running_since": started_at}
        else:
            end = finished_at or now.replace(tzinfo=started_at.tzinfo)
            values = {"running_seconds": (end - started_at).total_seconds()}
        connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(**values))
    trials = sa.table("trials", sa.column("seconds", sa.Double), sa.column("spent_seconds", sa.Double))
    connection.execute(sa.update(trials).values(spent_seconds=trials.c.seconds))


def downgrade() -> None:
    op.drop_index("ix_trials_requested", table_name="trials")
    op.drop_column("trials", "spared")
    op.drop_column("trials", "requested")
    op.drop_column("trials", "spent_seconds")
    op.drop_column("jobs", "requested")
    op.drop_column("jobs", "running_since")
    op.drop_column("jobs", "running_seconds")
    op.drop_column("jobs", "reopened_at")
