"""Examples of checkpoints."""

from __future__ import annotations

from typing import Any

CHECKPOINT: dict[str, Any] = {
    "name": "step-00000040",
    "step": 40,
    "written_at": "2026-03-01T12:00:12Z",
    "num_bytes": 182_311,
    "world_size": 1,
    "is_whole": True,
    "files": [
        {"name": "manifest.json", "num_bytes": 3_087, "sha256": None},
        {"name": "rank-00000.safetensors", "num_bytes": 179_224, "sha256": "ab" * 32},
    ],
}
