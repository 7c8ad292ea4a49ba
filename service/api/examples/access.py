"""Examples of tokens and projects."""

from __future__ import annotations

from typing import Any

TOKEN_CREATE: dict[str, Any] = {
    "name": "ada",
    "project": "vision",
    "scopes": ["submit"],
    "expires_at": "2026-06-01T00:00:00Z",
}
TOKEN: dict[str, Any] = {
    "prefix": "c57a46accdda",
    "name": "ada",
    "project": "vision",
    "scopes": ["submit"],
    "state": "valid",
    "created_at": "2026-03-01T12:00:00Z",
    "expires_at": "2026-06-01T00:00:00Z",
    "revoked_at": None,
    "last_used_at": None,
}
TOKEN_TEXT = "shampoo_c57a46accdda_" + 64 * "0"
PROJECT_CREATE: dict[str, Any] = {"name": "vision", "max_running_jobs": 2, "max_device_hours": 500.0}
PROJECT_CHANGE: dict[str, Any] = {"max_running_jobs": 4, "max_device_hours": None}
PROJECT: dict[str, Any] = {
    "name": "vision",
    "created_at": "2026-03-01T12:00:00Z",
    "max_running_jobs": 2,
    "max_queued_jobs": None,
    "max_device_hours": 500.0,
    "max_stored_bytes": None,
    "usage": {"running_jobs": 1, "queued_jobs": 3, "device_hours": 17.5, "stored_bytes": 4_200_000_000},
}
