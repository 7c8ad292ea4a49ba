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

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shampoo import starting_values
from shampoo.hyperparameters import DEFAULT_REFRESH_PERIOD, DEFAULTS, Preconditioner
from tests.benchmarks.report import Cell, report
from tests.benchmarks.training.training_runs import Recipe, Task, Trainers
from trainers.config import OptimizerConfig, ScheduleConfig

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


def trained(runs: Sequence[Run], log: Path | None, *, num_processes: int) -> dict[Run, float]:
    """The final loss of every run, infinite where it diverged; those that the log has are not trained again."""
    losses: dict[Run, float] = {}
    if log is not None and log.exists():
        for line in map(json.loads, log.read_text().splitlines()):
            losses[Run(**line["run"])] = math.inf if line["loss"] is None else line["loss"]
    with Trainers(num_processes) as trainers:
        started = {}
        for run in runs:
            if run not in losses:
                task = Task(run.workload, num_steps=run.num_steps, num_evaluations=1)
                started[trainers.start(task.config(recipe_of(run), seed=0))] = run
        for future in as_completed(started):
            run, loss = started[future], future.result().final
            losses[run] = loss
            text = json.dumps({"run": asdict(run), "loss": loss if math.isfinite(loss) else None})
            print(text, file=sys.stderr)
            if log is not None:
                with log.open("a") as file:
                    file.write(text + "\n")
    return losses


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
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--num-steps", nargs="+", type=int, default=list(NUM_STEPS), metavar="N")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--log", type=Path, help="a line of JSON for each run, as soon as it is there")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.workloads, given.num_steps = ["digits-mlp"], [8]
    runs = list(runs_of(given.workloads, given.num_steps))
    losses = trained(runs, given.log, num_processes=given.processes)
    wanted = {run: losses[run] for run in runs}
    rows: list[list[Cell]] = []
    by_length: dict[int, list[tuple[float, float]]] = {}
    for workload, num_steps, member in dict.fromkeys((run.workload, run.num_steps, run.member) for run in runs):
        found = over_best(wanted, workload, num_steps, member)
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
        figures={
            "losses": [{**asdict(run), "loss": loss if math.isfinite(loss) else None} for run, loss in wanted.items()]
        },
        ratios=ratios,
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
