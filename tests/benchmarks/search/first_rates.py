"""The first learning rate of a preset by the length of the training, held against a grid of them.

    python -m trainers.workloads.clicks.generator clicks.tsv --examples 8000
    python -m tests.benchmarks.search.first_rates --clicks clicks.tsv --log rates.jsonl    # half an hour
    python -m tests.benchmarks.search.first_rates --quick                 # to see that it works: no figures to quote

On each workload every learning rate of the grid is trained with each seed, everything else at the preset's defaults.
What counts is the mean of the logarithm of the validation loss at the end, over the least such mean of the grid; a run
that diverged counts as twenty times the least, and between two learning rates the line between their values holds.

    own_over_best.P.N     of the learning rate with which preset P begins for N steps, geometric mean over workloads
    adam_over_best.P.N    the same of the one with which AdamW begins
    held_out.P.N          of that of the two which is better on all other workloads, each workload left out once
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from search_spaces import preset
from tests.benchmarks.report import Cell, report
from tests.benchmarks.training.starting_values import DIVERGED, log_loss
from tests.benchmarks.training.training_runs import Task, final_losses, grid_options, told_losses
from tests.benchmarks.training.tuning import recipe
from trainers.config import TrialConfig

PRESETS = ("kl", "spectral", "cosmos", "soap", "shampoo", "adamw")
WORKLOADS = ("digits-mlp", "digits-autoencoder", "digits-convnet", "stdlib-gpt", "click-log")
RATES: Mapping[int, tuple[float, ...]] = {
    30: (0.008, 0.016, 0.032, 0.064, 0.1),
    60: (0.008, 0.016, 0.032, 0.064, 0.1),
    120: (0.008, 0.0114, 0.016, 0.032, 0.064),
    240: (0.004, 0.008, 0.016, 0.032, 0.064),
}
"""The grid by number of steps."""


@dataclass(frozen=True, slots=True)
class Run:
    """One training."""

    preset: str
    num_steps: int
    workload: str
    lr: float
    seed: int


def runs_of(presets: Sequence[str], lengths: Sequence[int], workloads: Sequence[str], num_seeds: int) -> Iterator[Run]:
    """All trainings of all grids."""
    for name, num_steps, workload in itertools.product(presets, lengths, workloads):
        for lr, seed in itertools.product(RATES[num_steps], range(num_seeds)):
            yield Run(name, num_steps, workload, lr, seed)


def config_of(run: Run, options: Mapping[str, Any]) -> TrialConfig:
    """The config of a run.

    Args:
        options: of the workloads, by their names.
    """
    space = preset(run.preset)
    chosen = recipe(space, {**space.defaults(), "lr": run.lr})
    task = Task(run.workload, num_steps=run.num_steps, num_evaluations=4, options=options.get(run.workload, {}))
    return task.config(chosen, seed=7000 + run.seed)


def grid_of(losses: Mapping[Run, float], name: str, num_steps: int, workload: str) -> dict[float, float]:
    """Geometric means over seeds by learning rate, over the least of them."""
    own = {
        run: loss
        for run, loss in losses.items()
        if (run.preset, run.num_steps, run.workload) == (name, num_steps, workload)
    }
    worst = DIVERGED * min(own.values())
    means = {
        lr: math.exp(statistics.fmean(math.log(min(loss, worst)) for run, loss in own.items() if run.lr == lr))
        for lr in sorted({run.lr for run in own})
    }
    return {lr: mean / min(means.values()) for lr, mean in means.items()}


def first_lr(name: str, num_steps: int) -> float:
    """The learning rate with which a preset begins."""
    lr = preset(name, num_steps=num_steps).defaults()["lr"]
    assert isinstance(lr, float)
    return lr


def mean_over(values: Mapping[str, float], *, without: str | None = None) -> float:
    """The geometric mean over workloads of what are logarithms."""
    return math.exp(statistics.fmean(value for workload, value in values.items() if workload != without))


def main() -> None:
    """Trains the grids that the command line asks for."""
    parser = grid_options(__doc__)
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=["kl", "spectral", "adamw"])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, help="all, but for click-log without --clicks")
    parser.add_argument("--num-steps", nargs="+", type=int, choices=list(RATES), default=[30, 60, 120], metavar="N")
    parser.add_argument("--clicks", type=Path, help="the file of click-log")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    if given.quick:
        given.presets, given.workloads, given.num_steps, given.seeds = ["kl"], ["digits-mlp", "digits-convnet"], [30], 1
    workloads = given.workloads or [each for each in WORKLOADS if given.clicks is not None or each != "click-log"]
    options = {
        "stdlib-gpt": {"width": 32, "depth": 1},
        "click-log": {"path": str(given.clicks), "validation_share": 0.2},
    }
    runs = list(runs_of(given.presets, given.num_steps, workloads, given.seeds))
    losses = final_losses(runs, partial(config_of, options=options), given.log, num_processes=given.processes)
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    for name, num_steps in itertools.product(given.presets, given.num_steps):
        grids = {workload: grid_of(losses, name, num_steps, workload) for workload in workloads}
        rates = {"own": first_lr(name, num_steps), "adam": first_lr("adamw", num_steps)}
        over = {
            rule: {workload: log_loss(grid, lr, worst=DIVERGED) for workload, grid in grids.items()}
            for rule, lr in rates.items()
        }
        for rule, values in over.items():
            ratios[f"{rule}_over_best.{name}.{num_steps}"] = mean_over(values)
        held_out = {
            workload: over[min(over, key=lambda rule: mean_over(over[rule], without=workload))][workload]
            for workload in workloads
        }
        ratios[f"held_out.{name}.{num_steps}"] = mean_over(held_out)
        for lr in RATES[num_steps]:
            means = {workload: math.log(grid[lr]) for workload, grid in grids.items()}
            rows.append([name, num_steps, lr, *map(math.exp, means.values()), mean_over(means)])
    report(
        "first_rates",
        columns=["preset", "steps", "lr", *workloads, "all"],
        rows=rows,
        figures={"losses": told_losses(losses)},
        ratios=ratios,
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
