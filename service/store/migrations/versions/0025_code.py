"""Add the code that comes with jobs; say of a job which it has."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "code",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("archive", sa.LargeBinary(), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.Column("num_files", sa.Integer(), nullable=False),
        sa.Column("num_bytes", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(100), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("used_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("project", "sha256", name=op.f("pk_code")),
    )
    op.add_column("jobs", sa.Column("code_sha256", sa.String(64), nullable=True))
    op.create_index(
        "ix_jobs_code_sha256",
        "jobs",
        ["code_sha256"],
        sqlite_where=sa.text("code_sha256 IS NOT NULL"),
        postgresql_where=sa.text("code_sha256 IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_code_sha256", table_name="jobs")
    op.drop_column("jobs", "code_sha256")
    op.drop_table("code")
