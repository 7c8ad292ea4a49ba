"""Examples of what ranks print."""

from __future__ import annotations

import json
from typing import Any

OUTPUT: dict[str, Any] = {
    "id": 41,
    "rank": 0,
    "stream": "stderr",
    "recorded_at": "2026-03-01T12:00:12Z",
    "omitted_bytes": 0,
    "lines": ["epoch 3", "loss 0.481"],
}

OUTPUT_STREAM = f"retry: 3000\n\nevent: log\ndata: {json.dumps(OUTPUT)}\nid: 41\n\n"
