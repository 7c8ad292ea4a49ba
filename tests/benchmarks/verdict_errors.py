"""How often a confirmation errs where all configs are in truth equally good: simulated, with normal noise over seeds.

    python -m tests.benchmarks.verdict_errors
    python -m tests.benchmarks.verdict_errors --jobs 2000

The best of the `top_k` configs is compared with the baseline, over as many new seeds, by the code that jobs run
(`service.evidence.confirm`). `calls_better`: share of jobs in which the interval lies wholly on the better side,
nominally at most 2.5%; beside it the same by the paired t interval of the winner alone, which forgets that it was
chosen. In `one_wide` one config's spread over seeds is three times that of the others; the worst choice of that config
counts.

`found_looks_lucky`: share of jobs in which the value with which the best of so many equal configs was found lies beyond
the better end of `further_seed` of its own new seeds, nominally 2.5%.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from pathlib import Path

from service.domain import Direction, TrialState
from service.evidence import student_t
from service.evidence.confirm import CONFIDENCE, compare_over_seeds, further_seed
from service.evidence.types import ConfirmedConfig, SeedResult
from tests.benchmarks.report import Cell, report

SHAPES = ((3, 3), (5, 5))
"""Of confirmations: configs, and new seeds of each."""
NUM_FOUND = (5, 15)
"""Trials of a search, the best of which is confirmed."""
NUM_NEW_SEEDS = 3
WIDE = 3.0


def confirmed(number: int, values: list[float]) -> ConfirmedConfig:
    """A config that had these values with seeds 0, 1, ..."""
    results = [SeedResult(seed, number, TrialState.COMPLETED, value) for seed, value in enumerate(values)]
    return ConfirmedConfig(number, values[0], results, statistics.fmean(values), statistics.stdev(values))


def alone_calls_better(best: list[float], baseline: list[float]) -> bool:
    """True if the paired t interval of the two, which knows of no choice, lies on the better side."""
    differences = [theirs - ours for ours, theirs in zip(best, baseline, strict=True)]
    reach = student_t.quantile(0.5 * (1 + CONFIDENCE), len(differences) - 1)
    return statistics.fmean(differences) > reach * statistics.stdev(differences) / math.sqrt(len(differences))


def errors(num_jobs: int, top_k: int, num_seeds: int, spreads: list[float], rng: random.Random) -> tuple[float, float]:
    """Shares of jobs that call the winner better, by our interval and by its own alone; the last spread is the
    baseline's."""
    ours = alone = 0
    for _ in range(num_jobs):
        seed_effects = [rng.gauss(0, 1) for _ in range(num_seeds)]
        values = [[effect + rng.gauss(0, spread) for effect in seed_effects] for spread in spreads]
        configs = sorted((statistics.fmean(row), n, row) for n, row in enumerate(values[:top_k]))
        candidates = [confirmed(n, row) for _, n, row in configs]
        interval = compare_over_seeds(candidates, confirmed(top_k, values[top_k]), range(num_seeds), Direction.MINIMIZE)
        assert interval is not None
        ours += interval.low > 0
        alone += alone_calls_better(configs[0][2], values[top_k])
    return ours / num_jobs, alone / num_jobs


def looks_lucky(num_jobs: int, num_found: int, rng: random.Random) -> float:
    """Share of jobs in which the found value of the best lies beyond what its new seeds say."""
    count = 0
    for _ in range(num_jobs):
        found = min(rng.gauss(0, 1) for _ in range(num_found))
        low, _ = further_seed([rng.gauss(0, 1) for _ in range(NUM_NEW_SEEDS)])
        count += found < low
    return count / num_jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000, help="simulated for each figure (default: 10000)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    rng = random.Random(0)
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}
    for top_k, num_seeds in SHAPES:
        equal = [1.0] * (top_k + 1)
        ours, alone = errors(options.jobs, top_k, num_seeds, equal, rng)
        # Candidates are alike: that one of them is wide, or the baseline, is all there is to choose.
        widened = [[*equal[:place], WIDE, *equal[place + 1 :]] for place in (0, top_k)]
        wide = max(errors(options.jobs, top_k, num_seeds, spreads, rng)[0] for spreads in widened)
        case = f"top_k {top_k}, {num_seeds} seeds"
        rows += [
            [f"better, {case}", f"{ours:.1%}"],
            [f"better, {case}, one config three times as wide", f"{wide:.1%}"],
            [f"better, {case}, by the winner's own t interval", f"{alone:.1%}"],
        ]
        name = f"top_{top_k}_seeds_{num_seeds}"
        ratios |= {f"calls_better.{name}": ours, f"one_wide.{name}": wide, f"alone.{name}": alone}
    for num_found in NUM_FOUND:
        share = looks_lucky(options.jobs, num_found, rng)
        rows.append([f"found beyond its new seeds, best of {num_found}", f"{share:.1%}"])
        ratios[f"found_looks_lucky.best_of_{num_found}"] = share
    report(
        name="verdict_errors",
        columns=("of configs equally good", "share of jobs"),
        rows=rows,
        figures={"num_jobs": options.jobs},
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
