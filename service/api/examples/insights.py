"""Examples of what the trials of a job tell: its insights, and the health of its search."""

from __future__ import annotations

from typing import Any

from service.api.examples.jobs import JOB_ID

INSIGHTS: dict[str, Any] = {
    "job_id": JOB_ID,
    "metric": "validation_loss",
    "direction": "minimize",
    "num_ended": 34,
    "sides": [
        {
            "side": "search",
            "num_completed": 12,
            "num_pruned": 13,
            "num_diverged": 4,
            "num_left_out": 1,
            "num_sampled": 29,
            "parameters": [
                {
                    "name": "lr",
                    "kind": "float",
                    "num_trials": 29,
                    "scale": "log",
                    "low": 0.0001,
                    "high": 0.1,
                    "importance": {"share": 0.82, "low": 0.71, "high": 0.9, "is_beyond_chance": True},
                    "correlation": 0.31,
                    "trend": "between",
                    "turns_at": 0.0042,
                    "safe_range": {
                        "low": 0.0021,
                        "high": 0.0098,
                        "num_trials": 5,
                        "worst_value": 0.0741,
                        "diverged_above": {"value": 0.031, "num_trials": 5, "num_diverged": 4},
                    },
                },
                {
                    "name": "grafting",
                    "kind": "categorical",
                    "num_trials": 29,
                    "importance": {"share": 0.18, "low": 0.09, "high": 0.26, "is_beyond_chance": True},
                    "choices": [
                        {"value": "adam", "num_trials": 17, "num_diverged": 1, "standing": 0.62, "best_value": 0.0698},
                        {"value": "sgd", "num_trials": 12, "num_diverged": 3, "standing": 0.31, "best_value": 0.0743},
                    ],
                },
            ],
            "maps": [
                {
                    "x": 0,
                    "y": 1,
                    "x_values": [0.0005623, 0.005623, 0.05623],
                    "y_values": ["adam", "sgd"],
                    "standing": [[0.35, 0.88, 0.12], [0.22, 0.64, None]],
                }
            ],
            "early_late_correlation": {"share": 0.15, "num_trials": 12, "correlation": 0.71, "low": 0.3, "high": 0.9},
            "priced_trial": 17,
            "prices": [
                {
                    "parameter": "precondition_frequency",
                    "best_value": 10,
                    "value": 50,
                    "num_trials": 9,
                    "objective": {"share": 0.002, "low": -0.001, "high": 0.006, "num_trials": 29},
                    "basis": "estimated",
                    "step_seconds": {"share": -0.12, "low": -0.15, "high": -0.09, "num_trials": 26},
                    "step_operations": -0.31,
                    "state_bytes": 2810976,
                    "best_state_bytes": 2810976,
                }
            ],
        }
    ],
    "computed_at": "2026-03-01T12:09:41Z",
}

JOB_HEALTH: dict[str, Any] = {
    "items": [
        {
            "kind": "many_diverged",
            "severity": "hint",
            "sentence": "9 of the search's 30 trials diverged: their loss was not finite or above max_loss, or another "
            "metric was not finite. One of them, trial 27, said: diverged at step 40: validation_loss is nan.",
            "advice": "Budget goes into configs that cannot work: lower the upper bound of the learning rate.",
        }
    ]
}
