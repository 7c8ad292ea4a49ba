"""Add projects with quotas, tokens, signing keys and the audit trail, and give jobs a project and an owner.

All that was stored before belongs to the project `default`. An idempotency key is kept as a digest of the project and
the key, so that it holds in one project alone; a downgrade cannot give the keys back, and forgets them.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
TIME = sa.DateTime(timezone=True)
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DEFAULT = "default"
ALIVE = sa.text("revoked_at IS NULL")

JOBS = sa.table("jobs", sa.column("id", sa.String()), sa.column("idempotency_key", sa.String()))


def upgrade() -> None:
    projects = op.create_table(
        "projects",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("max_running_jobs", sa.Integer(), nullable=True),
        sa.Column("max_queued_jobs", sa.Integer(), nullable=True),
        sa.Column("max_device_hours", sa.Double(), nullable=True),
        sa.Column("max_stored_bytes", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_projects")),
    )
    op.bulk_insert(projects, [{"name": DEFAULT, "created_at": datetime.now(UTC)}])
    op.create_table(
        "tokens",
        sa.Column("prefix", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("scopes", JSON, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.Column("last_used_at", TIME, nullable=True),
        sa.Column("sessions_ended_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(["project"], ["projects.name"], name=op.f("fk_tokens_project_projects")),
        sa.PrimaryKeyConstraint("prefix", name=op.f("pk_tokens")),
    )
    op.create_index("uq_tokens_name", "tokens", ["name"], unique=True, sqlite_where=ALIVE, postgresql_where=ALIVE)
    op.create_table(
        "signing_keys",
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("value", sa.String(64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_signing_keys")),
    )
    op.create_table(
        "audit_entries",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.String(200), nullable=True),
        sa.Column("token", sa.String(16), nullable=True),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("action", sa.String(60), nullable=False),
        sa.Column("target", sa.String(200), nullable=False),
        sa.Column("address", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_entries")),
        sqlite_autoincrement=True,
    )
    for table in ("jobs", "recommendations"):
        op.add_column(table, sa.Column("project", sa.String(64), nullable=False, server_default=DEFAULT))
    op.add_column("jobs", sa.Column("owner", sa.String(100), nullable=True))
    op.create_index("ix_jobs_project_id", "jobs", ["project", "id"])
    connection = op.get_bind()
    keys = sa.select(JOBS.c.id, JOBS.c.idempotency_key).where(JOBS.c.idempotency_key.is_not(None))
    for job_id, key in connection.execute(keys).all():
        digest = hashlib.sha256(f"{DEFAULT}\0{key}".encode()).hexdigest()
        connection.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(idempotency_key=digest))


def downgrade() -> None:
    op.execute("UPDATE jobs SET idempotency_key = NULL")
    op.drop_index("ix_jobs_project_id", "jobs")
    op.drop_column("jobs", "owner")
    for table in ("jobs", "recommendations"):
        op.drop_column(table, "project")
    for table in ("audit_entries", "signing_keys", "tokens", "projects"):
        op.drop_table(table)
