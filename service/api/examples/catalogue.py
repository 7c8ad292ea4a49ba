"""Examples of workloads, search spaces, problems and the audit trail."""

from __future__ import annotations

from typing import Any

AUDIT_ENTRY: dict[str, Any] = {
    "id": 42,
    "at": "2026-03-01T12:00:00Z",
    "actor": "ada",
    "token": "c57a46accdda",
    "project": "vision",
    "action": "cancel_job",
    "target": "job_01KAJ5M0T3XQ8Z7V6R5N4M3K2J",
    "address": "10.0.0.7",
}

WORKLOAD: dict[str, Any] = {
    "name": "digits-mlp",
    "title": "Handwritten digits, multi-layer perceptron",
    "metrics": {"train_loss": "minimize", "validation_loss": "minimize", "validation_accuracy": "maximize"},
    "default_objective": "validation_loss",
    "default_num_steps": 200,
    "default_evaluate_every": 20,
    "default_batch_size": 128,
    "options": {
        "hidden_sizes": {
            "default": [128, 64],
            "description": "units of each hidden layer",
            "required": False,
            "choices": [],
            "maximum": None,
        }
    },
}

SEARCH_SPACE: dict[str, Any] = {
    "name": "adamw",
    "optimizer": "adamw",
    "space": {
        "optimizer": "adamw",
        "parameters": [
            {
                "type": "float",
                "name": "lr",
                "low": 0.0001,
                "high": 0.1,
                "scale": "log",
                "default": 0.0015,
                "when": {},
                "reason": "the same range as Shampoo's with Adam grafting",
                "source": "AlgoPerf, AdamW search space",
            }
        ],
        "fixed": {"eps": 1e-08},
    },
}

PROBLEM: dict[str, Any] = {
    "type": "urn:shampoo-tuner:problem:invalid-input",
    "title": "The request is not valid",
    "status": 422,
    "detail": "budget.num_trials: must be greater than or equal to 1, got -3",
    "instance": "/v1/jobs",
    "errors": [
        {"field": "budget.num_trials", "message": "must be greater than or equal to 1, got -3", "value": -3},
    ],
}
