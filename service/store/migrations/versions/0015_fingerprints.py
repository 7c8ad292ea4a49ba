"""Say of trials and recommendations which model, data and machine they are of, and call a job's workload so.

Of what was stored before, everything but the model and the data is known from the recommended config and the job.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")

TABLES = ("jobs", "recommendations")
OF_TRIALS: tuple[tuple[str, TypeEngine[Any]], ...] = (
    ("fingerprint", sa.String(64)),
    ("data_digest", sa.String(64)),
    ("environment", JSON),
)
OF_RECOMMENDATIONS: tuple[tuple[str, TypeEngine[Any]], ...] = (
    *OF_TRIALS,
    ("batch_size", sa.Integer()),
    ("num_steps", sa.Integer()),
    ("precision", sa.String(20)),
    ("device", sa.String(20)),
    ("world_size", sa.Integer()),
)
REQUIRED: tuple[tuple[str, TypeEngine[Any], str], ...] = (
    ("status", sa.String(20), "provisional"),
    ("objective", sa.String(200), ""),
)

JOBS = sa.table("jobs", sa.column("id", sa.String()), sa.column("specification", JSON))
RECOMMENDATIONS = sa.table(
    "recommendations",
    sa.column("id", sa.String()),
    sa.column("job_id", sa.String()),
    sa.column("content", JSON),
    *(sa.column(name, kind) for name, kind in OF_RECOMMENDATIONS),
    *(sa.column(name, kind) for name, kind, _ in REQUIRED),
)


def upgrade() -> None:
    for table in TABLES:
        op.drop_index(f"ix_{table}_model", table)
        op.execute(f"ALTER TABLE {table} RENAME COLUMN model TO workload")
        op.create_index(f"ix_{table}_workload", table, ["workload"])
        op.add_column(table, sa.Column("model", sa.String(200), nullable=True))
        op.create_index(f"ix_{table}_model", table, ["model"])
    for name, kind in OF_TRIALS:
        op.add_column("trials", sa.Column(name, kind, nullable=True))
    for name, kind in OF_RECOMMENDATIONS:
        op.add_column("recommendations", sa.Column(name, kind, nullable=True))
    for name, kind, empty in REQUIRED:
        op.add_column("recommendations", sa.Column(name, kind, nullable=False, server_default=empty))
    op.create_index("ix_recommendations_fingerprint", "recommendations", ["fingerprint"])
    _fill()


def downgrade() -> None:
    op.drop_index("ix_recommendations_fingerprint", "recommendations")
    for name in [*(column[0] for column in REQUIRED), *(column[0] for column in OF_RECOMMENDATIONS)]:
        op.drop_column("recommendations", name)
    for name, _ in OF_TRIALS:
        op.drop_column("trials", name)
    for table in TABLES:
        op.drop_index(f"ix_{table}_model", table)
        op.drop_column(table, "model")
        op.drop_index(f"ix_{table}_workload", table)
        op.execute(f"ALTER TABLE {table} RENAME COLUMN workload TO model")
        op.create_index(f"ix_{table}_model", table, ["model"])


def _fill() -> None:
    connection = op.get_bind()
    found = connection.execute(
        sa.select(RECOMMENDATIONS.c.id, RECOMMENDATIONS.c.content, JOBS.c.specification).join(
            JOBS, JOBS.c.id == RECOMMENDATIONS.c.job_id
        )
    )
    for row in found.mappings().all():
        values = _known(row["content"], row["specification"])
        connection.execute(sa.update(RECOMMENDATIONS).where(RECOMMENDATIONS.c.id == row["id"]).values(**values))


def _known(content: dict[str, Any], specification: dict[str, Any]) -> dict[str, Any]:
    evidence, resources = content["evidence"], specification.get("resources", {})
    config = evidence["best"]["config"]
    return {
        "status": "provisional" if evidence.get("confirmation") is None else "confirmed",
        "objective": evidence["metric"],
        "batch_size": config.get("batch_size"),
        "num_steps": config.get("num_steps"),
        "precision": config.get("precision", "float32"),
        "device": "cuda" if resources.get("gpus_per_worker") else "cpu",
        "world_size": resources.get("workers_per_trial", 1),
    }
