"""Keep all objectives of a job in one column and, as the specification names them, in one list with the target beside
it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
Stored = dict[str, Any]
"""Values of a job by column."""

JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String()),
    sa.column("specification", JSON),
    sa.column("metric", sa.String()),
    sa.column("direction", sa.String()),
    sa.column("further_objectives", JSON),
    sa.column("objectives", JSON),
)
SEPARATE = ("metric", "direction", "further_objectives")
TOGETHER = ("objectives",)


def upgrade() -> None:
    op.add_column("jobs", sa.Column("objectives", JSON, nullable=False, server_default="[]"))
    _rewrite(SEPARATE, _together)
    for name in SEPARATE:
        op.drop_column("jobs", name)


def downgrade() -> None:
    op.add_column("jobs", sa.Column("metric", sa.String(length=200), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("direction", sa.String(length=20), nullable=False, server_default="minimize"))
    op.add_column("jobs", sa.Column("further_objectives", JSON, nullable=False, server_default="[]"))
    _rewrite(TOGETHER, _separate)
    op.drop_column("jobs", "objectives")


def _rewrite(names: tuple[str, ...], change: Callable[[Stored], Stored]) -> None:
    """Rewrites the specification and the columns of every job, from those of `names`."""
    connection = op.get_bind()
    found = connection.execute(sa.select(JOBS.c.id, JOBS.c.specification, *(JOBS.c[name] for name in names)))
    for row in found.mappings().all():
        values = change(dict(row))
        connection.execute(sa.update(JOBS).where(JOBS.c.id == row["id"]).values(**values))


def _together(job: Stored) -> Stored:
    first = {"metric": job["metric"], "direction": job["direction"]}
    others = [{"metric": metric, "direction": direction} for metric, direction in job["further_objectives"]]
    asked = job["specification"].get("objective")
    metrics = [] if asked is None else [asked["metric"], *asked.get("also", [])]
    specification = {name: value for name, value in job["specification"].items() if name != "objective"}
    specification["objectives"] = [{"metric": metric} for metric in metrics]
    specification["target"] = None if asked is None else asked.get("target")
    return {"objectives": [first, *others], "specification": specification}


def _separate(job: Stored) -> Stored:
    first, *others = job["objectives"]
    asked, target = job["specification"]["objectives"], job["specification"]["target"]
    kept = {name: value for name, value in job["specification"].items() if name not in ("objectives", "target")}
    # A target needs an objective there: the default one, by its name.
    has_objective = bool(asked) or target is not None
    also = [objective["metric"] for objective in asked[1:]]
    objective = {"metric": first["metric"], "target": target, "also": also} if has_objective else None
    return {
        "metric": first["metric"],
        "direction": first["direction"],
        "further_objectives": [[other["metric"], other["direction"]] for other in others],
        "specification": {**kept, "objective": objective},
    }
