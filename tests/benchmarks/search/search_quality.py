"""How good search policies are: their regret after so many full trainings, simulated on learning curves.

    python -m tests.benchmarks.search.search_quality --objective tests.benchmarks.search.curve_tables:digits_convnet \\
        --space tests/benchmarks/data/digits-convnet.space.json --direction min --policies auto,tpe,gp,asha,random

The objective is any function `config: dict -> list of values`, one value per unit of training; a curve that is shorter
than others, or not finite somewhere, diverged there. Policies run in a virtual clock with asynchronous workers
(`search_simulation`). The regret is (best - incumbent) / (best - median), where best and median are of a large random
sample's final values and the incumbent is the best final value among trials trained to the end in time: 1 is the median
config or nothing at all, 0 the best of the sample, below 0 better than that.

All policies start without defaults or pinned configs, but for what `--prior` gives the `auto` search: `tables` are
the members of the shipped table that are of another workload than the objective's, moved to its model by the scaling
rules; `store` are the recommendations in a service's database (`--database`), without those of that workload. Both need
the objective's model: that of the shipped curve tables is known, another one's is in `--fingerprint FILE --batch-size
--num-steps`. `misleading` are configs that are far from good for the objective. Each pruner judges at 2 units first.
`pbt` is not among them: its
trials go on from each other's weights with other hyperparameters, and a curve for each config does not tell where that
leads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces import SearchSpace
from service.domain import Direction
from tests.benchmarks.report import print_table, report
from tests.benchmarks.search.priors import PRIORS, known_configs, target_of
from tests.benchmarks.search.search_policies import POLICIES, auto
from tests.benchmarks.search.search_simulation import Objective, Problem, simulate

DIRECTIONS = {
    "max": Direction.MAXIMIZE,
    "maximize": Direction.MAXIMIZE,
    "min": Direction.MINIMIZE,
    "minimize": Direction.MINIMIZE,
}


def load_objective(reference: str) -> Objective:
    """The function that `module:function` names.

    Raises:
        ValueError: it is not of that form, or the module has no such function.
    """
    module_name, _, name = reference.partition(":")
    function: Callable[..., Any] | None = getattr(importlib.import_module(module_name), name or "-", None)
    if not callable(function):
        raise ValueError(f"--objective must be module:function, got {reference!r}")
    return function


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _policies(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown policy {unknown[0]!r} (known: {', '.join(POLICIES)})")
    return names


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objective", required=True, help="module:function, config: dict -> list of values")
    parser.add_argument("--space", required=True, type=Path, help="a search space as JSON")
    parser.add_argument("--direction", required=True, choices=DIRECTIONS)
    parser.add_argument("--budgets", type=_numbers, default=[5.0, 10.0, 20.0, 50.0], help="in full trainings")
    parser.add_argument("--seeds", type=int, default=10, help="how many searches each policy runs")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=_numbers, default=[1.0], help="numbers of workers, e.g. 1,4")
    parser.add_argument("--measure-every", type=int, default=1, help="units between the measurements of a training")
    parser.add_argument("--policies", type=_policies, default=_policies("auto,tpe,gp,asha,random"), help="names")
    parser.add_argument("--prior", choices=PRIORS, default="none", help="what the auto search knows before")
    parser.add_argument(
        "--fingerprint", type=Path, help="fingerprint of the objective's model, by `shampoo-tuner fingerprint`"
    )
    parser.add_argument("--batch-size", type=int, help="batch size of the objective's training")
    parser.add_argument("--num-steps", type=int, help="steps of the objective's training")
    parser.add_argument("--database", help="database of the service whose recommendations are the prior, as a URL")
    parser.add_argument("--sample", type=int, default=2000, help="random configs that give best and median")
    parser.add_argument("--json", type=Path, help="file for the result")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Runs the benchmark."""
    given = parse(arguments)
    space = SearchSpace.from_json(json.loads(given.space.read_text()))
    problem = Problem.sampled(
        load_objective(given.objective), space, DIRECTIONS[given.direction], num_configs=given.sample
    )
    known = known_configs(
        given.prior,
        problem,
        target_of(given.objective, given.fingerprint, given.batch_size, given.num_steps),
        database_url=given.database,
    )
    print(
        f"{given.objective}: {problem.num_units} units, best {problem.best:.5g}, median {problem.median:.5g}, "
        f"{problem.diverged_share:.1%} diverge"
    )
    print(f"prior {given.prior}: {len(known)} configs\n")
    figures: dict[str, Any] = {
        "objective": given.objective,
        "num_seeds": given.seeds,
        "budgets": given.budgets,
        "prior": given.prior,
        "num_known": len(known),
    }
    ratios: dict[str, float] = {}
    rows: list[list[str | int | float]] = []
    heads = [f"regret at {budget:g}" for budget in given.budgets]
    columns = ["policy", "workers", *heads, "seconds a search"]
    for num_workers in map(int, given.workers):
        means: dict[str, list[float]] = {}
        for name in given.policies:
            begun = time.perf_counter()
            regrets = np.array(
                [
                    simulate(
                        auto(problem, seed, known=known) if name == "auto" else POLICIES[name](problem, seed),
                        problem,
                        num_workers=num_workers,
                        budgets=given.budgets,
                        measure_every=given.measure_every,
                    )
                    for seed in range(given.first_seed, given.first_seed + given.seeds)
                ]
            )
            seconds = (time.perf_counter() - begun) / given.seeds
            means[name] = [float(mean) for mean in regrets.mean(axis=0)]
            errors = regrets.std(axis=0, ddof=1) / math.sqrt(given.seeds) if given.seeds > 1 else 0 * regrets[0]
            cells = [f"{mean:.3f} ±{error:.3f}" for mean, error in zip(means[name], errors, strict=True)]
            rows.append([name, num_workers, *cells, seconds])
            figures[f"{name}_{num_workers}_workers"] = {
                "mean_regret": means[name],
                "standard_error": [float(error) for error in errors],
                "median_regret": [float(median) for median in np.median(regrets, axis=0)],
                "seconds_a_search": seconds,
            }
            print_table(columns, rows[-1:])
        others = [means[name] for name in means if name != "auto"]
        if "auto" in means and others:
            for index, budget in enumerate(given.budgets):
                best = min(other[index] for other in others)
                if best > 0:
                    ratios[f"auto_over_best_other_at_{budget:g}_{num_workers}_workers"] = means["auto"][index] / best
    report("search_quality", columns=columns, rows=rows, figures=figures, ratios=ratios, json_file=given.json)


if __name__ == "__main__":
    main()
