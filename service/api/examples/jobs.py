"""Examples of jobs, trials, measurements and events."""

from __future__ import annotations

import json
from typing import Any

JOB_ID = "job_01KAJ5M0T3XQ8Z7V6R5N4M3K2J"

JOB_CREATE: dict[str, Any] = {
    "workload": {"name": "digits-mlp"},
    "search_space": "shampoo",
    "budget": {"num_trials": 20},
    "resources": {"workers_per_trial": 2},
    "baselines": [{"search_space": "adamw"}],
    "name": "digits, first try",
    "model": "my-mlp",
    "tags": {"team": "vision"},
}

JOB_CREATE_OWN_SPACE: dict[str, Any] = {
    "workload": {"name": "digits-mlp", "options": {"hidden_sizes": [64]}},
    "search_space": {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-1, "scale": "log", "default": 1e-2},
            {"type": "categorical", "name": "grafting", "choices": ["adam", "sgd"], "default": "adam"},
        ],
        "fixed": {"precondition_frequency": 10},
    },
    "objectives": [{"metric": "validation_accuracy"}],
    "budget": {"num_trials": 8, "wall_clock_seconds": 600},
    "training": {"num_steps": 100, "seed": 1},
    "baselines": [],
}

JOB_CREATE_SEARCHED_BATCH: dict[str, Any] = {
    "workload": {"name": "digits-mlp"},
    "search_space": {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-1, "scale": "log"},
            {"type": "categorical", "name": "training.batch_size", "choices": [128, 32, 64, 256]},
        ],
    },
    "training": {"num_examples": 25600, "evaluate_every_examples": 2560},
    "currency": "seconds",
}

JOB_CREATE_TOKENS: dict[str, Any] = {
    "workload": {"name": "stdlib-gpt"},
    "search_space": {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-1, "scale": "log"},
            {"type": "categorical", "name": "training.batch_size", "choices": [32, 16, 64]},
        ],
    },
    "training": {"num_tokens": 1_000_000},
}

JOB_CHANGE: dict[str, Any] = {"budget": {"num_trials": 40, "wall_clock_seconds": None}, "priority": 10}

JOB_PATCH: dict[str, Any] = {"name": "digits, longer", "budget": {"num_trials": 60}, "training": {"num_steps": 2000}}

JOB_IDS: dict[str, Any] = {"job_ids": [JOB_ID, "job_01KAJ5M0T3XQ8Z7V6R5N4M3K2K"]}

JOB_OUTCOMES: dict[str, Any] = {
    "items": [
        {"job_id": JOB_ID, "state": "cancelled"},
        {
            "job_id": "job_01KAJ5M0T3XQ8Z7V6R5N4M3K2K",
            "problem": {
                "type": "urn:shampoo-tuner:problem:job-already-finished",
                "title": "The job has already finished",
                "status": 409,
                "detail": "job 'job_01KAJ5M0T3XQ8Z7V6R5N4M3K2K' has already finished: succeeded",
                "instance": "/v1/jobs:cancel",
            },
        },
    ]
}

TRIAL_CREATE: dict[str, Any] = {"phase": "search", "parameters": {"lr": 0.01}}

SPECIFICATION: dict[str, Any] = {
    "workload": {"name": "digits-mlp", "options": {}},
    "search_space": "shampoo",
    "objectives": [],
    "target": None,
    "budget": {"num_trials": 20, "wall_clock_seconds": None, "device_hours": None},
    "training": {
        "num_steps": None,
        "num_examples": None,
        "num_tokens": None,
        "evaluate_every": None,
        "evaluate_every_examples": None,
        "evaluate_every_tokens": None,
        "evaluate_every_epochs": None,
        "evaluate_every_seconds": None,
        "batch_size": None,
        "accumulation_steps": 1,
        "seed": 0,
        "gradient_clip_norm": None,
        "max_loss": 10_000.0,
        "precision": "float32",
        "activation_checkpointing": False,
        "compile": False,
        "parallelism": {"mode": "ddp", "shard_size": None},
        "compression": None,
        "averaging": None,
        "checkpoint_every": None,
        "keep_checkpoints": 2,
        "report_timeout_seconds": 7200.0,
    },
    "resources": {
        "workers_per_trial": 2,
        "cpus_per_worker": 1.0,
        "gpus_per_worker": 0.0,
        "memory_per_worker": None,
        "beyond_memory": False,
        "custom_resources": {},
        "parallel_trials": None,
    },
    "sampler": {"name": "auto", "seed": 0},
    "pruner": {"name": None, "min_steps": None, "reduction_factor": None, "population": None, "interval": None},
    "baselines": [{"search_space": "adamw", "budget_share": None, "pinned": [], "extra_trials": 0}],
    "currency": None,
    "confirmation": "auto",
    "keep_weights": True,
}

JOB: dict[str, Any] = {
    "id": JOB_ID,
    "name": "digits, first try",
    "project": "default",
    "owner": "ada",
    "tags": {"team": "vision"},
    "priority": 0,
    "state": "running",
    "waiting": None,
    "requested": None,
    "failure": None,
    "cut_off": None,
    "workload": "digits-mlp",
    "model": "my-mlp",
    "objectives": [{"metric": "validation_loss", "direction": "minimize"}],
    "specification": SPECIFICATION,
    "num_trials": 36,
    "num_steps": 200,
    "disk_bytes": 1_482_752,
    "progress": {
        "trials": {"queued": 0, "running": 1, "completed": 4, "pruned": 5, "failed": 1, "cancelled": 0},
        "num_paused": 0,
        "phases": {
            "search": {"num_finished": 5, "num_trials": 10},
            "baseline": {"num_finished": 5, "num_trials": 10},
            "confirmation": {"num_finished": 0, "num_trials": 16},
        },
        "num_finished": 10,
        "num_steps": 1250,
        "max_steps": 3150,
        "best": {
            "number": 6,
            "value": 0.0713,
            "num_new_seeds": 0,
            "standard_deviation": None,
            "basis": "search value, one seed",
        },
        "baseline_best": {
            "number": 3,
            "value": 0.0871,
            "num_new_seeds": 0,
            "standard_deviation": None,
            "basis": "search value, one seed",
        },
        "seconds_elapsed": 24.1,
        "seconds_left": 24.1,
        "device_hours": 0.0089,
    },
    "created_at": "2026-03-01T12:00:00Z",
    "started_at": "2026-03-01T12:00:01Z",
    "finished_at": None,
}

JOB_ESTIMATE: dict[str, Any] = {
    "num_trials": {"search": 10, "baseline": 10, "confirmation": 16},
    "num_baseline_trials": {"adamw": 10},
    "num_left_over": 0,
    "num_steps": 200,
    "num_examples": None,
    "equal_seconds": False,
    "smallest_batch": None,
    "max_steps": 7200,
    "confirmation_share": 0.4444,
    "measured": {
        "job_id": JOB_ID,
        "num_trials": 9,
        "workers_per_trial": 1,
        "batch_size": 128,
        "step_seconds": 0.0095,
        "trial_overhead_seconds": 0.4,
        "optimizer_state_bytes": 2461696.0,
        "peak_memory_bytes": 512753664.0,
    },
    "step_seconds": 0.0095,
    "side_step_seconds": {"search": 0.012, "adamw": 0.0041},
    "unmeasured_sides": [],
    "start_up": {"seconds": 14.2, "job_id": JOB_ID},
    "max_seconds": 60.2,
    "max_device_hours": 0.0106,
    "lines": [
        "36 trials (search 10, baseline 10, confirmation 16) of up to 200 steps, 7200 steps in all if none are pruned."
    ],
    "winners": {
        "search": [{"job_id": JOB_ID, "trial": 6, "value": 0.0713, "parameters": {"lr": 0.0123}, "clipped": []}]
    },
    "memory": {
        "limit_bytes": 2_000_000_000,
        "spaces": {
            "search": {
                "default_bytes": 735_408,
                "largest_bytes": 735_408,
                "share_infeasible": 0.0,
                "num_points": 201,
                "activation_bytes": 137_600,
            }
        },
        "problem": None,
        "construction_fails": False,
        "activations_problem": None,
        "step_fails": False,
        "kept_weights_bytes": 339_000,
        "machine_bytes": 33_600_000_000,
        "is_machine_limit": False,
        "parallel_trials": 4,
        "is_limited_by_memory": False,
        "together_bytes": 6_984_064,
        "shortage": None,
    },
    "presets": {
        "presets": [
            {"preset": "kl", "loss_ratio": 1.0},
            {"preset": "soap", "loss_ratio": 1.07},
            {"preset": "shampoo", "loss_ratio": 1.12},
            {"preset": "adamw", "loss_ratio": 1.52},
        ],
        "num_models": 14,
        "octaves": 0.0,
    },
}

TRIAL_CONFIG: dict[str, Any] = {
    "workload": "digits-mlp",
    "optimizer": {"name": "shampoo", "arguments": {"lr": 0.0123, "grafting": "adam"}},
    "num_steps": 200,
    "evaluate_every": 20,
    "batch_size": 128,
    "schedule": {"warmup_fraction": 0.05, "decay": "cosine"},
    "workload_options": {},
    "seed": 0,
    "gradient_clip_norm": None,
    "max_loss": 10000.0,
    "checkpoint_every": None,
}

PASTED: dict[str, Any] = {
    "workload": "digits-mlp",
    "optimizer": "shampoo",
    "config": {"lr": 0.0123, "grafting": "adam"},
    "schedule": {"warmup_fraction": 0.05, "decay": "cosine"},
    "training": {"num_steps": 200, "batch_size": 128, "gradient_clip_norm": None},
    "workload_options": {},
    "parameter_groups": [],
    "python": "from shampoo import Shampoo  # pip install shampoo-tuner\n\n"
    "optimizer = Shampoo(\n    model.parameters(),\n    lr=0.0123,\n)\n",
}

TRIAL_CONFIG_TO_PASTE: dict[str, Any] = {"number": 6, **PASTED}

TRIAL_CHANGE: dict[str, Any] = {"note": "Its loss stood still for 40 steps: look at the data of that hour."}

TRIAL: dict[str, Any] = {
    "number": 6,
    "phase": "search",
    "state": "completed",
    "requested": None,
    "reason": None,
    "cancel_cause": None,
    "detail": None,
    "parameters": {"lr": 0.0123, "grafting": "adam"},
    "config": TRIAL_CONFIG,
    "confirms": None,
    "forked_from": None,
    "forked_at_step": None,
    "runs": 1,
    "step": 200,
    "num_steps": 200,
    "seconds": 1.9,
    "spent_seconds": 1.9,
    "value": 0.0713,
    "metrics": {"train_loss": 0.0021, "validation_loss": 0.0713, "validation_accuracy": 0.9806},
    "fingerprint": "7f46a1be53b5d8f2c0b4e91d2a6c8e37",
    "data_digest": "d85f2a7c94e1b306f8a2c5d70913be64",
    "note": None,
    "created_at": "2026-03-01T12:00:11Z",
    "started_at": "2026-03-01T12:00:11Z",
    "finished_at": "2026-03-01T12:00:14Z",
}

MEASUREMENTS: dict[str, Any] = {
    "items": [
        {
            "step": 20,
            "epoch": 1.78,
            "seconds": 0.2,
            "metrics": {"train_loss": 0.61, "validation_loss": 0.48, "validation_accuracy": 0.8944},
            "recorded_at": "2026-03-01T12:00:12Z",
        }
    ],
    "next_after_step": None,
}

EVENT: dict[str, Any] = {
    "id": 117,
    "job_id": JOB_ID,
    "kind": "trial.measured",
    "data": {"number": 6, "step": 20, "value": 0.48},
    "created_at": "2026-03-01T12:00:12Z",
}

EVENT_STREAM = f"retry: 3000\n\nevent: trial.measured\ndata: {json.dumps(EVENT)}\nid: 117\n\n"
