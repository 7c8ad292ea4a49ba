"""Hyperparameters to begin with if nobody has tuned any, by the length of the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shampoo.hyperparameters import DECLARATIONS, DEFAULT_REFRESH_PERIOD, DEFAULTS, Preconditioner

LR_OF_ONE_STEP = 0.125
"""lr is this value divided by √(number of steps), for all members. A separate factor for each member, or another power,
made little difference on the digits in 60 to 960 steps (`python -m tests.benchmarks.training.starting_values`)."""
LARGEST_LR = 0.016
"""Largest learning rate of that rule, its result for runs of 60 steps; AdamW needs no higher one in 30."""
SHORT_LR_OF_ONE_STEP = 15.0
"""For `HIGHER_IN_SHORT_RUNS` lr is this value divided by (number of steps)^1.5 if that is more, as it is below 120
steps (`python -m tests.benchmarks.search.first_rates`)."""
LARGEST_SHORT_LR = 0.064
"""Largest learning rate of that rule, in the shortest runs that were tried, of 30 steps."""
HIGHER_IN_SHORT_RUNS = frozenset({"kl", "spectral"})
"""The members that need a higher learning rate in short runs."""
AVERAGES: Mapping[Preconditioner, Mapping[str, Any]] = {
    "soap": {"betas": (0.95, 0.95)},
    "kl": {"betas": (0.9, 0.95)},
    "spectral": {"betas": (0.95, 0.999), "beta3": 0.9025},
}
"""The averages of members that need other values than the default; 0.9025 = 0.95² is Muon's Nesterov momentum."""
REFRESHES_IN_A_RUN = 50
"""The largest number of refreshes in a run of shampoo, whose refresh period is between 10 steps and its default."""
SHORTEST_PERIOD = 10
"""Steps between refreshes in the shortest runs, by judgement."""


def starting_lr(num_steps: int, *, preconditioner: str | None = None) -> float:
    """The peak learning rate for a training of `num_steps` >= 1, with steps of Adam's length: the longer the training,
    the smaller, without a lower limit. `preconditioner`: the member of the family; None: another optimizer."""
    lr = min(LARGEST_LR, LR_OF_ONE_STEP / num_steps**0.5)
    if preconditioner in HIGHER_IN_SHORT_RUNS:
        lr = max(lr, min(LARGEST_SHORT_LR, SHORT_LR_OF_ONE_STEP / num_steps**1.5))
    return float(f"{lr:.2g}")


def starting_values(num_steps: int, *, preconditioner: Preconditioner = "shampoo") -> dict[str, Any]:
    """Keyword arguments for `Shampoo(params, **starting_values(num_steps))`: a first guess, not a tuned config.

    The learning rate is the peak of a schedule that warms up and then decays; it falls with the root of the number of
    steps, down to the default, which is for long runs. Weight decay is left to you.

    Args:
        num_steps: of the whole training, >= 1.
        preconditioner: the member of the family.

    Raises:
        ValueError: there is no such number of steps, or no such member.
    """
    if isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 1:
        raise ValueError(f"num_steps must be an integer >= 1, got {num_steps!r}")
    DECLARATIONS["preconditioner"].check(preconditioner)
    values: dict[str, Any] = {
        "preconditioner": preconditioner,
        "lr": max(DEFAULTS["lr"], starting_lr(num_steps, preconditioner=preconditioner)),
        "betas": DEFAULTS["betas"],
        **AVERAGES.get(preconditioner, {}),
    }
    if preconditioner == "shampoo":
        period = max(SHORTEST_PERIOD, num_steps // REFRESHES_IN_A_RUN)
        values["precondition_frequency"] = min(DEFAULT_REFRESH_PERIOD[preconditioner], period)
    return values
