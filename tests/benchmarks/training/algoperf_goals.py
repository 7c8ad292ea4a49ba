"""The goals of the external-tuning protocol: what a tuned AdamW attains in three quarters of each budget.

    python -m tests.benchmarks.training.algoperf_goals          # minutes on two quiet cores

The service's sampler tries `--trials` choices of AdamW's preset on one seed, each trained for three quarters of the
budget with a schedule as long; the best one is trained again on `--seeds` others. The goal is the median over those of
its best validation loss. `trainers.external_tuning.goals` has them, rounded up to three digits.
"""

from __future__ import annotations

import argparse
import math
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from search_spaces import preset
from tests.benchmarks.report import report
from tests.benchmarks.training.training_runs import Curve, Recipe, Task, Trainers
from tests.benchmarks.training.tuning import best, search
from trainers.external_tuning.goals import GOALS, NUM_MEASUREMENTS, Goal

SHARE_OF_BUDGET = 0.75
SEARCH_SEED = "algoperf-goals"


def found(goal: Goal, trainers: Trainers, *, num_trials: int, num_seeds: int) -> list[float]:
    """The best losses of the tuned AdamW on each seed."""
    task = Task(goal.workload, goal.num_steps, NUM_MEASUREMENTS, options=goal.options)

    def train(recipe: Recipe) -> Curve:
        return trainers.start(task.config(recipe, seed=0, budget=SHARE_OF_BUDGET)).result()

    tried = search(preset("adamw"), num_trials=num_trials, seed=SEARCH_SEED, train=train, ended=lambda _: None)
    winner = best(tried).recipe
    seeds = range(1, num_seeds + 1)
    started = [trainers.start(task.config(winner, seed=seed, budget=SHARE_OF_BUDGET)) for seed in seeds]
    return [run.result().best for run in started]


def rounded_up(value: float) -> float:
    """To three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workloads", nargs="+", default=list(GOALS), choices=list(GOALS))
    parser.add_argument("--trials", type=int, default=16, help="trials of the search (default: 16)")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the best one (default: 5)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    goals = [GOALS[name] for name in options.workloads]
    with Trainers(options.processes) as trainers, ThreadPoolExecutor(len(goals)) as threads:
        losses = list(
            threads.map(lambda goal: found(goal, trainers, num_trials=options.trials, num_seeds=options.seeds), goals)
        )
    medians = {goal.workload: statistics.median(of_goal) for goal, of_goal in zip(goals, losses, strict=True)}
    report(
        "algoperf_goals",
        columns=["workload", "steps", "goal", "least", "greatest"],
        rows=[
            [goal.workload, goal.num_steps, f"{rounded_up(medians[goal.workload]):.3g}", min(of_goal), max(of_goal)]
            for goal, of_goal in zip(goals, losses, strict=True)
        ],
        figures={"losses": dict(zip(options.workloads, losses, strict=True)), "num_trials": options.trials},
        ratios={f"goal_over_known.{name}": median / GOALS[name].value for name, median in medians.items()},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
