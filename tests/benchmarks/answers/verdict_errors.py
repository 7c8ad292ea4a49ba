"""How often a confirmation errs: whole ones simulated, choice and second chances included, where no side is better.

    python -m tests.benchmarks.answers.verdict_errors
    python -m tests.benchmarks.answers.verdict_errors --jobs 1000

On each side a search tries so many configs with one seed, and the confirmation then goes as in a job: the policy
(`service.scheduler.policy.confirmation`) says what is trained, `service.evidence.comparison.confirm` chooses, and
`service.evidence.comparison.equal_spending` decides, at equal steps. All configs of both sides have the same typical
value, the median over seeds, and differ in their noise. `calls_better`: the share of jobs with the verdict `better`,
meant to be at most 2.5%; beside it the share by the paired t interval of the very same seeds, and the mean number of
trials. `fooled`: what no few seeds can tell, a config of the same mean
that goes wrong with one seed in five. `finds`: the share of jobs that find the difference where our configs are better
by so many standard deviations of one trial.

`found_looks_lucky`: share of jobs in which the value with which the best of so many equal configs was found lies beyond
the better end of `further_seed` of its own new seeds, nominally 2.5%.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.domain import Currency, Direction, FailureReason, Phase, TrialState
from service.evidence.comparison import student_t
from service.evidence.comparison.confirm import confirm, differences_of, further_seed, split_seeds
from service.evidence.comparison.equal_spending import compare_by
from service.evidence.comparison.paired import CONFIDENCE
from service.evidence.finished_trial import FinishedTrial, Pair
from service.evidence.types import ConfirmationResult, Verdict
from service.scheduler.policy.confirmation import Confirmation
from tests.benchmarks.report import Cell, report
from trainers.config import OptimizerConfig, TrialConfig
from trainers.stored_config import StoredConfig

DEFAULT = (2, 7)
SHAPES = (DEFAULT, (3, 12), (2, 4))
"""Shapes of confirmations: configs of each side, and new seeds."""
NUM_SEARCHED = 8
"""Trials of each side's search."""
NUM_FOUND = (5, 15)
"""Trials of a search, the best of which is confirmed."""
LEVEL = 10.0
"""The typical value of every config."""
METRIC = "loss"

Noise = Callable[[random.Random], float | None]
"""A config's value with a seed, less `LEVEL`; None: it fails."""


def normal(spread: float) -> Noise:
    return lambda rng: rng.gauss(0.0, spread)


def failing(rng: random.Random) -> float | None:
    return None if rng.random() < 0.15 else rng.gauss(0.0, 1.0)


def heavy(rng: random.Random) -> float | None:
    return math.tan(math.pi * (rng.random() - 0.5))


def torn(rng: random.Random) -> float | None:
    """An outcome that is as often good as bad."""
    return rng.choice((-3.0, 3.0)) + rng.gauss(0.0, 0.1)


def lopsided(rng: random.Random) -> float | None:
    """A little better than typical with every other seed, and far worse with the others."""
    return rng.choice((rng.uniform(-1.0, 0.0), rng.uniform(0.0, 18.0)))


def seldom_bad(rng: random.Random) -> float | None:
    """Better than typical with four seeds in five; its mean is `LEVEL`."""
    return (4.0 if rng.random() < 0.2 else -1.0) + rng.gauss(0.0, 0.1)


def mixed(rng: random.Random) -> float | None:
    return rng.choice((normal(0.3), normal(3.0), failing, heavy, torn))(rng)


EQUAL: dict[str, tuple[Noise, Noise]] = {
    "normal noise": (normal(1.0), normal(1.0)),
    "ours three times as wide": (normal(3.0), normal(1.0)),
    "the baseline three times as wide": (normal(1.0), normal(3.0)),
    "15% of the trials fail": (failing, failing),
    "heavy tails (Cauchy)": (heavy, heavy),
    "both jump between two outcomes": (torn, torn),
    "ours jumps, the baseline is steady": (torn, normal(0.1)),
    "the baseline jumps, ours is steady": (normal(0.1), torn),
    "the baseline's noise is lopsided": (normal(0.0), lopsided),
    "each trial another of these": (mixed, mixed),
}
"""Noise of our configs and of the baseline's, all with the same typical value."""
BETTER_BY = (2.0, 4.0)
_CONFIG = StoredConfig.of(
    TrialConfig(
        workload="simulated", optimizer=OptimizerConfig("shampoo"), num_steps=1, batch_size=1, evaluate_every=1
    ).to_json()
)


@dataclass(slots=True)
class Shares:
    """Shares of simulated jobs, by outcome."""

    better: float
    by_t_alone: float
    num_trials: float


def _trial(
    number: int, phase: Phase, value: float | None, *, seed: int = 0, confirms: int | None = None
) -> FinishedTrial:
    state = TrialState.FAILED if value is None else TrialState.COMPLETED
    reason = FailureReason.DIVERGED if value is None else None
    config = dataclasses.replace(_CONFIG, seed=seed)
    return FinishedTrial(number, phase, state, reason, config, value, [(1, 1.0, {METRIC: value})], confirms)


def confirmed(
    noises: dict[Phase, Noise], *, shift: float, top_k: int, num_seeds: int, rng: random.Random
) -> list[FinishedTrial]:
    """The trials of a job that searched and confirmed; ours are better by `shift`, and what a seed does to all configs
    alike has the spread 1."""
    effects = [rng.gauss(0.0, 1.0) for _ in range(num_seeds + 1)]

    def value(phase: Phase, seed: int) -> float | None:
        drawn = noises[phase](rng)
        return None if drawn is None else LEVEL + effects[seed] + drawn - (shift if phase is Phase.SEARCH else 0.0)

    choosing, comparing = split_seeds(range(1, num_seeds + 1), top_k=top_k)
    policy = Confirmation(top_k=top_k, choosing=choosing, comparing=comparing, direction=Direction.MINIMIZE)
    trials: list[FinishedTrial] = []
    for phase in noises:
        for _ in range(NUM_SEARCHED):
            trials.append(_trial(len(trials), phase, value(phase, 0)))
            policy.add(len(trials) - 1, phase, {"lr": float(len(trials))}, trials[-1].value)
    while left := policy.left():
        repeats = left[0]
        policy.begin(repeats)
        own = _trial(
            len(trials),
            Phase.CONFIRMATION,
            value(trials[repeats.number].phase, repeats.seed),
            seed=repeats.seed,
            confirms=repeats.number,
        )
        policy.end(repeats, own.state, own.value)
        trials.append(own)
    return trials


def simulate(
    num_jobs: int, ours: Noise, theirs: Noise, *, shift: float = 0.0, shape: tuple[int, int], rng: random.Random
) -> Shares:
    """Shares of jobs that call ours better, by our interval and by Student's alone, and the trials that it took."""
    top_k, num_seeds = shape
    choosing, comparing = split_seeds(range(1, num_seeds + 1), top_k=top_k)
    better = alone = num_trials = 0
    for _ in range(num_jobs):
        noises = {Phase.SEARCH: ours, Phase.BASELINE: theirs}
        trials = confirmed(noises, shift=shift, top_k=top_k, num_seeds=num_seeds, rng=rng)
        num_trials += len(trials) - 2 * NUM_SEARCHED
        result = confirm(trials, Direction.MINIMIZE, choosing=choosing, comparing=comparing)
        if result is None:
            continue
        pairs = _pairs(trials, result)
        better += compare_by(pairs, METRIC, Direction.MINIMIZE, Currency.STEPS).verdict is Verdict.BETTER
        alone += _t_calls_better(differences_of(result, Direction.MINIMIZE))
    return Shares(better / num_jobs, alone / num_jobs, num_trials / num_jobs)


def _pairs(trials: Sequence[FinishedTrial], result: ConfirmationResult) -> list[Pair]:
    """The trials of the two chosen configs with each compared seed; empty: they are not compared."""
    by_key = {(trial.confirms, trial.config.seed): trial for trial in trials}
    ours, theirs = next(iter(result.candidates), None), result.baseline
    if ours is None or theirs is None or ours.mean is None or theirs.mean is None:
        return []
    return [(by_key[ours.number, seed], by_key[theirs.number, seed]) for seed in result.seeds]


def _t_calls_better(differences: Sequence[float]) -> bool:
    """True if the paired t interval, which trusts the noise to be normal, lies on the better side."""
    if not differences:
        return False
    reach = student_t.quantile(0.5 * (1 + CONFIDENCE), len(differences) - 1)
    return statistics.fmean(differences) > reach * statistics.stdev(differences) / math.sqrt(len(differences))


def looks_lucky(num_jobs: int, num_found: int, num_new_seeds: int, rng: random.Random) -> float:
    """Share of jobs in which the found value of the best lies beyond what its new seeds say."""
    count = 0
    for _ in range(num_jobs):
        found = min(rng.gauss(0, 1) for _ in range(num_found))
        low, _ = further_seed([rng.gauss(0, 1) for _ in range(num_new_seeds)])
        count += found < low
    return count / num_jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=4_000, help="simulated for each figure (default: 4000)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    rng = random.Random(0)
    rows: list[list[Cell]] = []
    ratios: dict[str, float] = {}

    def add(kind: str, case: str, found: list[Shares]) -> None:
        rows.append(
            [
                f"{kind}: {case}",
                *(f"{one.better:.1%}" for one in found),
                f"{found[0].by_t_alone:.1%}",
                found[0].num_trials,
            ]
        )
        for (top_k, num_seeds), one in zip(SHAPES, found, strict=True):
            ratios[f"{kind}.{case}.top_{top_k}_seeds_{num_seeds}"] = one.better
        ratios[f"t_alone.{kind}.{case}"] = found[0].by_t_alone

    for case, (ours, theirs) in EQUAL.items():
        add("calls_better", case, [simulate(options.jobs, ours, theirs, shape=shape, rng=rng) for shape in SHAPES])
    fooled = [simulate(options.jobs, seldom_bad, normal(0.1), shape=shape, rng=rng) for shape in SHAPES]
    add("fooled", "bad with one seed in five", fooled)
    for shift in BETTER_BY:
        found = [simulate(options.jobs, normal(1.0), normal(1.0), shift=shift, shape=s, rng=rng) for s in SHAPES]
        add("finds", f"better by {shift:g} sd", found)
    _, comparing = split_seeds(range(DEFAULT[1]), top_k=DEFAULT[0])
    for num_found in NUM_FOUND:
        share = looks_lucky(options.jobs, num_found, len(comparing), rng)
        rows.append(
            [f"found beyond its {len(comparing)} new seeds, best of {num_found}", f"{share:.1%}", "", "", "", ""]
        )
        ratios[f"found_looks_lucky.best_of_{num_found}"] = share
    report(
        name="verdict_errors",
        columns=(
            "share of jobs",
            *(f"top_k {top_k}, {num_seeds} seeds" for top_k, num_seeds in SHAPES),
            f"paired t of {DEFAULT}",
            f"trials of {DEFAULT}",
        ),
        rows=rows,
        figures={"num_jobs": options.jobs},
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
