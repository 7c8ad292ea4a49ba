"""Give trials that the store of checkpoints ended a reason of their own, which the detail alone told before."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "UPDATE trials SET reason = 'store_failed'"
        " WHERE reason = 'lost' AND detail LIKE '%the store of checkpoints failed: %'"
    )


def downgrade() -> None:
    op.execute("UPDATE trials SET reason = 'lost' WHERE reason = 'store_failed'")
