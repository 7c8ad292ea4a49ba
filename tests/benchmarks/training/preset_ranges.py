"""The worth of a preset's ranges: paired searches in the ranges that stand and in others.

    python -m tests.benchmarks.training.preset_ranges --preset shampoo --other "lr=1e-4:3e-2" "betas[0]=0.85:0.99"
    python -m tests.benchmarks.training.preset_ranges --preset adamw --other "betas[0]=0.5:0.98" \\
      --workloads digits-mlp --trials 24 --seeds 3 --log adamw.jsonl
    python -m tests.benchmarks.training.preset_ranges --workloads digits-mlp click-log --steps 100 \\
      --options '{"click-log": {"path": "clicks.tsv", "validation_share": 0.2}}'
    python -m tests.benchmarks.training.preset_ranges --quick           # to see that it works: no figures to quote

For each workload and seed, the service's sampler (TPE, after the preset's defaults for so many steps) tries `--trials`
choices in the preset's ranges, and as many in those with `--other` in their place: same seed of the sampler, of the
model and of the data, one thread, one trial after the other. A parameter of `--other` that the preset does not search
is added as the preset `shampoo` has it. Both winners (the least validation loss at a trial's end) are trained again on
`--repeats` new seeds, the same for both, and the mean of those losses is what counts: luck does not.

    other_over_ours.W     geometric mean over the pairs of the loss with the other ranges over that with the preset's:
                          above 1 the preset's are better
    other_over_ours.all   the same over all pairs of all workloads, if there are several
    edges.W               share of the preset's winners' values that lie within `--edge` of an edge of their range (a
                          share of the range on its scale), by parameter

The interval in the table is Student's t of the logarithms over the pairs, 95%: three make it wide.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from search_spaces import Categorical, Float, Integer, Parameter, Scalar, SearchSpace, preset
from service.evidence.comparison.student_t import quantile
from tests.benchmarks.report import Cell, report
from tests.benchmarks.training.training_runs import Curve, Recipe, Task, curve
from tests.benchmarks.training.tuning import Trial, recipe, search
from trainers.workloads.registry import describe

EDGE = 0.05
"""Share of a range, on its scale, that counts as its edge."""
ALL = "all"
NUM_EVALUATIONS = 4
WORKLOADS = ("digits-mlp", "digits-autoencoder", "digits-convnet", "stdlib-gpt")


@dataclass(frozen=True, slots=True)
class Found:
    """The winner of one search."""

    parameters: Mapping[str, Scalar]
    value: float
    """Mean validation loss over the new seeds; infinite if one diverged."""


Pair: TypeAlias = tuple[Found, Found]
"""The winner in the preset's ranges, and the one in the others."""


def with_ranges(space: SearchSpace, ranges: Mapping[str, tuple[float, float]]) -> SearchSpace:
    """The space with other ranges of some parameters; defaults are moved into them. A parameter that the space does not
    search is added as the preset `shampoo` has it.

    Raises:
        ValueError: neither searches such a number.
    """
    known = {parameter.name for parameter in space.parameters}
    added = [one for one in preset("shampoo").parameters if one.name in ranges.keys() - known]
    parameters = (*space.parameters, *added)
    numbers = {parameter.name for parameter in parameters if not isinstance(parameter, Categorical)}
    if unknown := ranges.keys() - numbers:
        raise ValueError(f"the preset searches no {', '.join(sorted(unknown))}")
    return SearchSpace(space.optimizer, tuple(_with_range(p, ranges.get(p.name)) for p in parameters), space.fixed)


def _with_range(parameter: Parameter, bounds: tuple[float, float] | None) -> Parameter:
    if bounds is None or isinstance(parameter, Categorical):
        return parameter
    low, high = bounds
    assert parameter.default is not None
    inside = min(max(parameter.default, low), high)
    if isinstance(parameter, Integer):
        return dataclasses.replace(parameter, low=round(low), high=round(high), default=round(inside))
    return dataclasses.replace(parameter, low=low, high=high, default=inside)


def at_edges(space: SearchSpace, parameters: Mapping[str, Scalar], *, share: float = EDGE) -> list[str]:
    """The parameters whose value lies at an edge of its range, with the edge: `lr high`."""
    found = []
    for parameter in space.active(parameters):
        value = parameters[parameter.name]
        if isinstance(parameter, Float | Integer) and isinstance(value, int | float) and parameter.low < parameter.high:
            low, high = parameter.to_unit(parameter.low), parameter.to_unit(parameter.high)
            position = (parameter.to_unit(value) - low) / (high - low)
            if position <= share or position >= 1 - share:
                found.append(f"{parameter.name} {'low' if position <= share else 'high'}")
    return found


class Searches:
    """Searches of one workload, at one number of steps."""

    def __init__(self, task: Task, *, num_trials: int, num_repeats: int) -> None:
        self._task, self._num_trials, self._num_repeats = task, num_trials, num_repeats

    def winner(self, space: SearchSpace, *, seed: int) -> Found:
        """The best of a search, trained again on new seeds."""

        def train(chosen: Recipe) -> Curve:
            return self._train(chosen, seed=seed)

        def ended(trial: Trial) -> None:
            del trial

        trials = search(space, num_trials=self._num_trials, seed=f"ranges/{seed}", train=train, ended=ended)
        best = min(trials, key=lambda trial: trial.curve.final)
        chosen = recipe(space, best.parameters)
        new = [1000 + seed * self._num_repeats + index for index in range(self._num_repeats)]
        value = statistics.fmean(self._train(chosen, seed=one).final for one in new)
        return Found(best.parameters, value)

    def _train(self, chosen: Recipe, *, seed: int) -> Curve:
        return curve(self._task.config(chosen, seed=seed))


def logarithm(ours: float, other: float) -> float:
    """The logarithm of other over ours; who diverged on a new seed counts as ten times the other one."""
    if math.isfinite(ours) and math.isfinite(other):
        return math.log(other / ours)
    return math.log(10) * (math.isfinite(ours) - math.isfinite(other))


def interval(logarithms: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean and its 95% interval."""
    mean = statistics.fmean(logarithms)
    if len(logarithms) < 2:
        return math.exp(mean), 0.0, math.inf
    half = quantile(0.975, len(logarithms) - 1) * statistics.stdev(logarithms) / len(logarithms) ** 0.5
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def ranges_of(texts: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Ranges by name from `NAME=LOW:HIGH`."""
    found = {}
    for text in texts:
        name, _, bounds = text.partition("=")
        low, _, high = bounds.partition(":")
        found[name] = (float(low), float(high))
    return found


def spaces_of(given: argparse.Namespace, num_steps: int) -> tuple[SearchSpace, SearchSpace]:
    """The preset for trainings of so many steps, and the same with the other ranges."""
    ours = preset(given.preset, num_steps=num_steps)
    return ours, with_ranges(ours, ranges_of(given.other))


def pair_of(given: argparse.Namespace, workload: str, *, seed: int) -> Pair:
    """The winners on one workload with one seed."""
    num_steps = given.steps or describe(workload).default_num_steps
    options = given.options.get(workload, {})
    task = Task(workload, num_steps=num_steps, num_evaluations=NUM_EVALUATIONS, options=options)
    searches = Searches(task, num_trials=given.trials, num_repeats=given.repeats)
    ours, other = spaces_of(given, num_steps)
    of = {
        "preset": given.preset,
        "workload": workload,
        "options": options,
        "steps": num_steps,
        "trials": given.trials,
        "repeats": given.repeats,
        "seed": seed,
    }
    return (
        _winner(searches, ours, {**of, "other": []}, given.log),
        _winner(searches, other, {**of, "other": given.other}, given.log),
    )


def _winner(searches: Searches, space: SearchSpace, of: Mapping[str, Any], log: Path | None) -> Found:
    """The winner of one search; logged as soon as it is there, and not searched again if the log has it."""
    if (known := logged(log, of)) is not None:
        return known
    found = searches.winner(space, seed=of["seed"])
    text = json.dumps({"of": of, "winner": dataclasses.asdict(found)})
    print(text, file=sys.stderr)
    if log is not None:
        with log.open("a") as file:
            file.write(text + "\n")
    return found


def logged(path: Path | None, of: Mapping[str, Any]) -> Found | None:
    """The winner that a log has of a search with these settings, if any."""
    if path is None or not path.exists():
        return None
    for line in map(json.loads, path.read_text().splitlines()):
        if line["of"] == of:
            return Found(**line["winner"])
    return None


def main() -> None:
    """Runs the searches that the command line asks for."""
    parser = argparse.ArgumentParser(description="Paired searches in a preset's ranges and in others.")
    parser.add_argument("--preset", default="shampoo")
    parser.add_argument("--other", nargs="+", default=["lr=1e-4:3e-2"], metavar="NAME=LOW:HIGH")
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument(
        "--options", type=json.loads, default={}, metavar="JSON", help="options of the workloads, by name"
    )
    parser.add_argument("--trials", type=int, default=24, help="trials of each search")
    parser.add_argument("--seeds", type=int, default=3, help="pairs of searches per workload")
    parser.add_argument("--repeats", type=int, default=2, help="new seeds that a winner is trained again on")
    parser.add_argument("--steps", type=int, help="steps of each trial; the workload's default if not given")
    parser.add_argument("--edge", type=float, default=EDGE, help="share of a range that counts as its edge")
    parser.add_argument(
        "--log",
        type=Path,
        help="a line of JSON for each winner, as soon as it is there; runs go on from it, also those of other ranges",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.workloads, given.trials, given.seeds, given.repeats, given.steps = ["digits-mlp"], 3, 1, 1, 10
    torch.set_num_threads(1)
    pairs: dict[str, list[Pair]] = {workload: [] for workload in given.workloads}
    for seed in range(given.seeds):
        for workload, found in pairs.items():
            found.append(pair_of(given, workload, seed=seed))
    if len(pairs) > 1:
        pairs[ALL] = [pair for found in list(pairs.values()) for pair in found]
    spaces = spaces_of(given, given.steps or 1)  # Their ranges are those of any number of steps.
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    edges: dict[str, dict[str, float]] = {}
    for workload, found in pairs.items():
        mean, low, high = interval([logarithm(mine.value, theirs.value) for mine, theirs in found])
        counts = [
            Counter(edge for pair in found for edge in at_edges(spaces[side], pair[side].parameters, share=given.edge))
            for side in (0, 1)
        ]
        shown = ["; ".join(f"{edge} {count}/{len(found)}" for edge, count in sorted(c.items())) or "-" for c in counts]
        ratios[f"other_over_ours.{workload}"] = mean
        edges[workload] = {edge: count / len(found) for edge, count in sorted(counts[0].items())}
        losses: list[Cell] = [statistics.fmean(pair[side].value for pair in found) for side in (0, 1)]
        rows.append(
            [workload, *(("", "") if workload == ALL else losses), f"{mean:.3f}", f"{low:.3f}..{high:.3f}", *shown]
        )
    report(
        "preset_ranges",
        columns=["workload", "loss", "other's", "other/ours", "95%", "edges", "other's edges"],
        rows=rows,
        figures={"settings": {k: v for k, v in vars(given).items() if k not in ("log", "json")}, "edges": edges},
        ratios=ratios,
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
