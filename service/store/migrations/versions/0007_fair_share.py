"""Add what a fair share of a cluster needs: priorities, what jobs wait for, and what their runs have and want."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("priority", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("waiting_since", TIME, nullable=True))
    op.add_column("jobs", sa.Column("waiting_for", sa.String(), nullable=True))
    # The best that is known of jobs that are queued now.
    op.execute("UPDATE jobs SET waiting_since = created_at WHERE state = 'queued'")
    op.create_table(
        "cluster_shares",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("num_gangs", sa.Integer(), nullable=False),
        sa.Column("gang_share", sa.Double(), nullable=False),
        sa.Column("wants_since", TIME, nullable=True),
        sa.Column("short_of", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_cluster_shares_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_cluster_shares")),
    )


def downgrade() -> None:
    op.drop_table("cluster_shares")
    op.drop_column("jobs", "waiting_for")
    op.drop_column("jobs", "waiting_since")
    op.drop_column("jobs", "priority")
