"""The worth of a preset's ranges: paired searches in the ranges that stand and in others.

    python -m tests.benchmarks.training.preset_ranges --preset shampoo --other "lr=1e-4:3e-2" "betas[0]=0.85:0.99"
    python -m tests.benchmarks.training.preset_ranges --preset adamw --other "betas[0]=0.5:0.98" \\
      --workloads digits-mlp --trials 24 --seeds 3 --log adamw.jsonl
    python -m tests.benchmarks.training.preset_ranges --workloads click-log \\
      --options '{"path": "clicks.tsv", "validation_share": 0.2}'
    python -m tests.benchmarks.training.preset_ranges --quick           # to see that it works: no figures to quote

For each workload and seed, the service's sampler (TPE, after the preset's defaults) tries `--trials` choices in the
preset's ranges, and as many in those with `--other` in their place: same seed of the sampler, of the model and of the
data, one thread, one trial after the other. Both winners (the least validation loss at a trial's end) are trained
again on `--repeats` new seeds, the same for both, and the mean of those losses is what counts: luck does not.

    other_over_ours.W     geometric mean over the seeds of the loss with the other ranges over that with the preset's:
                          above 1 the preset's are better
    edges.W               share of the preset's winners' values that lie within 5% of an edge of their range (on its
                          scale), by parameter

The interval in the table is Student's t of the logarithms over the seeds, 95%: three seeds make it wide.
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
NUM_EVALUATIONS = 4
WORKLOADS = ("digits-mlp", "digits-autoencoder", "digits-convnet", "stdlib-gpt")


@dataclass(frozen=True, slots=True)
class Found:
    """The winner of one search."""

    parameters: Mapping[str, Scalar]
    value: float
    """Mean validation loss over the new seeds; infinite if one diverged."""


Pair: TypeAlias = tuple[Found, Found]
"""In the preset's ranges, and in the others."""


def with_ranges(space: SearchSpace, ranges: Mapping[str, tuple[float, float]]) -> SearchSpace:
    """The space with other ranges of some parameters; defaults are moved into them.

    Raises:
        ValueError: the space searches no such number.
    """
    known = {parameter.name for parameter in space.parameters if not isinstance(parameter, Categorical)}
    if unknown := ranges.keys() - known:
        raise ValueError(f"the preset searches no {', '.join(sorted(unknown))}")
    return SearchSpace(
        space.optimizer, tuple(_with_range(p, ranges.get(p.name)) for p in space.parameters), space.fixed
    )


def _with_range(parameter: Parameter, bounds: tuple[float, float] | None) -> Parameter:
    if bounds is None or isinstance(parameter, Categorical):
        return parameter
    low, high = bounds
    assert parameter.default is not None
    inside = min(max(parameter.default, low), high)
    if isinstance(parameter, Integer):
        return dataclasses.replace(parameter, low=round(low), high=round(high), default=round(inside))
    return dataclasses.replace(parameter, low=low, high=high, default=inside)


def at_edges(space: SearchSpace, parameters: Mapping[str, Scalar]) -> list[str]:
    """The parameters whose value lies at an edge of its range, with the edge: `lr high`."""
    found = []
    for parameter in space.active(parameters):
        value = parameters[parameter.name]
        if isinstance(parameter, Float | Integer) and isinstance(value, int | float) and parameter.low < parameter.high:
            low, high = parameter.to_unit(parameter.low), parameter.to_unit(parameter.high)  # type: ignore[arg-type]
            position = (parameter.to_unit(value) - low) / (high - low)  # type: ignore[arg-type]  # as its kind has it
            if position <= EDGE or position >= 1 - EDGE:
                found.append(f"{parameter.name} {'low' if position <= EDGE else 'high'}")
    return found


class Searches:
    """Searches of one workload, at one number of steps."""

    def __init__(self, task: Task, *, num_trials: int, num_repeats: int, budget: float) -> None:
        self._task, self._num_trials, self._num_repeats, self._budget = task, num_trials, num_repeats, budget

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
        return curve(self._task.config(chosen, seed=seed, budget=self._budget, num_evaluations=NUM_EVALUATIONS))


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


def pairs_of(given: argparse.Namespace, workload: str, spaces: tuple[SearchSpace, SearchSpace]) -> list[Pair]:
    """The winners on one workload, seed by seed; each pair is logged as soon as it is there, and one that the log has
    is not searched again.
    """
    task = Task(
        workload,
        num_steps=describe(workload).default_num_steps,
        num_evaluations=NUM_EVALUATIONS,
        options=given.options,
    )
    searches = Searches(task, num_trials=given.trials, num_repeats=given.repeats, budget=given.budget)
    pairs: list[Pair] = []
    asked = {name: getattr(given, name) for name in ("preset", "other", "options", "trials", "repeats", "budget")}
    for seed in range(given.seeds):
        of = {**asked, "workload": workload, "seed": seed}
        if (known := logged(given.log, of)) is not None:
            pairs.append(known)
            continue
        ours, other = (searches.winner(space, seed=seed) for space in spaces)
        pairs.append((ours, other))
        text = json.dumps({"of": of, "winners": [dataclasses.asdict(ours), dataclasses.asdict(other)]})
        print(text, file=sys.stderr)
        if given.log is not None:
            with given.log.open("a") as log:
                log.write(text + "\n")
    return pairs


def logged(path: Path | None, of: Mapping[str, Any]) -> Pair | None:
    """The pair that a log has of a search with these settings, if any."""
    if path is None or not path.exists():
        return None
    for line in map(json.loads, path.read_text().splitlines()):
        if line["of"] == of:
            ours, other = line["winners"]
            return Found(**ours), Found(**other)
    return None


def main() -> None:
    """Runs the searches that the command line asks for."""
    parser = argparse.ArgumentParser(description="Paired searches in a preset's ranges and in others.")
    parser.add_argument("--preset", default="shampoo")
    parser.add_argument("--other", nargs="+", default=["lr=1e-4:3e-2"], metavar="NAME=LOW:HIGH")
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--options", type=json.loads, default={}, metavar="JSON", help="of the workloads")
    parser.add_argument("--trials", type=int, default=24, help="of each search")
    parser.add_argument("--seeds", type=int, default=3, help="pairs of searches per workload")
    parser.add_argument("--repeats", type=int, default=2, help="new seeds that a winner is trained again on")
    parser.add_argument("--budget", type=float, default=1.0, help="share of the workload's default number of steps")
    parser.add_argument(
        "--log", type=Path, help="a line of JSON for each pair, as soon as it is there; runs go on from it"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.quick:
        given.workloads, given.trials, given.seeds, given.repeats, given.budget = ["digits-mlp"], 3, 1, 1, 0.1
    torch.set_num_threads(1)
    ours = preset(given.preset)
    spaces = ours, with_ranges(ours, ranges_of(given.other))
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    edges: dict[str, dict[str, float]] = {}
    for workload in given.workloads:
        pairs = pairs_of(given, workload, spaces)
        mean, low, high = interval([logarithm(mine.value, theirs.value) for mine, theirs in pairs])
        counts = [
            Counter(edge for pair in pairs for edge in at_edges(spaces[side], pair[side].parameters)) for side in (0, 1)
        ]
        shown = ["; ".join(f"{edge} {count}/{len(pairs)}" for edge, count in sorted(c.items())) or "-" for c in counts]
        ratios[f"other_over_ours.{workload}"] = mean
        edges[workload] = {edge: count / len(pairs) for edge, count in sorted(counts[0].items())}
        losses = [statistics.fmean(pair[side].value for pair in pairs) for side in (0, 1)]
        rows.append([workload, *losses, f"{mean:.3f}", f"{low:.3f}..{high:.3f}", *shown])
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
