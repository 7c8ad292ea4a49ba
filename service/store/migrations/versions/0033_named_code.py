"""Note which jobs name code of users, and which workers run it: no others take those jobs."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String()),
    sa.column("workload", sa.String()),
    sa.column("specification", JSON),
    sa.column("names_code", sa.Boolean()),
)
AT_ONCE = 100
"""Rows that are read at once, each with its whole specification."""


def upgrade() -> None:
    op.add_column("jobs", sa.Column("names_code", sa.Boolean(), nullable=False, server_default=sa.false()))
    # Of one that is older nobody knows: it takes all jobs, as it always has.
    op.add_column("workers", sa.Column("allows_code", sa.Boolean(), nullable=False, server_default=sa.true()))
    connection, last = op.get_bind(), ""
    while True:
        some = sa.select(JOBS.c.id, JOBS.c.workload, JOBS.c.specification).where(JOBS.c.id > last).order_by(JOBS.c.id)
        rows = connection.execute(some.limit(AT_ONCE)).mappings().all()
        named = [row["id"] for row in rows if ":" in row["workload"] or ":" in _sampler(row["specification"])]
        if named:
            connection.execute(sa.update(JOBS).where(JOBS.c.id.in_(named)).values(names_code=True))
        if len(rows) < AT_ONCE:
            return
        last = rows[-1]["id"]


def downgrade() -> None:
    op.drop_column("workers", "allows_code")
    op.drop_column("jobs", "names_code")


def _sampler(specification: Any) -> str:
    """The name of a job's sampler; of a user's own, which is code, it has a colon."""
    sampler = specification.get("sampler") or {}
    return str(sampler.get("name") or "")
