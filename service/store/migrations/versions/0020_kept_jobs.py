"""Give jobs notes, a place in the archive and an origin, and have them be deleted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
DELETED = sa.text("deleted_at IS NOT NULL")


def upgrade() -> None:
    for column in (
        sa.Column("notes", sa.Text(), nullable=True),
        sa.Column("cloned_from", sa.String(40), nullable=True),
        sa.Column("archived_at", TIME, nullable=True),
        sa.Column("deleted_at", TIME, nullable=True),
        sa.Column("reopened_from", sa.String(20), nullable=True),
    ):
        op.add_column("jobs", column)
    op.create_index("ix_jobs_deleted_at", "jobs", ["deleted_at"], sqlite_where=DELETED, postgresql_where=DELETED)
    op.create_table(
        "deleted_jobs",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("rank_seconds", sa.Double(), nullable=False),
        sa.Column("deleted_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deleted_jobs")),
    )
    op.create_index("ix_deleted_jobs_project", "deleted_jobs", ["project"])


def downgrade() -> None:
    # What was to be removed would be there again.
    op.execute("DELETE FROM jobs WHERE deleted_at IS NOT NULL")
    op.drop_table("deleted_jobs")
    op.drop_index("ix_jobs_deleted_at", "jobs")
    for name in ("reopened_from", "deleted_at", "archived_at", "cloned_from", "notes"):
        op.drop_column("jobs", name)
