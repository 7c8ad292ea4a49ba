"""Add the requests of clients that train trials, and their leases; say of a job whether it is for such clients."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
TIME = sa.DateTime(timezone=True)
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WAITING = sa.text("answered_at IS NULL")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("is_external", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "external_requests",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.Column("idempotency_key", sa.String(255), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("content", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("asked_at", TIME, nullable=False),
        sa.Column("answered_at", TIME, nullable=True),
        sa.Column("answer", JSON, nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_external_requests_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_external_requests")),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_external_requests_job_id_key", "external_requests", ["job_id", "idempotency_key"], unique=True)
    op.create_index(
        "ix_external_requests_waiting",
        "external_requests",
        ["job_id", "id"],
        sqlite_where=WAITING,
        postgresql_where=WAITING,
    )
    op.create_table(
        "trial_leases",
        sa.Column("job_id", sa.String(40), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("client", sa.String(200), nullable=True),
        sa.Column("begun_at", TIME, nullable=False),
        sa.Column("begun_seconds", sa.Double(), nullable=False),
        sa.Column("is_released", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("expires_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_trial_leases_job_id_jobs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_trial_leases")),
    )


def downgrade() -> None:
    op.drop_table("trial_leases")
    op.drop_table("external_requests")
    op.drop_column("jobs", "is_external")
