"""Examples about the health of a job."""

from __future__ import annotations

from typing import Any

JOB_HEALTH: dict[str, Any] = {
    "items": [
        {
            "kind": "many_diverged",
            "severity": "hint",
            "sentence": "9 of the search's 30 trials diverged: their loss was not finite.",
            "advice": "Budget goes into configs that cannot work: lower the upper bound of the learning rate.",
        }
    ]
}
