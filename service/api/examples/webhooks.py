"""Examples of webhooks."""

from __future__ import annotations

import json
from typing import Any

WEBHOOK_CREATE: dict[str, Any] = {"url": "https://hooks.example.org/tuner", "kinds": ["job.state"]}
WEBHOOK: dict[str, Any] = {
    "id": "hook_01KAJ5M0T3XQ8Z7V6R5N4M3K2J",
    "project": "default",
    "job_id": None,
    "url": "https://hooks.example.org/tuner",
    "kinds": ["job.state"],
    "owner": "anna",
    "created_at": "2026-03-01T12:00:00Z",
    "num_failures": 0,
    "disabled_at": None,
    "disabled_because": None,
}
WEBHOOK_SECRET = "whsec_" + 42 * "A" + "E="
DELIVERY: dict[str, Any] = {
    "id": "msg_01KAJ5M0T3XQ8Z7V6R5N4M3K2J",
    "event_id": 117,
    "kind": "job.state",
    "body": json.dumps(
        {
            "type": "job.state",
            "timestamp": "2026-03-01T12:00:12Z",
            "data": {"event_id": 117, "job_id": "job_01KAJ5M0T3XQ8Z7V6R5N4M3K2J", "state": "succeeded"},
        }
    ),
    "state": "delivered",
    "attempts": 1,
    "next_attempt_at": "2026-03-01T12:01:13Z",
    "status": 200,
    "answer": "",
    "seconds": 0.12,
    "created_at": "2026-03-01T12:00:13Z",
    "finished_at": "2026-03-01T12:00:13Z",
}
