"""How good a recommended config is, and how far to trust what is said of it: whole jobs, simulated on learning curves.

    python -m tests.benchmarks.answers.recommendation_regret
    python -m tests.benchmarks.answers.recommendation_regret --tables '' --synthetic plain,noisy,loss

A job searches with Shampoo and, as long, with AdamW, and confirms the best of both, by the policies that jobs run, on
tables of real curves with several seeds (`make_seed_curves`) and on synthetic tasks with noise
(`search.curve_families`); the evidence says what it says of any job. Truth is a config's mean over all seeds of its
table. Jobs differ in all that chance decides.

- `regret`: (true mean of a config - best true mean of the table) / (median - best), on average over both sides: of the
  recommended config, and of that of the best trial.
- `promised`: share of searches in which the best trial's own value is better than its config's true mean.
- `seeds`: share of jobs whose 95% interval over seeds holds the true difference of the two recommended configs.
- `repeats by seeds`, `repeats`: over all pairs of different jobs, the share in which that interval of the one, and the
  one that allows for the luck of the searches, holds the true difference that the other found.
- `probabilities`: what is said of configs to be the best, in classes, and how many of these are.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.domain import Direction, Phase
from service.evidence.luck.job_luck import with_luck
from tests.benchmarks.report import Cell, print_table, report
from tests.benchmarks.search.curve_families import FAMILIES
from tests.benchmarks.search.job_simulation import SEARCHES, Recommended, Size, simulated
from tests.benchmarks.search.landscapes import Landscape, synthetic_pair, table_pair

TABLES = ("digits-mlp", "digits-convnet")
SIZES = (Size(8, 2, 6), Size(16, 3, 8), Size(32, 3, 8))
CLASSES = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
"""Bounds of the classes of probabilities."""
NUM_FOR_REGRET = 300
"""Random configs whose true means give the best and the median of a landscape."""

Interval = tuple[float, float]
Said = tuple[float, float]
"""The probability of being the best that was said, and whether it is, or how often."""


@dataclass(frozen=True, slots=True)
class Job:
    """A simulated job, and what the evidence says."""

    sides: Mapping[Phase, Recommended]
    over_seeds: Interval
    of_searches: Interval
    said: Sequence[Said]

    @property
    def true_difference(self) -> float:
        return self.sides[Phase.BASELINE].true_mean - self.sides[Phase.SEARCH].true_mean


def simulate(pair: tuple[Landscape, Landscape], search: str, size: Size, number: int) -> Job | None:
    """The job with that number; None: its two sides could not be compared."""
    landscapes = dict(zip((Phase.SEARCH, Phase.BASELINE), pair, strict=True))
    job = simulated(landscapes, search, size, number)
    if job is None:
        return None
    sides = {phase: own.side for phase, own in job.sides.items()}
    result, of_searches = with_luck(job.result, sides, Direction.MINIMIZE)
    over_seeds = result.improvement
    assert over_seeds is not None
    assert of_searches is not None
    assert result.baseline is not None
    assert result.baseline.mean is not None
    said = []
    for side in job.sides.values():
        if len(set(side.true_means.values())) < max(2, len(side.true_means)):
            continue  # nothing to choose, or two of one row of a table
        best = min(side.true_means, key=side.true_means.__getitem__)
        said += [
            (config.probability_best, config.number == best)
            for config in result.configs
            if config.number in side.true_means and config.probability_best is not None
        ]
    share = abs(result.baseline.mean)
    return Job(
        job.sides,
        (share * over_seeds[0], share * over_seeds[1]),
        (share * of_searches[0], share * of_searches[1]),
        said,
    )


def coverage(intervals: Sequence[Interval], truths: Sequence[Sequence[float]]) -> float:
    """The share of the truths of each interval that it holds."""
    held = [low <= truth <= high for (low, high), own in zip(intervals, truths, strict=True) for truth in own]
    return statistics.fmean(held)


def summary(jobs: Sequence[Job], scales: Sequence[Interval]) -> dict[str, float]:
    """The figures of the jobs of one landscape.

    Args:
        scales: of each side, the best and the median true mean of a random config.
    """
    differences = [job.true_difference for job in jobs]
    others = [differences[:index] + differences[index + 1 :] for index in range(len(jobs))]
    over_seeds, of_searches = [job.over_seeds for job in jobs], [job.of_searches for job in jobs]
    sides = [(side, scale) for job in jobs for side, scale in zip(job.sides.values(), scales, strict=True)]
    return {
        "regret": statistics.fmean((side.true_mean - best) / (median - best) for side, (best, median) in sides),
        "regret_of_best_trial": statistics.fmean(
            (side.best_trial - best) / (median - best) for side, (best, median) in sides
        ),
        "promised": statistics.fmean(side.best_value < side.best_trial for side, _ in sides),
        "seeds": coverage(over_seeds, [[difference] for difference in differences]),
        "repeats_by_seeds": coverage(over_seeds, others),
        "repeats": coverage(of_searches, others),
    }


def scale_of(landscape: Landscape) -> Interval:
    """The best and the median true mean of random configs; those that diverge count as worse than all others."""
    rng = random.Random("scale")
    means = [landscape.mean(landscape.space.sample(rng)) for _ in range(NUM_FOR_REGRET)]
    ordered = sorted(math.inf if math.isnan(mean) else mean for mean in means)
    return ordered[0], ordered[len(ordered) // 2]


def calibration(said: Sequence[Said]) -> list[tuple[float, float, int]]:
    """The classes of probabilities that occur: their mean, the share that is the best, and how many there are."""
    found = []
    for low, high in itertools.pairwise(CLASSES):
        own = [one for one in said if low <= one[0] < high or one[0] == high == 1.0]
        if own:
            are = statistics.fmean(is_best for _, is_best in own)
            found.append((statistics.fmean(probability for probability, _ in own), are, len(own)))
    return found


def names_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Reads a list of names divided by commas, of those that are known; of an empty text none."""

    def names(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
        return found

    return names


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", type=names_of(TABLES), default=list(TABLES), help="tables of real curves, by name")
    parser.add_argument(
        "--synthetic",
        type=names_of(FAMILIES),
        default=[],
        help=f"{', '.join(FAMILIES)}: two tasks of each (default: none)",
    )
    parser.add_argument(
        "--searches", type=names_of(SEARCHES), default=["random", "tpe", "auto"], help=", ".join(SEARCHES)
    )
    sizes = [str(size.num_trials) for size in SIZES]
    parser.add_argument("--trials", type=names_of(sizes), default=sizes, help="8,16,32")
    parser.add_argument("--jobs", type=int, default=20, help="jobs of each landscape, search and size, 2 at least (20)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    given = parser.parse_args(arguments)
    if given.jobs < 2:
        parser.error(f"--jobs must be 2 or more, for each is compared with the others, got {given.jobs}")
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    given = _parsed(arguments)
    pairs = {name: table_pair(name) for name in given.tables}
    pairs |= {f"{name}-{n}": synthetic_pair(name, n) for name in given.synthetic for n in (1, 2)}
    scales = {name: tuple(map(scale_of, pair)) for name, pair in pairs.items()}
    columns = ("jobs", "regret", "best trial", "promised", "seeds", "repeats by seeds", "repeats")
    figures: dict[str, object] = {"num_jobs": given.jobs}
    means: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    said: list[Said] = []
    for search in given.searches:
        for size in (size for size in SIZES if str(size.num_trials) in given.trials):
            found = {}
            for name, pair in pairs.items():
                drawn = (simulate(pair, search, size, number) for number in range(given.jobs))
                jobs = [job for job in drawn if job is not None]
                found[name] = summary(jobs, scales[name])
                said += [one for job in jobs for one in job.said]
                print_table(columns, [[f"{search}, {size}, {name}", *found[name].values()]])
            figures[f"{search}.{size.num_trials}"] = found
            for kind, own in (
                ("tables", given.tables),
                ("synthetic", [name for name in pairs if name not in given.tables]),
            ):
                if not own:
                    continue
                mean = {key: statistics.fmean(found[name][key] for name in own) for key in next(iter(found.values()))}
                means.append([f"{search}, {size}, {kind}", *mean.values()])
                ratios |= {f"{key}.{kind}.{search}.{size.num_trials}": mean[key] for key in ("seeds", "repeats")}
    numbers = [[cell for cell in row if isinstance(cell, float)] for row in means]
    means.append(["mean of all", *(statistics.fmean(column) for column in zip(*numbers, strict=True))])
    classes = calibration(said)
    figures["probabilities"] = [{"said": a, "are": b, "num": num} for a, b, num in classes]
    print_table(("said to be the best", "are", "configs"), [[f"{a:.1%}", f"{b:.1%}", num] for a, b, num in classes])
    report("recommendation_regret", columns=columns, rows=means, figures=figures, ratios=ratios, json_file=given.json)


if __name__ == "__main__":
    main()
