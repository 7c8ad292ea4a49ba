"""Examples of recommendations."""

from __future__ import annotations

from typing import Any

from service.api.examples.jobs import JOB_ID, PASTED, TRIAL_CONFIG

_WINNER: dict[str, Any] = {
    "number": 6,
    "value": 0.0713,
    "config": TRIAL_CONFIG,
    "metrics": {"train_loss": 0.0021, "validation_loss": 0.0698, "validation_accuracy": 0.9806},
    "num_steps": 200,
    "seconds": 1.9,
    "lineage": [],
}

_OURS = [0.0705, 0.0709, 0.0720, 0.0710, 0.0715, 0.0708, 0.0716]
_THEIRS = [0.0869, 0.0866, 0.0880, 0.0867, 0.0875, 0.0864, 0.0874]


def _results(values: list[float], first: int) -> list[dict[str, Any]]:
    return [
        {"seed": seed, "number": first + 2 * seed, "ending": "completed", "value": value}
        for seed, value in enumerate(values, start=1)
    ]


_CONFIRMATION: dict[str, Any] = {
    "seeds": [2, 3, 4, 5, 6, 7],
    "candidates": [
        {
            "number": 6,
            "found_value": 0.0698,
            "results": _results(_OURS, 18),
            "mean": 0.0713,
            "standard_deviation": 0.00048,
            "further_low": 0.06997,
            "further_high": 0.07263,
            "choosing_mean": 0.0705,
            "probability_best": None,
        }
    ],
    "baseline": {
        "number": 3,
        "found_value": 0.0851,
        "results": _results(_THEIRS, 19),
        "mean": 0.0871,
        "standard_deviation": 0.00063,
        "further_low": 0.08535,
        "further_high": 0.08885,
        "choosing_mean": 0.0869,
        "probability_best": None,
    },
    "confidence": 0.95,
    "improvement_low": 0.1791,
    "improvement_high": 0.1837,
    "choosing_seeds": [1],
    "baseline_others": [],
    "is_settled": False,
}


def _comparison(
    currency: str, *, spent: float, value: float, improvement: float, low: float, high: float
) -> dict[str, Any]:
    return {
        "currency": currency,
        "verdict": "better",
        "spent": spent,
        "value": value,
        "baseline_value": 0.0871,
        "improvement": improvement,
        "improvement_low": low,
        "improvement_high": high,
    }


RECOMMENDATION: dict[str, Any] = {
    "id": "rec_01KAJ5QW1Z9Y8X7V6T5S4R3Q2P",
    "job_id": JOB_ID,
    "model": "my-mlp",
    "superseded": False,
    "key": {
        "fingerprint": "7f46a1be53b5d8f2c0b4e91d2a6c8e37",
        "data_digest": "d85f2a7c94e1b306f8a2c5d70913be64",
        "batch_size": 128,
        "num_steps": 200,
        "precision": "float32",
        "objective": "validation_loss",
    },
    "environment": {
        "device": "cpu",
        "device_name": None,
        "world_size": 2,
        "versions": {"python": "3.11.7", "torch": "2.13.0", "shampoo-tuner": "0.1.0", "numpy": "2.4.6"},
    },
    **PASTED,
    "evidence": {
        "metric": "validation_loss",
        "direction": "minimize",
        "best": _WINNER,
        "baseline": {
            **_WINNER,
            "number": 3,
            "value": 0.0871,
            "config": {**TRIAL_CONFIG, "optimizer": {"name": "adamw", "arguments": {"lr": 0.003}}},
        },
        "verdict": "better",
        "equal_within": 0.005,
        "improvement": 0.1814,
        "reached_baseline": {
            "step": 120.0,
            "seconds": 1.1,
            "baseline_step": 200.0,
            "baseline_seconds": 1.5,
            "step_ratio": 1.667,
            "seconds_ratio": 1.364,
            "step_ratio_low": 1.55,
            "step_ratio_high": 1.79,
            "seconds_ratio_low": 1.2,
            "seconds_ratio_high": 1.55,
            "examples_ratio": 1.667,
            "examples_ratio_low": 1.55,
            "examples_ratio_high": 1.79,
            "is_first_measurement": False,
        },
        "num_trials": {
            "baseline": {"completed": 4, "pruned": 6},
            "confirmation": {"completed": 14},
            "search": {"completed": 4, "pruned": 6},
        },
        "seeds": [2, 3, 4, 5, 6, 7],
        "caveats": [],
        "confirmation": _CONFIRMATION,
        "front": [],
        "verdict_caveats": [],
        "status": "confirmed",
        "alternatives": [],
        "search_interval": [0.1402, 0.2173],
        "branches": None,
        "transfers": [
            {
                "source": "digits-mlp, batch size 128",
                "distance": 1.0,
                "number": 1,
                "value": 0.0731,
                "behind": 0.0473,
            }
        ],
        "currency": "steps",
        "comparisons": [
            _comparison("steps", spent=200.0, value=0.0713, improvement=0.1814, low=0.1791, high=0.1837),
            _comparison("seconds", spent=1.5, value=0.0734, improvement=0.1573, low=0.1421, high=0.1725),
            _comparison("examples", spent=25600.0, value=0.0713, improvement=0.1814, low=0.1791, high=0.1837),
        ],
        "baselines": [{"optimizer": "adamw", "number": 3, "value": 0.0869, "num_new_seeds": 1, "num_tried": 10}],
        "side_seconds": {"search": 9.4, "adamw": 8.8},
        "break_even": {
            "device_hours": 0.0213,
            "saved_device_hours": 0.00022,
            "saved_share": 0.267,
            "num_runs": 96,
        },
    },
    "weights": {
        "recommended": f"/v1/jobs/{JOB_ID}/weights/recommended",
        "baseline": f"/v1/jobs/{JOB_ID}/weights/baseline",
    },
    "created_at": "2026-03-01T12:00:49Z",
}
