"""The beginnings of files that a job is exported to."""

from __future__ import annotations

from collections.abc import Mapping

EXPORTS: Mapping[str, str] = {
    "csv": "number,phase,optimizer,state\r\n0,search,shampoo,completed\r\n",
    "jsonl": '{"number": 0, "phase": "search", "optimizer": "shampoo", "state": "completed"}\n',
    "parquet": "PAR1...",
}
"""By format."""
