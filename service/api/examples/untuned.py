"""Examples of questions about models that were never tuned."""

from __future__ import annotations

from typing import Any

UNTUNED_QUESTION: dict[str, Any] = {
    "fingerprint": {
        "source": "my_model:Net",
        "workload": None,
        "digest": None,
        "options": None,
        "parameters": [
            {"kind": "linear", "shape": [256, 64], "count": 1},
            {"kind": "linear", "shape": [10, 256], "count": 1},
            {"kind": "vector", "shape": [256], "count": 1},
            {"kind": "vector", "shape": [10], "count": 1},
        ],
    },
    "batch_size": 128,
    "num_steps": 1000,
    "budget": {"num_trials": 5},
    "formats": ["torch-muon"],
}

UNTUNED_ANSWER: dict[str, Any] = {
    "basis": "store",
    "says": "This rests on 1 tuned model of this service, and beside it on the scaling rules.",
    "items": [
        {
            "optimizer": "shampoo",
            "config": {"lr": 0.004, "betas": [0.95, 0.995], "grafting": "adam", "precondition_frequency": 10},
            "schedule": {"decay": "cosine", "warmup_fraction": 0.05},
            "training": {"gradient_clip_norm": None, "num_steps": 1000, "batch_size": 128},
            "lr_factor": 1.0,
            "distance": {
                "total": 1.0,
                "width": 1.0,
                "depth": 0.0,
                "batch_size": 0.0,
                "num_steps": 0.0,
                "kinds": 0.0,
                "workload": 0.0,
            },
            "intervals": [{"name": "lr", "low": 0.002, "high": 0.008}],
            "confidence": 0.8,
            "changes": [
                {
                    "name": "lr",
                    "before": 0.008,
                    "after": 0.004,
                    "reason": "1/fan-in, fan-in × 2: × 0.5",
                    "source": "Hyperparameter transfer for matrix preconditioners (arXiv:2512.05620)",
                }
            ],
            "origin": {
                "kind": "store",
                "name": "digits-mlp, batch size 128",
                "recommendation_id": "rec_01KAJ5M0T3XQ8Z7V6R5N4M3K2J",
                "job_id": "job_01KAJ5M0T3XQ8Z7V6R5N4M3K2J",
                "status": "confirmed",
                "standing": "confirmed up to the noise",
                "metric": "validation_loss",
                "value": 0.0713,
                "num_trials": 24,
                "shares": [],
            },
            "remarks": [],
            "python": "# Shampoo for my_model:Net\n# Never tried on this model.\n...",
            "formats": [
                {
                    "format": "torch-muon",
                    "title": "Python with torch.optim.Muon",
                    "text": None,
                    "cannot_say": [
                        "torch.optim.Muon orthogonalises the momentum: it has nothing of preconditioner='shampoo'"
                    ],
                }
            ],
        }
    ],
}
