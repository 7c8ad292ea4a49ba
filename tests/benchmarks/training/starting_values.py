"""The cost of a config that nobody tuned by the length of the training: the defaults, and `shampoo.starting_values`.

    python -m tests.benchmarks.training.starting_values --log runs.jsonl    # an hour on two cores; goes on from the log
    python -m tests.benchmarks.training.starting_values --workloads digits-mlp --num-steps 60 240
    python -m tests.benchmarks.training.starting_values --quick             # to see that it works: no figures to quote

On each workload, for each number of steps and each member of the family, a grid of learning rates (and for Shampoo of
refresh periods) is trained on one seed, everything else as it is by default: a cosine schedule after 5% of warm-up, a
weight decay of 0.01. The loss is that on the validation data at the end of the run.

    loss_over_best.V.N    of values V in N steps: the loss over the least of the member's grids, geometric mean over
                          members and workloads; of the grid with the refresh period that is nearest, and between two of
                          its learning rates on the line between their losses (all on logarithmic scales). A run that
                          diverged counts as twenty times the least
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shampoo import starting_values
from shampoo.hyperparameters import DEFAULT_REFRESH_PERIOD, DEFAULTS, Preconditioner
from tests.benchmarks.report import Cell, report
from tests.benchmarks.training.training_runs import Recipe, Task, final_losses, grid_options, told_losses
from trainers.config import OptimizerConfig, ScheduleConfig, TrialConfig

LEARNING_RATES = tuple(0.001 * 2**power for power in range(7))
MEMBERS: Mapping[Preconditioner, tuple[int | None, ...]] = {
    "shampoo": (10, 50),
    "soap": (10,),
    "kl": (10,),
    "spectral": (None,),
    "none": (None,),
}
"""Refresh periods by member."""
WORKLOADS = ("digits-mlp", "digits-autoencoder", "digits-convnet", "stdlib-gpt")
NUM_STEPS = (60, 240, 960)
DIVERGED = 20.0
SHORT_ONLY = {"stdlib-gpt": 240}
"""Workloads whose longer runs take hours."""


@dataclass(frozen=True, slots=True)
class Run:
    """One point of a grid."""

    workload: str
    num_steps: int
    member: Preconditioner
    period: int | None
    lr: float


def runs_of(workloads: Sequence[str], lengths: Sequence[int]) -> Iterator[Run]:
    """All points of all grids."""
    for workload, num_steps, (member, periods) in itertools.product(workloads, lengths, MEMBERS.items()):
        if num_steps <= SHORT_ONLY.get(workload, num_steps):
            for period, lr in itertools.product(periods, LEARNING_RATES):
                yield Run(workload, num_steps, member, period, lr)


def recipe_of(run: Run) -> Recipe:
    """The run's optimizer and schedule."""
    arguments: dict[str, Any] = {
        "preconditioner": run.member,
        "lr": run.lr,
        "betas": starting_values(run.num_steps, preconditioner=run.member)["betas"],
        "weight_decay": 0.01,
        "max_preconditioner_dim": 1024,
    }
    if run.period is not None:
        arguments["precondition_frequency"] = run.period
    return Recipe(OptimizerConfig("shampoo", arguments), ScheduleConfig(decay="cosine", warmup_fraction=0.05))


def config_of(run: Run) -> TrialConfig:
    """The config of a run."""
    return Task(run.workload, num_steps=run.num_steps, num_evaluations=1).config(recipe_of(run), seed=0)


def log_loss(grid: Mapping[float, float], lr: float, *, worst: float) -> float:
    """The logarithm of the loss at a learning rate, between those of its neighbours."""
    tried = sorted(grid)
    lr = min(max(lr, tried[0]), tried[-1])
    low, high = next((a, b) for a, b in itertools.pairwise(tried) if a <= lr <= b)
    share = math.log(lr / low) / math.log(high / low)
    ends = [math.log(min(grid[end], worst)) for end in (low, high)]
    return (1 - share) * ends[0] + share * ends[1]


def over_best(
    losses: Mapping[Run, float], workload: str, num_steps: int, member: Preconditioner
) -> tuple[float, float]:
    """The logarithms of the losses of the defaults and of `starting_values` over the least that was found."""
    grids: dict[int | None, dict[float, float]] = {}
    for run, loss in losses.items():
        if (run.workload, run.num_steps, run.member) == (workload, num_steps, member):
            grids.setdefault(run.period, {})[run.lr] = loss
    least = min(min(grid.values()) for grid in grids.values())
    begun = starting_values(num_steps, preconditioner=member)

    def of(lr: float, period: int) -> float:
        nearest = min(grids, key=lambda one: 0.0 if one is None else abs(math.log(one / period)))
        return log_loss(grids[nearest], lr, worst=DIVERGED * least) - math.log(least)

    default_period = DEFAULT_REFRESH_PERIOD[member]
    return of(DEFAULTS["lr"], default_period), of(begun["lr"], begun.get("precondition_frequency", default_period))


def main() -> None:
    """Trains the grids that the command line asks for."""
    parser = grid_options(__doc__)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--num-steps", nargs="+", type=int, default=list(NUM_STEPS), metavar="N")
    given = parser.parse_args()
    if given.quick:
        given.workloads, given.num_steps = ["digits-mlp"], [8]
    runs = list(runs_of(given.workloads, given.num_steps))
    losses = final_losses(runs, config_of, given.log, num_processes=given.processes)
    rows: list[list[Cell]] = []
    by_length: dict[int, list[tuple[float, float]]] = {}
    for workload, num_steps, member in dict.fromkeys((run.workload, run.num_steps, run.member) for run in runs):
        found = over_best(losses, workload, num_steps, member)
        by_length.setdefault(num_steps, []).append(found)
        begun = starting_values(num_steps, preconditioner=member)
        rows.append([workload, num_steps, member, begun["lr"], *map(math.exp, found)])
    ratios = {
        f"loss_over_best.{name}.{num_steps}": math.exp(statistics.fmean(pair[side] for pair in found))
        for num_steps, found in sorted(by_length.items())
        for side, name in enumerate(("defaults", "starting_values"))
    }
    report(
        "starting_values",
        columns=["workload", "steps", "member", "lr", "defaults/best", "starting values/best"],
        rows=rows,
        figures={"losses": told_losses(losses)},
        ratios=ratios,
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
