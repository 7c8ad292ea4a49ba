"""Add what ranks print."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "rank_outputs",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("trial_id", sa.String(40), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_rank_outputs_trial_id_trials"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rank_outputs")),
        sa.UniqueConstraint("trial_id", "rank", name=op.f("uq_rank_outputs_trial_id_rank")),
    )
    op.create_table(
        "output_chunks",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("output_id", SERIAL, nullable=False),
        sa.Column("stream", sa.String(10), nullable=False),
        sa.Column("source", sa.String(120), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("omitted_bytes", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("recorded_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["output_id"], ["rank_outputs.id"], name=op.f("fk_output_chunks_output_id_rank_outputs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_output_chunks")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_output_chunks_output_id_id", "output_chunks", ["output_id", "id"])


def downgrade() -> None:
    for table in ("output_chunks", "rank_outputs"):
        op.drop_table(table)
