"""Name what a run has of a cluster by the word for it: rank groups."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0010"
branch_labels = None
depends_on = None

RENAMED = {"num_gangs": "num_groups", "gang_share": "group_share"}


def upgrade() -> None:
    for before, after in RENAMED.items():
        op.execute(f"ALTER TABLE cluster_shares RENAME COLUMN {before} TO {after}")


def downgrade() -> None:
    for before, after in RENAMED.items():
        op.execute(f"ALTER TABLE cluster_shares RENAME COLUMN {after} TO {before}")
