"""How good search policies are: their regret after so many full trainings, simulated on learning curves.

    python -m tests.benchmarks.search.search_quality --objective tests.benchmarks.search.curve_tables:digits_convnet \\
        --space tests/benchmarks/data/digits-convnet.space.json --direction min --policies auto,tpe,gp,asha,random
    python -m tests.benchmarks.search.search_quality --families all --policies auto,asha --first-seed 100

The objective is any function `config: dict -> list of values`, one value per unit of training; a curve that is shorter
than others, or not finite somewhere, diverged there. In place of one objective, `--families plain,loss` takes synthetic
tasks (`curve_families`): the search with seed 7 has the task that 7 draws, and all families together are compared, too.
Policies run in a virtual clock with asynchronous workers (`search_simulation`). The regret is (best - incumbent) /
(best - median), where best and median are of a large random sample's final values and the incumbent is the best final
value among trials trained to the end in time: 1 is the median config or nothing at all, 0 the best of the sample, below
0 better than that.

The first policy is compared with each other one in pairs, task by task and seed by seed: the ratio of their mean
regrets and the difference, with standard errors. `--against FILE` compares each policy in the same way with what an
earlier run, perhaps of other code, wrote by `--json FILE` with the same tasks and seeds.

All policies start with the defaults of the space's branches, as jobs do, and know no other configs, but for what
`--prior` gives the `auto` search: `tables` are the members of the shipped table that are of another workload than the
objective's, moved to its model by the scaling rules; `store` are the recommendations in a service's database
(`--database`), without those of that workload. Both need the objective's model: that of the shipped curve tables is
known, another one's is in `--fingerprint FILE --batch-size --num-steps`. Beside them, `auto` expects the length scales
of tables of other workloads. `misleading` are configs that are far from
good for the objective. Each pruner judges at 2 units first. `pbt` is not among them: its trials go on from each other's
weights with other hyperparameters, and a curve for each config does not tell where that leads.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces import SearchSpace
from service.domain import Direction
from service.scheduler.policy.searching.search_prior import LENGTHS_IN_TABLES, KnownConfig
from tests.benchmarks.report import print_table, report
from tests.benchmarks.search.curve_families import FAMILIES, Family, task
from tests.benchmarks.search.paired import Array, Earlier, Paired, standard_error
from tests.benchmarks.search.priors import PRIORS, known_configs, lengths_without, target_of
from tests.benchmarks.search.search_policies import POLICIES, auto
from tests.benchmarks.search.search_simulation import Objective, Problem, simulate

DIRECTIONS = {
    "max": Direction.MAXIMIZE,
    "maximize": Direction.MAXIMIZE,
    "min": Direction.MINIMIZE,
    "minimize": Direction.MINIMIZE,
}
ALL = "all"
"""The name of all families: where they are chosen, and of their searches taken together."""


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


def _names(text: str, known: Sequence[str], what: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown {what} {unknown[0]!r} (known: {', '.join(known)})")
    return names


def _policies(text: str) -> list[str]:
    return _names(text, list(POLICIES), "policy")


def _families(text: str) -> list[str]:
    return list(FAMILIES) if text == ALL else _names(text, FAMILIES, "family")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    searched = parser.add_mutually_exclusive_group(required=True)
    searched.add_argument("--objective", help="module:function, config: dict -> list of values")
    searched.add_argument("--families", type=_families, help=f"synthetic tasks: {ALL}, or some of {','.join(FAMILIES)}")
    parser.add_argument("--space", type=Path, help="the objective's search space as JSON")
    parser.add_argument("--direction", choices=DIRECTIONS, help="in which the objective is better")
    parser.add_argument("--budgets", type=_numbers, default=[5.0, 10.0, 20.0, 50.0], help="in full trainings")
    parser.add_argument("--seeds", type=int, default=10, help="how many searches each policy runs")
    parser.add_argument("--first-seed", type=int, default=0, help="the others follow it")
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
    parser.add_argument("--against", type=Path, help="file of an earlier run with the same tasks and seeds")
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args(arguments)
    if (given.objective is None) != (given.space is None) or (given.objective is None) != (given.direction is None):
        parser.error("--objective needs --space and --direction, and --families have their own")
    return given


@dataclass(frozen=True, slots=True)
class Search:
    """A search that each policy runs."""

    seed: int
    problem: Problem
    known: Sequence[KnownConfig]
    lengths: Mapping[str, float]
    """Length scales that `auto` expects beside known configs."""


def _tasks(given: argparse.Namespace, seeds: Sequence[int]) -> Iterator[tuple[str, list[Search]]]:
    """The objective, or each family, by name with the searches there; prints what they are."""
    if given.objective is not None:
        space = SearchSpace.from_json(json.loads(given.space.read_text()))
        problem = Problem.sampled(
            load_objective(given.objective), space, DIRECTIONS[given.direction], num_configs=given.sample
        )
        target = target_of(given.objective, given.fingerprint, given.batch_size, given.num_steps)
        known = known_configs(given.prior, problem, target, database_url=given.database)
        print(
            f"{given.objective}: {problem.num_units} units, best {problem.best:.5g}, median {problem.median:.5g}, "
            f"{problem.diverged_share:.1%} diverge\nprior {given.prior}: {len(known)} configs\n"
        )
        lengths = lengths_without(target.workload if known and target is not None else None)
        yield "", [Search(seed, problem, known, lengths) for seed in seeds]
        return
    for family in given.families:
        searches = [_synthetic(family, seed, given) for seed in seeds]
        problems = [search.problem for search in searches]
        diverged = float(np.mean([problem.diverged_share for problem in problems]))
        print(f"{family}: {len(problems)} tasks, {problems[0].num_units} units, {diverged:.1%} diverge\n")
        yield family, searches


def _synthetic(family: Family, seed: int, given: argparse.Namespace) -> Search:
    drawn = task(family, seed)
    problem = Problem.sampled(drawn.objective, drawn.space, Direction.MAXIMIZE, num_configs=given.sample)
    target = target_of(f"{family}:{seed}", given.fingerprint, given.batch_size, given.num_steps)
    known = known_configs(given.prior, problem, target, database_url=given.database)
    return Search(seed, problem, known, LENGTHS_IN_TABLES)


def _regrets(searches: Sequence[Search], policy: str, num_workers: int, given: argparse.Namespace) -> Array:
    """(searches, budgets)."""
    return np.array(
        [
            simulate(
                auto(search.problem, search.seed, known=search.known, lengths=search.lengths)
                if policy == "auto"
                else POLICIES[policy](search.problem, search.seed),
                search.problem,
                num_workers=num_workers,
                budgets=given.budgets,
                measure_every=given.measure_every,
            )
            for search in searches
        ]
    )


def _task_names(given: argparse.Namespace) -> list[str]:
    """The objective needs no name; several families have all together as one more."""
    if given.families is None:
        return [""]
    return [*given.families, *([ALL] if len(given.families) > 1 else [])]


def _name(task_name: str, policy: str, num_workers: int) -> str:
    """The name under which the figures have a policy on a task."""
    return "_".join([*filter(None, [task_name]), policy, str(num_workers), "workers"])


def _figures(regrets: Array, seconds: float) -> dict[str, Any]:
    return {
        "mean_regret": regrets.mean(axis=0).tolist(),
        "standard_error": np.apply_along_axis(standard_error, 0, regrets).tolist(),
        "median_regret": np.median(regrets, axis=0).tolist(),
        "regrets": regrets.tolist(),
        "seconds_a_search": seconds,
    }


def _paired_rows(
    found: Mapping[tuple[str, int, str], Array], earlier: Earlier | None
) -> Iterator[list[str | int | float]]:
    """The first policy over each other one, and each policy over the earlier run, by task and number of workers."""
    firsts: dict[tuple[str, int], str] = {}
    for (task_name, num_workers, policy), regrets in found.items():
        first = firsts.setdefault((task_name, num_workers), policy)
        others = {}
        if policy != first:
            others[f"{first} over {policy}"] = (found[task_name, num_workers, first], regrets)
        if earlier is not None:
            others[f"{policy} over earlier"] = (regrets, earlier.regrets[_name(task_name, policy, num_workers)])
        for title, (own, other) in others.items():
            compared = [Paired.of(*columns) for columns in zip(own.T, other.T, strict=True)]
            cells: list[str] = []
            for pair in compared:
                cells.append(f"{pair.ratio:.2f} ±{pair.ratio_error:.2f}")
                cells.append(f"{pair.difference:.3f} ±{pair.difference_error:.3f}")
            yield [" ".join([*filter(None, [task_name]), title]), num_workers, *cells]


def main(arguments: list[str] | None = None) -> None:
    """Runs the benchmark."""
    given = parse(arguments)
    seeds = list(range(given.first_seed, given.first_seed + given.seeds))
    figures: dict[str, Any] = {
        "objective": given.objective or f"families {','.join(given.families)}",
        "seeds": seeds,
        "budgets": given.budgets,
        "prior": given.prior,
    }
    names = [
        _name(task_name, policy, int(num_workers))
        for task_name in _task_names(given)
        for num_workers in given.workers
        for policy in given.policies
    ]
    earlier = None if given.against is None else Earlier.read(given.against, seeds, given.budgets, names)
    rows: list[list[str | int | float]] = []
    columns = ["policy", "workers", *(f"regret at {budget:g}" for budget in given.budgets), "seconds a search"]
    found: dict[tuple[str, int, str], Array] = {}
    """(searches, budgets) by task, workers and policy."""

    def note(task_name: str, num_workers: int, policy: str, regrets: Array, seconds: float) -> None:
        found[task_name, num_workers, policy] = regrets
        noted = figures[_name(task_name, policy, num_workers)] = _figures(regrets, seconds)
        cells = zip(noted["mean_regret"], noted["standard_error"], strict=True)
        title = " ".join(filter(None, [task_name, policy]))
        rows.append([title, num_workers, *(f"{mean:.3f} ±{error:.3f}" for mean, error in cells), seconds])
        print_table(columns, rows[-1:])

    for task_name, searches in _tasks(given, seeds):
        figures[f"{task_name}_num_known" if task_name else "num_known"] = max(len(search.known) for search in searches)
        for num_workers in map(int, given.workers):
            for policy in given.policies:
                begun = time.perf_counter()
                regrets = _regrets(searches, policy, num_workers, given)
                note(task_name, num_workers, policy, regrets, (time.perf_counter() - begun) / len(searches))
    if len(given.families or ()) > 1:
        for num_workers in map(int, given.workers):
            for policy in given.policies:
                of_families = [found[family, num_workers, policy] for family in given.families]
                seconds = [figures[_name(family, policy, num_workers)]["seconds_a_search"] for family in given.families]
                note(ALL, num_workers, policy, np.concatenate(of_families), float(np.mean(seconds)))
    pairs = list(_paired_rows(found, earlier))
    if pairs:
        heads = [head for budget in given.budgets for head in (f"ratio at {budget:g}", "difference")]
        print_table(["regret, in pairs", "workers", *heads], pairs)
    report(
        "search_quality",
        columns=columns,
        rows=rows,
        figures=figures,
        ratios=_ratios(found, given.budgets),
        json_file=given.json,
    )


def _ratios(found: Mapping[tuple[str, int, str], Array], budgets: Sequence[float]) -> dict[str, float]:
    """`auto` over the best of the others at each budget."""
    ratios: dict[str, float] = {}
    for (task_name, num_workers, policy), regrets in found.items():
        others = [
            other.mean(axis=0)
            for (of_task, workers, name), other in found.items()
            if (of_task, workers) == (task_name, num_workers) and name != "auto"
        ]
        if policy == "auto" and others:
            for budget, own, best in zip(budgets, regrets.mean(axis=0), np.min(others, axis=0), strict=True):
                if best > 0:
                    claim = f"auto_over_best_other_at_{budget:g}_{num_workers}_workers"
                    ratios["_".join(filter(None, [task_name, claim]))] = float(own / best)
    return ratios


if __name__ == "__main__":
    main()
