"""How many steps and seconds the family needs to AdamW's best validation loss, each tuned with as many trials.

    python -m tests.benchmarks.training.convergence                     # about 20 minutes on two quiet cores
    python -m tests.benchmarks.training.convergence --workloads stdlib-gpt --trials 24 --json convergence.json
    python -m tests.benchmarks.training.convergence --size small --trials 24 --no-budgets --log small.jsonl    # hours
    python -m tests.benchmarks.training.convergence --variants bfloat16 ema lawa fsdp2
    python -m tests.benchmarks.training.convergence --optimizers shampoo spectral --variants half root-free swan
    python -m tests.benchmarks.training.convergence --optimizers spectral cosmos --workloads digits-autoencoder
    python -m tests.benchmarks.training.convergence --optimizers lora-rite shampoo --workloads adapters --steps 200
    python -m tests.benchmarks.training.convergence --quick        # a minute, to see that it works: no figures to quote

Workloads are those that ship with real data, trained for their default number of steps; `adapters` are low-rank ones
of a small GPT-2 that has learned Python and is to learn C++ (`tests.benchmarks.training.adapters`). For each
optimizer the service's sampler (TPE, after the preset's defaults) tries `--trials` choices of its preset, trained in
full on seed 0; that of the least validation loss is trained again on `--seeds` other seeds, the same for all. So every
figure is of seeds that nobody tuned on. Variants are not tuned: they are an optimizer's winner with something changed
(`tuning`), an option of the optimizer, the precision, averaged weights or the number of ranks.
The goal is the median over the seeds of AdamW's best validation loss.

    steps_over_adamw.X.W      steps at which runs of X on workload W first measure the goal or less (median over seeds)
                              over AdamW's own. All runs have the same length and schedule, so this is the plain
                              reading of "steps to AdamW's best value". It understates: with a learning rate that
                              falls to 0 at the end of the run most of the descent comes late, so that even a much
                              better optimizer passes the goal in the last third.
    seconds_over_adamw.X.W    likewise, in seconds of training with one thread (no evaluation). Runs that share the
                              machine with others are slower, and not all evenly: leave it alone meanwhile.
    budget_over_adamw.X.W     what one saves by training with X instead: the least share of the steps, in twentieths,
                              with which whole runs (their schedule over the fewer steps, all else as tuned for the
                              full length) attain the goal as the median of their best losses, over the same share
                              for AdamW, which is 1 unless AdamW's last steps are of no use. Found by bisection, which
                              takes the loss for a falling function of the budget.
    loss_over_adamw.X.W       X's best validation loss over AdamW's (medians over seeds)
    loss_over_plain.V.X.W     best validation loss of variant V of X over X's own (medians over seeds)

With `--log` a run that broke off goes on from the file; adapters and runs of several ranks are trained again.
A goal never attained counts as attained one measurement after the end: such ratios are lower bounds, and `censored`
lists them.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_spaces import preset
from tests.benchmarks.report import Cell, report
from tests.benchmarks.training.adapters import WORKLOAD as WORKLOAD_OF_ADAPTERS
from tests.benchmarks.training.adapters import adapters_to_train
from tests.benchmarks.training.training_runs import Curve, RankGroups, Recipe, RunLog, Task, Trainers
from tests.benchmarks.training.tuning import (
    OPTIMIZERS,
    TUNED,
    VARIANT_OF,
    VARIANTS,
    Trial,
    best,
    replaced,
    search,
)
from trainers.workloads.registry import describe

WORKLOADS = ("digits-autoencoder", "digits-convnet", "stdlib-gpt")
ADAPTERS = "adapters"
"""The workload `huggingface`, on a model that is trained beforehand."""
SEARCH_SEED = "convergence"
TUNING_SEED = 0
NUM_TUNING_EVALUATIONS = 10
"""Measurements in a trial, where no more is wanted than its best loss."""
NUM_BUDGETS = 20
"""Budgets are multiples of one in so many of the steps."""


@dataclass(slots=True)
class Result:
    """Result of one optimizer on one workload."""

    recipe: Recipe
    trials: list[Trial]
    """Empty if it was not tuned."""
    curves: list[Curve]
    """One for each seed, of runs in full length."""
    shorter: dict[float, list[Curve]] = field(default_factory=dict)
    """Curves of shorter runs, by their budget as a share of the full length."""

    @property
    def best(self) -> float:
        return statistics.median(curve.best for curve in self.curves)

    @property
    def final(self) -> float:
        return statistics.median(curve.final for curve in self.curves)

    @property
    def milliseconds_per_step(self) -> float:
        return statistics.median(1e3 * c.seconds[-1] / c.steps[-1] if c.steps else math.inf for c in self.curves)

    def steps_to(self, goal: float) -> float:
        return statistics.median(curve.steps_to(goal) for curve in self.curves)

    def seconds_to(self, goal: float) -> float:
        return statistics.median(curve.seconds_to(goal) for curve in self.curves)

    def budget_to(self, goal: float) -> float:
        """The least budget tried whose median best loss attains the goal; infinite if none does."""
        tried = {1.0: self.curves, **self.shorter}
        enough = [b for b, curves in tried.items() if statistics.median(c.best for c in curves) <= goal]
        return min(enough, default=math.inf)


class Comparison:
    """The runs of some optimizers on some workloads."""

    def __init__(
        self,
        tasks: Sequence[Task],
        tuned: Sequence[str],
        trainers: Trainers,
        seeds: Sequence[int],
        *,
        variants: Sequence[str],
        groups: RankGroups | None,
    ) -> None:
        """`groups` train the variants of several ranks."""
        self._tasks = tasks
        self._tuned = tuned
        self._trainers = trainers
        self._seeds = seeds
        self._variants = variants
        self._groups = groups

    def run(self, *, num_trials: int, with_budgets: bool) -> dict[str, dict[str, Result]]:
        """Everything that is measured: results by workload and optimizer."""
        pairs = [(task, name) for task in self._tasks for name in self._tuned]
        # Each search is a chain of runs, so that what it tries does not depend on the number of processes: those are
        # kept busy by following all chains at once, in a thread each, which only waits.
        with ThreadPoolExecutor(len(pairs)) as threads:
            trials = dict(
                zip(pairs, threads.map(lambda pair: self._tune(pair[0], pair[1], num_trials), pairs), strict=True)
            )
            recipes = {pair: best(found).recipe for pair, found in trials.items()}
            for name in self._variants:
                variant = VARIANTS[name]
                for origin in self._tuned:
                    if origin in variant.of:
                        changed = {
                            (task, f"{origin}{VARIANT_OF}{name}"): replaced(
                                recipes[task, origin], arguments=variant.arguments, fields=variant.fields
                            )
                            for task in self._tasks
                        }
                        recipes |= changed
            results = self._confirm(recipes, trials)
            if with_budgets:
                list(threads.map(lambda pair: self._shorten(pair[0], pair[1], results[pair[0].workload]), pairs))
        return results

    def _tune(self, task: Task, name: str, num_trials: int) -> list[Trial]:
        def train(recipe: Recipe) -> Curve:
            config = task.config(recipe, seed=TUNING_SEED, num_evaluations=NUM_TUNING_EVALUATIONS)
            return self._trainers.start(config).result()

        def ended(trial: Trial) -> None:
            progress(f"{task.workload} {name} trial: {trial.curve.best:.4f} {trial.parameters}")

        return search(preset(name), num_trials=num_trials, seed=SEARCH_SEED, train=train, ended=ended)

    def _confirm(
        self, recipes: dict[tuple[Task, str], Recipe], trials: dict[tuple[Task, str], list[Trial]]
    ) -> dict[str, dict[str, Result]]:
        """Trains all recipes on all seeds, optimizers in turns."""
        runs = [(task, name, seed) for task in self._tasks for seed in self._seeds for t, name in recipes if t == task]
        started = {
            (task, name, seed): self._trainers_of(name).start(task.config(recipes[task, name], seed=seed))
            for task, name, seed in runs
        }
        results: dict[str, dict[str, Result]] = {}
        for (task, name), recipe in recipes.items():
            curves = [started[task, name, seed].result() for seed in self._seeds]
            result = Result(recipe, trials.get((task, name), []), curves)
            progress(f"{task.workload} {name} on other seeds: {', '.join(f'{c.best:.4f}' for c in curves)}")
            results.setdefault(task.workload, {})[name] = result
        return results

    def _trainers_of(self, name: str) -> Trainers | RankGroups:
        variant = VARIANTS.get(name.partition(VARIANT_OF)[2])
        if variant is None or variant.num_ranks == 1:
            return self._trainers
        assert self._groups is not None
        return self._groups

    def _shorten(self, task: Task, name: str, results: dict[str, Result]) -> None:
        """Finds the least budget by bisection, and keeps the runs it takes."""
        goal, result = results["adamw"].best, results[name]
        if result.best > goal:
            return

        def attains(budget: float) -> bool:
            runs = [self._trainers.start(task.config(result.recipe, seed=s, budget=budget)) for s in self._seeds]
            result.shorter[budget] = [run.result() for run in runs]
            median = statistics.median(curve.best for curve in result.shorter[budget])
            progress(f"{task.workload} {name} with {budget:g} of the steps: {median:.4f}, goal {goal:.4f}")
            return median <= goal

        # AdamW's answer is known but for a surprise.
        bisect(attains, first=NUM_BUDGETS - 1 if name == "adamw" else NUM_BUDGETS // 2)


def bisect(attains: Callable[[float], bool], *, first: int) -> None:
    """Asks for the budgets, multiples of 1 / `NUM_BUDGETS` below 1, that show the least one that attains."""
    too_few, enough, asked = 0, NUM_BUDGETS, first
    while enough - too_few > 1:
        if attains(asked / NUM_BUDGETS):
            enough = asked
        else:
            too_few = asked
        asked = (too_few + enough) // 2


def claims(tasks: Sequence[Task], results: dict[str, dict[str, Result]]) -> tuple[dict[str, float], list[str]]:
    """The ratios, and the names of those that are only lower bounds."""
    ratios: dict[str, float] = {}
    censored: list[str] = []
    for task in tasks:
        of_task = results[task.workload]
        adamw = of_task["adamw"]
        goal = adamw.best
        after_end = 1 + 1 / task.num_evaluations
        for name, result in of_task.items():
            if name.partition(VARIANT_OF)[0] == "adamw":
                continue
            whole_run = statistics.median(curve.seconds[-1] if curve.seconds else math.inf for curve in result.curves)
            figures = {
                "steps": (result.steps_to(goal), after_end * task.num_steps, adamw.steps_to(goal)),
                "seconds": (result.seconds_to(goal), after_end * whole_run, adamw.seconds_to(goal)),
            }
            if adamw.shorter and VARIANT_OF not in name:
                figures["budget"] = (result.budget_to(goal), 1 + 1 / NUM_BUDGETS, adamw.budget_to(goal))
            for what, (value, bound, of_adamw) in figures.items():
                claim = f"{what}_over_adamw.{name}.{task.workload}"
                if math.isinf(value):
                    censored.append(claim)
                ratios[claim] = min(value, bound) / of_adamw
            ratios[f"loss_over_adamw.{name}.{task.workload}"] = result.best / goal
            origin, _, variant = name.partition(VARIANT_OF)
            if variant:
                ratios[f"loss_over_plain.{variant}.{origin}.{task.workload}"] = result.best / of_task[origin].best
        for name in (name for name in of_task if name.startswith(f"adamw{VARIANT_OF}")):
            ratios[f"loss_over_plain.{name.partition('-')[2]}.adamw.{task.workload}"] = of_task[name].best / goal
    return {name: value for name, value in ratios.items() if math.isfinite(value)}, censored


def table(results: dict[str, dict[str, Result]]) -> tuple[list[str], list[list[Cell]]]:
    """Column heads and rows, one for each workload and optimizer."""
    columns = ["workload", "optimizer", "final loss", "best loss", "steps to goal", "s to goal", "budget", "ms/step"]
    rows: list[list[Cell]] = []
    for workload, of_workload in results.items():
        goal = of_workload["adamw"].best
        for name, result in of_workload.items():
            losses = [f"{result.final:.4f}", f"{result.best:.4f}"]
            budget: Cell = result.budget_to(goal) if result.shorter else "-"
            reached = ["never" if math.isinf(x) else x for x in (result.steps_to(goal), result.seconds_to(goal))]
            rows.append([workload, name, *losses, *reached, budget, result.milliseconds_per_step])
    return columns, rows


def details(result: Result) -> dict[str, Any]:
    """Everything measured of one optimizer on one workload, JSON-able: losses of diverged runs are None."""

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "optimizer": {"name": result.recipe.optimizer.name, "arguments": dict(result.recipe.optimizer.arguments)},
        "warmup_fraction": result.recipe.schedule.warmup_fraction,
        "best_loss": finite(result.best),
        "final_loss": finite(result.final),
        "milliseconds_per_step": finite(result.milliseconds_per_step),
        "trials": [{"parameters": t.parameters, "best_loss": finite(t.curve.best)} for t in result.trials],
        "curves": [{"steps": c.steps, "seconds": c.seconds, "losses": c.losses} for c in result.curves],
        "best_loss_by_budget": {
            f"{budget:g}": [finite(curve.best) for curve in curves] for budget, curves in sorted(result.shorter.items())
        },
    }


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workloads", nargs="+", choices=(*WORKLOADS, ADAPTERS), default=list(WORKLOADS))
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(TUNED[1:]), help="beside adamw")
    parser.add_argument(
        "--trials", type=int, default=12, help="trials of each optimizer on each workload (default: 12)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="on which the best trial is confirmed (default: 3)")
    parser.add_argument("--evaluations", type=int, default=50, help="measurements in each run (default: 50)")
    parser.add_argument("--steps", type=int, help="steps of each run; default: the workload's")
    parser.add_argument("--size", choices=("tiny", "small"), default="tiny", help="size of every model (default: tiny)")
    parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=["int4"], help="default: int4")
    parser.add_argument("--no-budgets", action="store_true", help="leave budget_over_adamw out")
    parser.add_argument("--processes", type=int, default=2, help="runs at once, of one thread each (default: 2)")
    parser.add_argument("--log", type=Path, help="a line of JSON for each run, as soon as it is there")
    parser.add_argument("--quick", action="store_true", help="3 trials and 1 seed of 20 steps")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    if options.quick:
        options.trials, options.seeds, options.steps, options.evaluations = 3, 1, 20, 10
    for name in ("trials", "seeds", "evaluations", "steps", "processes"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be at least 1, got {value}")
    if "lora-rite" in options.optimizers and options.workloads != [ADAPTERS]:
        parser.error(f"--optimizers lora-rite trains adapters alone: --workloads {ADAPTERS}")
    seeds = [TUNING_SEED + number for number in range(1, options.seeds + 1)]
    num_ranks = max((VARIANTS[name].num_ranks for name in options.variants), default=1)
    log = None if options.log is None else RunLog(options.log)
    with ExitStack() as open_until_the_end:
        tasks = []
        for name in options.workloads:
            workload, given = name, {}
            if name == ADAPTERS:
                directory = open_until_the_end.enter_context(tempfile.TemporaryDirectory())
                progress("training the model whose adapters are compared")
                workload, given = WORKLOAD_OF_ADAPTERS, adapters_to_train(Path(directory))
            num_steps = options.steps or describe(workload).default_num_steps
            tasks.append(Task(workload, num_steps, options.evaluations, options.size, given))
        trainers = open_until_the_end.enter_context(Trainers(options.processes, log=log))
        groups = None
        if num_ranks > 1:
            num_groups = max(1, options.processes // num_ranks)
            groups = open_until_the_end.enter_context(RankGroups(num_groups, num_ranks))
        tuned = ("adamw", *options.optimizers)
        comparison = Comparison(tasks, tuned, trainers, seeds, variants=options.variants, groups=groups)
        results = comparison.run(num_trials=options.trials, with_budgets=not options.no_budgets)
    columns, rows = table(results)
    ratios, censored = claims(tasks, results)
    report(
        "convergence",
        columns=columns,
        rows=rows,
        figures={
            "workloads": {
                workload: {name: details(result) for name, result in of_workload.items()}
                for workload, of_workload in results.items()
            },
            "censored": censored,
            "num_trials": options.trials,
            "size": options.size,
            "seeds": seeds,
            "num_steps": {task.workload: task.num_steps for task in tasks},
            "num_processes": options.processes,
        },
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
