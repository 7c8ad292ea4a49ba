"""Examples of what clients that train trials ask and are told."""

from __future__ import annotations

from typing import Any

from service.api.examples.jobs import TRIAL

LEASE = "lease_01KAJ5M0T3XQ8Z7V6R5N4M3K2J"

JOB_CREATE_EXTERNAL: dict[str, Any] = {
    "workload": {"name": "external"},
    "external": {"lease_seconds": 900, "metrics": {"validation_loss": "minimize"}},
    "search_space": "shampoo",
    "training": {"num_steps": 3000},
    "budget": {"num_trials": 40},
    "name": "our own loop, as a SLURM array",
}

SUGGESTION_CREATE: dict[str, Any] = {"client": "node17/4711_3"}

REPORT_CREATE: dict[str, Any] = {
    "lease": LEASE,
    "measurements": [{"step": 100, "metrics": {"validation_loss": 0.41}, "epoch": 1.5, "seconds": 62.0}],
}

END_CREATE: dict[str, Any] = {
    "lease": LEASE,
    "outcome": "failed",
    "reason": "diverged",
    "detail": "loss is NaN at step 120",
}

SUGGESTION: dict[str, Any] = {
    "status": "trial",
    "trial": {
        "number": 7,
        "lease": LEASE,
        "lease_seconds": 900.0,
        "phase": "search",
        "parameters": TRIAL["parameters"],
        "config": TRIAL["config"],
        "begins_at_step": 0,
        "pauses_at_step": None,
    },
    "job_state": "running",
    "key": "node17-4711-3-1",
}

DECISION: dict[str, Any] = {
    "decision": "continue",
    "status": "answered",
    "recorded_up_to_step": 100,
    "why": None,
}
