"""Keep the names of metrics once for all measurements that have them, and of each measurement the values alone; note
when a job's history was thinned, and what its device-hours cost."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
JSON = sa.JSON().with_variant(JSONB(), "postgresql")
BATCH = 5000
EARLIER = "measurements_before"

Stored = dict[str, Any]
"""Values of a row by column."""


def upgrade() -> None:
    op.add_column("jobs", sa.Column("thinned_at", TIME, nullable=True))
    op.add_column("jobs", sa.Column("device_hour_price", sa.Double(), nullable=True))
    op.add_column("jobs", sa.Column("currency", sa.String(length=3), nullable=True))
    _rewrite_budgets(lambda budget: {**budget, "cost": None})
    op.create_table(
        "metric_sets",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("names", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric_sets")),
        sa.UniqueConstraint("digest", name=op.f("uq_metric_sets_digest")),
    )
    _put_aside()
    op.create_table(
        "measurements",
        sa.Column("trial_id", sa.String(length=40), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("metric_set_id", sa.Integer(), nullable=False),
        sa.Column("packed_values", sa.LargeBinary(), nullable=False),
        sa.Column("recorded_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["metric_set_id"], ["metric_sets.id"], name=op.f("fk_measurements_metric_set_id_metric_sets")
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_measurements_trial_id_trials"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "step", name=op.f("pk_measurements")),
        sqlite_with_rowid=False,
    )
    connection, ids = op.get_bind(), dict[tuple[str, ...], int]()

    def packed(row: Stored) -> Stored:
        metrics = row.pop("metrics")
        names = tuple(metrics)
        if names not in ids:
            ids[names] = len(ids) + 1
            digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()
            connection.execute(METRIC_SETS.insert(), {"digest": digest, "names": list(names)})
        values = (math.nan if value is None else float(value) for value in metrics.values())
        return {**row, "metric_set_id": ids[names], "packed_values": struct.pack(f"<{len(names)}d", *values)}

    _copy(PLAIN_COLUMNS, PACKED_COLUMNS, packed)


def downgrade() -> None:
    _put_aside()
    op.create_table(
        "measurements",
        sa.Column("trial_id", sa.String(length=40), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("metrics", JSON, nullable=False),
        sa.Column("recorded_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_measurements_trial_id_trials"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("trial_id", "step", name=op.f("pk_measurements")),
    )
    names = {row.id: row.names for row in op.get_bind().execute(sa.select(METRIC_SETS.c.id, METRIC_SETS.c.names))}

    def unpacked(row: Stored) -> Stored:
        values = struct.iter_unpack("<d", row.pop("packed_values"))
        found = (None if math.isnan(value) else value for (value,) in values)
        return {**row, "metrics": dict(zip(names[row.pop("metric_set_id")], found, strict=True))}

    _copy(PACKED_COLUMNS, PLAIN_COLUMNS, unpacked)
    op.drop_table("metric_sets")
    for name in ("thinned_at", "device_hour_price", "currency"):
        op.drop_column("jobs", name)
    _rewrite_budgets(_without_cost)


def _rewrite_budgets(change: Callable[[Stored], Stored]) -> None:
    """Rewrites the budget of every job."""
    connection = op.get_bind()
    for row in connection.execute(sa.select(JOBS.c.id, JOBS.c.specification)).all():
        changed = {**row.specification, "budget": change(row.specification["budget"])}
        connection.execute(sa.update(JOBS).where(JOBS.c.id == row.id).values(specification=changed))


def _without_cost(budget: Stored) -> Stored:
    """Earlier code would take the field for a mistake."""
    return {name: value for name, value in budget.items() if name != "cost"}


JOBS = sa.table("jobs", sa.column("id", sa.String()), sa.column("specification", JSON))
METRIC_SETS = sa.table(
    "metric_sets", sa.column("id", sa.Integer()), sa.column("digest", sa.String()), sa.column("names", JSON)
)


def _columns(*of_metrics: sa.ColumnClause[Any]) -> list[sa.ColumnClause[Any]]:
    return [
        sa.column("trial_id", sa.String()),
        sa.column("step", sa.Integer()),
        sa.column("epoch", sa.Double()),
        sa.column("seconds", sa.Double()),
        # As it is stored: neither form of the table changes it.
        sa.column("recorded_at", sa.String().with_variant(TIME, "postgresql")),
        *of_metrics,
    ]


PLAIN_COLUMNS = _columns(sa.column("metrics", JSON))
PACKED_COLUMNS = _columns(sa.column("metric_set_id", sa.Integer()), sa.column("packed_values", sa.LargeBinary()))


def _put_aside() -> None:
    """Gives the table of measurements another name, and its constraints' names back."""
    op.rename_table("measurements", EARLIER)
    if op.get_bind().dialect.name == "postgresql":  # where they are names in the schema
        op.drop_constraint("pk_measurements", EARLIER, type_="primary")
        for name in ("trial_id_trials", "metric_set_id_metric_sets"):
            op.execute(f"ALTER TABLE {EARLIER} DROP CONSTRAINT IF EXISTS fk_measurements_{name}")


def _copy(
    before: Sequence[sa.ColumnClause[Any]], after: Sequence[sa.ColumnClause[Any]], change: Callable[[Stored], Stored]
) -> None:
    """Copies what was put aside to the table of measurements, some rows at a time, and drops it."""
    connection = op.get_bind()
    earlier, new = sa.table(EARLIER, *_copies(before)), sa.table("measurements", *_copies(after))
    found = connection.execute(sa.select(earlier).execution_options(stream_results=True))
    for rows in found.mappings().partitions(BATCH):
        connection.execute(new.insert(), [change(dict(row)) for row in rows])
    op.drop_table(EARLIER)


def _copies(columns: Sequence[sa.ColumnClause[Any]]) -> list[sa.ColumnClause[Any]]:
    """A column belongs to one table."""
    return [sa.column(column.name, column.type) for column in columns]
