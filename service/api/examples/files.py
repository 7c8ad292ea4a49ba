"""Examples of files: code that comes with jobs, checkpoints, what ranks print, and the files a job is exported to."""

from __future__ import annotations

import json
from collections.abc import Mapping
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

OUTPUT: dict[str, Any] = {
    "id": 41,
    "rank": 0,
    "stream": "stderr",
    "recorded_at": "2026-03-01T12:00:12Z",
    "omitted_bytes": 0,
    "lines": ["epoch 3", "loss 0.481"],
}

OUTPUT_STREAM = f"retry: 3000\n\nevent: log\ndata: {json.dumps(OUTPUT)}\nid: 41\n\n"

EXPORTS: Mapping[str, str] = {
    "csv": "number,phase,optimizer,state\r\n0,search,shampoo,completed\r\n",
    "jsonl": '{"number": 0, "phase": "search", "optimizer": "shampoo", "state": "completed"}\n',
    "parquet": "PAR1...",
}
"""The beginning of a file, by format."""
