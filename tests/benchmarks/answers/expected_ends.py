"""How well the end of a stopped trial is expected, and that it would have been the best: simulated searches.

    python -m tests.benchmarks.answers.expected_ends

Searches stop trials on tables of real curves (`make_seed_curves`) and on synthetic tasks (`search.curve_families`); how
each stopped one would have ended with the same seed, the landscape tells.

- `error`: root mean square of (expected end - end), over the standard deviation of the completed trials' ends, the
  largest tenth left out; and, over it, that of the guess that a trial falls further by as much as the completed ones
  did on average.
- `said`: the mean probability that a stopped trial would have ended better than the best completed one; `are`: how many
  would have.
- `score`: the mean of -log of the probability that was said of what came true; `of the share`: the same, if `are` had
  been said of each.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from service.domain import Direction
from service.evidence.comparison import student_t
from service.evidence.luck.expected_ends import ODDS_OF_BEST, ExpectedEnd, expected_ends
from service.evidence.luck.searched_side import TriedTrial
from tests.benchmarks.answers.family_cost import TABLES as FAMILY_TABLES
from tests.benchmarks.answers.family_cost import landscape_of
from tests.benchmarks.answers.recommendation_regret import TABLES, Said, calibration, names_of
from tests.benchmarks.report import Cell, print_table, report
from tests.benchmarks.search.curve_families import FAMILIES
from tests.benchmarks.search.job_simulation import searched
from tests.benchmarks.search.landscapes import Landscape, synthetic_pair, table_pair

SEARCHES = ("asha", "auto")
"""Searches of the simulation that stop trials."""
NUM_TRIALS = (8, 16, 32)
LEFT_OUT = 0.1
"""Share of the largest errors: a stopped trial that would have diverged ends anywhere."""
LEAST_SAID = 0.001
"""The smallest probability that the score counts, and 1 less the largest: one that is certain and wrong is not all."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A stopped trial; in standard deviations of the completed trials' ends."""

    error: float
    error_of_mean_rest: float
    said: Said
    """The probability that the trial would have ended better than the best completed one, and whether it would have."""


def stopped_in(landscape: Landscape, search: str, num_trials: int, seed: int) -> list[Stopped]:
    """The stopped trials of a search; none, where fewer than two were completed, or all ended alike."""
    ended = searched(landscape, search, num_trials, seed)
    if len(ended.completed) < 2 or not (spread := statistics.stdev(ended.completed.values())):
        return []
    best = min(ended.completed, key=ended.completed.__getitem__)
    trials = [
        TriedTrial(number, (), list(enumerate(curve, start=1)), number in ended.completed)
        for number, curve in ended.curves.items()
        if math.isfinite(curve[-1])
    ]
    ends = expected_ends(trials, Direction.MINIMIZE)
    found = []
    for trial in trials:
        end = landscape.curve(ended.parameters[trial.number], seed)[-1]
        if trial.has_completed or not math.isfinite(end):
            continue
        seen, value = trial.curve[-1]
        rest = statistics.fmean(ended.curves[own][-1] - ended.curves[own][seen - 1] for own in ended.completed)
        expected = ends[trial.number]
        said = (probability_better(expected, ended.completed[best]), end < ended.completed[best])
        found.append(Stopped((expected.value - end) / spread, (value + rest - end) / spread, said))
    return found


def probability_better(end: ExpectedEnd, best: float) -> float:
    """The probability that it is smaller than the best end of a completed trial, as it is drawn."""
    lead = best - end.value
    if not end.doubt:
        return float(lead > 0.0)
    share = ODDS_OF_BEST * student_t.cumulative(lead / end.doubt, end.degrees)
    return share / (share + student_t.cumulative(-lead / end.doubt, end.degrees))


def score_of(said: Sequence[Said]) -> float:
    """The mean of -log of the probability that was said of what came true: smaller is better."""
    kept = [(min(1.0 - LEAST_SAID, max(LEAST_SAID, probability)), is_best) for probability, is_best in said]
    return -statistics.fmean(math.log(probability if is_best else 1.0 - probability) for probability, is_best in kept)


def error_of(errors: Sequence[float]) -> float:
    """Root mean square of all but the largest ones."""
    kept = sorted(map(abs, errors))[: math.ceil((1.0 - LEFT_OUT) * len(errors))]
    return math.sqrt(statistics.fmean(error * error for error in kept))


def landscapes(seed: int) -> dict[str, list[Landscape]]:
    """All that is searched, by name; synthetic tasks are others for each seed."""
    found: dict[str, list[Landscape]] = {name: [landscape_of(name)] for name in FAMILY_TABLES}
    found |= {name: list(table_pair(name)) for name in TABLES}
    return found | {family: list(synthetic_pair(family, seed)) for family in FAMILIES}


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--searches", type=names_of(SEARCHES), default=list(SEARCHES), help="asha,auto (default: both)")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of each landscape, search and size (default: 10)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    given = _parsed(arguments)
    found: dict[tuple[str, str], list[Stopped]] = {}
    for seed in range(given.seeds):
        for name, own in landscapes(seed).items():
            for search in given.searches:
                for landscape in own:
                    for num_trials in NUM_TRIALS:
                        stopped = stopped_in(landscape, search, num_trials, 5_000 + seed)
                        found.setdefault((name, search), []).extend(stopped)
    rows: list[list[Cell]] = []
    figures: dict[str, object] = {"num_seeds": given.seeds}
    ratios = []
    for (name, search), stopped in found.items():
        if not stopped:
            continue
        error = error_of([one.error for one in stopped])
        over_rest = error / error_of([one.error_of_mean_rest for one in stopped])
        said, are = (statistics.fmean(one.said[place] for one in stopped) for place in (0, 1))
        score, of_share = score_of([one.said for one in stopped]), score_of([(are, one.said[1]) for one in stopped])
        cells: list[Cell] = [error, over_rest, f"{said:.1%}", f"{are:.1%}", score, of_share]
        rows.append([f"{name}, {search}", len(stopped), *cells])
        figures[f"{name}.{search}"] = {
            "num": len(stopped),
            "error": error,
            "said": said,
            "are": are,
            "score": score,
            "score_of_share": of_share,
        }
        ratios.append(over_rest)
    classes = calibration([one.said for own in found.values() for one in own])
    figures["probabilities"] = [{"said": a, "are": b, "num": num} for a, b, num in classes]
    print_table(("said to end best", "are", "trials"), [[f"{a:.1%}", f"{b:.1%}", num] for a, b, num in classes])
    report(
        "expected_ends",
        columns=("landscape, search", "stopped", "error", "over mean rest", "said", "are", "score", "of the share"),
        rows=rows,
        figures=figures,
        ratios={"error_over_that_of_mean_rest": statistics.median(ratios)},
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
