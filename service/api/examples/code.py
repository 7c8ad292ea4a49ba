"""Examples of code that comes with jobs."""

from __future__ import annotations

from typing import Any

CODE: dict[str, Any] = {
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "num_files": 3,
    "num_bytes": 8210,
    "stored_bytes": 2904,
    "owner": "anna",
    "created_at": "2026-03-01T12:00:00Z",
    "used_at": "2026-03-02T09:30:00Z",
}
CODE_ITEM: dict[str, Any] = {**CODE, "num_jobs": 2}
