"""Keep the score of a recommended config, and what measured it, so that of two answers the better one can stand.

Both are known of what was stored before, but of recommendations without an environment, which have no key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
RECOMMENDATIONS = sa.table(
    "recommendations",
    sa.column("id", sa.String()),
    sa.column("status", sa.String()),
    sa.column("environment", JSON),
    sa.column("content", JSON),
    sa.column("score", sa.Double()),
    sa.column("measured_by", sa.String()),
)
OF_THE_MACHINE = {
    "step_seconds",
    "examples_per_second",
    "tokens_per_second",
    "optimizer_share",
    "optimizer_state_bytes",
    "peak_memory_bytes",
    "steps_to_target",
    "seconds_to_target",
    "target_reached",
}
AT_ONCE = 100
"""Rows that are read at once, each with all of its evidence."""


def upgrade() -> None:
    op.add_column("recommendations", sa.Column("score", sa.Double(), nullable=True))
    op.add_column("recommendations", sa.Column("measured_by", sa.String(64), nullable=True))
    connection, last = op.get_bind(), ""
    while True:
        some = sa.select(RECOMMENDATIONS).where(RECOMMENDATIONS.c.id > last).order_by(RECOMMENDATIONS.c.id)
        rows = connection.execute(some.limit(AT_ONCE)).mappings().all()
        for row in rows:
            score = _score(row["content"]["evidence"], row["status"])
            if score is not None and row["environment"] is not None:
                measured_by = _measured_by(row["content"], row["environment"]["versions"])
                filled = sa.update(RECOMMENDATIONS).where(RECOMMENDATIONS.c.id == row["id"])
                connection.execute(filled.values(score=score, measured_by=measured_by))
        if len(rows) < AT_ONCE:
            return
        last = rows[-1]["id"]


def downgrade() -> None:
    op.drop_column("recommendations", "measured_by")
    op.drop_column("recommendations", "score")


def _score(evidence: Mapping[str, Any], status: str) -> float | None:
    best = evidence["best"]
    if evidence["metric"].removeprefix("best_").removeprefix("mean_of_last_") in OF_THE_MACHINE:
        return None
    result = evidence.get("confirmation") or {}
    found = [*result.get("candidates", []), result.get("baseline") or {}, *result.get("baseline_others", [])]
    own: dict[str, Any] = next((config for config in found if config.get("number") == best["number"]), {})
    if status == "refuted" and (own.get("mean") is None or not result["seeds"]):
        return None
    value = best["value"]
    return None if value is None else float(-value if evidence["direction"] == "minimize" else value)


def _measured_by(content: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Digest as new recommendations had it when this was written."""
    counted = {
        name: version
        for name, version in versions.items()
        if name not in ("python", "torch", "cuda", "shampoo-tuner's commit")
    }
    told = [content["evidence"]["direction"], content.get("code_sha256"), counted]
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]
