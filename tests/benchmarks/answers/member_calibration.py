"""The truth of what a job says of the members of a family: each is searched alone, and held against it.

    python -m tests.benchmarks.answers.member_calibration

Jobs search a space that branches, on tables of real curves and on synthetic families (`search.member_landscapes`), by
the policies that jobs run. What their evidence says of a member is that it would do best by itself: in truth that is
the member whose own searches, each with as many trials as the job's, find on average the config with the best mean over
seeds. Where few searches leave open which member that is, each counts by how often draws of the searches make it it.

- `said`, `true`: of the member of the recommended config, the probability that it would do best, and how often it does;
  each landscape counts the same, a table as `TABLE_WEIGHT` synthetic ones.
- `score`: the mean of -log of the probability said of the member that does best, over that of saying the same of all
  members. Below 1 it tells something; above 1 it misleads. `unconfirmed`: the same, where nothing is trained again.
- `probabilities`: what is said of all members, in classes, and how many of these do best.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, Phase
from service.evidence.branches import Branches
from service.evidence.finished_trial import FinishedTrial
from service.evidence.luck.job_branches import branches_of
from service.evidence.luck.searched_side import SearchedSide
from tests.benchmarks.answers.recommendation_regret import CLASSES, names_of
from tests.benchmarks.report import Cell, print_table, report
from tests.benchmarks.search.curve_families import FAMILIES
from tests.benchmarks.search.job_simulation import (
    METRIC,
    Size,
    searched,
    searched_and_confirmed,
    searched_sides,
)
from tests.benchmarks.search.landscapes import Landscape
from tests.benchmarks.search.member_landscapes import CURVE_TABLES, SEED_TABLES, Alone, landscape_of

TABLES = (*SEED_TABLES, *CURVE_TABLES)
SIZES = (Size(8, 2, 7), Size(16, 2, 7), Size(32, 2, 7))
TABLE_WEIGHT = 3.0
NUM_SEARCHES = 4
"""Searches of each member of a synthetic family."""
NUM_JOBS = 2
"""Jobs on each synthetic family."""
NUM_DRAWN = 400
LEAST_SAID = 0.001
"""The smallest probability that the score counts: one that is certain and wrong is not all."""

Probabilities = Mapping[Scalar, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """A job's answer about the members, and what is true."""

    landscape: str
    num_trials: int
    weight: float
    winner: Scalar
    """The member of the recommended config."""
    said: Probabilities
    unconfirmed: Probabilities
    """Said from the search alone."""
    truth: Probabilities
    """The certainty that each member does best by itself."""

    def score(self, said: Probabilities) -> float:
        return -math.fsum(self.truth[member] * math.log(max(LEAST_SAID, p)) for member, p in said.items())


def means_alone(landscape: Landscape, num_trials: int, num_searches: int, search: str) -> dict[Scalar, list[float]]:
    """The true means that searches of each member alone find; NaN: one completed no trial."""
    assert landscape.space.member is not None
    return {
        choice: [_end(Alone(landscape, choice), search, num_trials, 10_000 + number) for number in range(num_searches)]
        for choice in landscape.space.member.choices
    }


def surely_best(means: Mapping[Scalar, Sequence[float]]) -> dict[Scalar, float]:
    """The certainty that each member does best: of draws of all searches, the share in which it has the best mean."""
    worst = max(mean for own in means.values() for mean in own if math.isfinite(mean))
    known = {choice: [mean if math.isfinite(mean) else worst for mean in own] for choice, own in means.items()}
    rng = random.Random(0)
    surely = dict.fromkeys(known, 0.0)
    for _ in range(NUM_DRAWN):
        drawn = {choice: statistics.fmean(rng.choices(own, k=len(own))) for choice, own in known.items()}
        best = [choice for choice, mean in drawn.items() if mean == min(drawn.values())]
        for choice in best:
            surely[choice] += 1.0 / (len(best) * NUM_DRAWN)
    return surely


def _end(landscape: Landscape, search: str, num_trials: int, seed: int) -> float:
    """The true mean of the config with the best value that a search finds; NaN: it completes no trial."""
    ended = searched(landscape, search, num_trials, seed)
    if not ended.completed:
        return math.nan
    return landscape.mean(ended.parameters[min(ended.completed, key=ended.completed.__getitem__)])


def answered(landscape: Landscape, search: str, size: Size, number: int) -> tuple[Branches, Branches] | None:
    """The evidence of the job with that number on the members, and that without confirmation; None: nothing was
    confirmed."""
    landscapes = {Phase.SEARCH: landscape}
    trials, result = searched_and_confirmed(landscapes, search, size, number)
    if result is None or not result.candidates:
        return None
    side = searched_sides(landscapes, trials, result, size).get(Phase.SEARCH)
    return told_of(trials, result.candidates[0].number, landscape.space, side)


def told_of(
    trials: Sequence[FinishedTrial], winner: int, space: SearchSpace, side: SearchedSide | None
) -> tuple[Branches, Branches]:
    """The evidence on the members, and that without confirmation."""
    confirmed, unconfirmed = (
        branches_of(trials, winner, space, own, Direction.MINIMIZE, metric=METRIC) for own in (side, None)
    )
    assert confirmed is not None
    assert unconfirmed is not None
    return confirmed, unconfirmed


def answers_on(
    name: str, landscape: Landscape, search: str, *, numbers: Sequence[int], num_searches: int, weight: float
) -> list[Answer]:
    """The answers of jobs of all sizes on a landscape; those that say nothing are left out."""
    found = []
    for size in SIZES:
        truth = surely_best(means_alone(landscape, size.num_trials, num_searches, search))
        told = [one for number in numbers if (one := answered(landscape, search, size, number)) is not None]
        found += answers_of(name, size.num_trials, told, truth, weight)
    return found


def answers_of(
    name: str, num_trials: int, told: Sequence[tuple[Branches, Branches]], truth: Probabilities, weight: float
) -> list[Answer]:
    """The answers, with what is true; without the jobs that say nothing.

    Args:
        told: with and without confirmation.
        weight: of all together.
    """
    known = [(own.winner, _said(own), _said(other)) for own, other in told]
    kept = [(winner, said, unconfirmed) for winner, said, unconfirmed in known if said and unconfirmed]
    return [
        Answer(name, num_trials, weight / len(kept), winner, said, unconfirmed, truth)
        for winner, said, unconfirmed in kept
    ]


def _said(branches: Branches) -> dict[Scalar, float]:
    known = ((own.choice, own.probability_best_alone) for own in branches.choices)
    return {choice: probability for choice, probability in known if probability is not None}


def mean_of(answers: Sequence[Answer], values: Sequence[float]) -> float:
    """The mean over answers by their weights."""
    weights = [answer.weight for answer in answers]
    return math.fsum(w * value for w, value in zip(weights, values, strict=True)) / math.fsum(weights)


def summary(answers: Sequence[Answer]) -> dict[str, float]:
    """The figures of answers."""
    uniform = mean_of(answers, [math.log(len(one.said)) for one in answers])
    return {
        "said": mean_of(answers, [one.said[one.winner] for one in answers]),
        "true": mean_of(answers, [one.truth[one.winner] for one in answers]),
        "score": mean_of(answers, [one.score(one.said) for one in answers]) / uniform,
        "unconfirmed": mean_of(answers, [one.score(one.unconfirmed) for one in answers]) / uniform,
    }


def classes(answers: Sequence[Answer], *, of_winners: bool = False) -> list[tuple[float, float, int]]:
    """The classes of probabilities that occur: their mean, the share that is true, and how many there are."""
    said = [
        (probability, one.truth[member], one.weight)
        for one in answers
        for member, probability in one.said.items()
        if not of_winners or member == one.winner
    ]
    found = []
    for low, high in itertools.pairwise(CLASSES):
        own = [one for one in said if low <= one[0] < high or one[0] == high == 1.0]
        if own:
            weight = math.fsum(w for _, _, w in own)
            mean = math.fsum(w * probability for probability, _, w in own) / weight
            found.append((mean, math.fsum(w * true for _, true, w in own) / weight, len(own)))
    return found


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", type=names_of(TABLES), default=list(TABLES), help=", ".join(TABLES))
    parser.add_argument("--synthetic", type=names_of(FAMILIES), default=list(FAMILIES), help=", ".join(FAMILIES))
    parser.add_argument("--search", default="auto", help="search, as in recommendation_regret (default: auto)")
    parser.add_argument("--jobs", type=int, default=24, help="jobs of each size on each table (default: 24)")
    parser.add_argument(
        "--searches", type=int, default=16, help="searches of each member of a table alone (default: 16)"
    )
    parser.add_argument("--tasks", type=int, default=7, help="tasks of each synthetic family (default: 7)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    given = _parsed(arguments)
    answers = []
    for name in given.tables:
        answers += answers_on(
            name,
            landscape_of(name),
            given.search,
            numbers=range(given.jobs),
            num_searches=given.searches,
            weight=TABLE_WEIGHT,
        )
    for task in range(1, given.tasks + 1):
        for family in given.synthetic:
            numbers = range(NUM_JOBS * task, NUM_JOBS * (task + 1))
            answers += answers_on(
                "synthetic",
                landscape_of(family, task),
                given.search,
                numbers=numbers,
                num_searches=NUM_SEARCHES,
                weight=1.0,
            )
    tell(answers, given.json)


def tell(answers: Sequence[Answer], json_file: Path | None) -> None:
    """Prints the figures."""
    columns = ("landscape, trials", "answers", "said", "true", "score", "unconfirmed")
    rows: list[list[Cell]] = []
    figures: dict[str, object] = {}
    kinds = dict.fromkeys((one.landscape, one.num_trials) for one in answers)
    for landscape, num_trials in kinds:
        own = [one for one in answers if (one.landscape, one.num_trials) == (landscape, num_trials)]
        found = summary(own)
        rows.append([f"{landscape}, {num_trials}", len(own), *found.values()])
        figures[f"{landscape}.{num_trials}"] = found
    whole = summary(answers)
    rows.append(["all", len(answers), *whole.values()])
    figures["all"] = whole
    for key, of_winners in (("probabilities", False), ("probabilities_of_winners", True)):
        own_classes = classes(answers, of_winners=of_winners)
        figures[key] = [{"said": said, "true": true, "num": num} for said, true, num in own_classes]
        title = "said of the recommended member" if of_winners else "said of a member"
        print_table(
            (title, "true", "members"), [[f"{said:.1%}", f"{true:.1%}", num] for said, true, num in own_classes]
        )
    report(
        "member_calibration",
        columns=columns,
        rows=rows,
        figures=figures,
        ratios={"score_over_that_of_saying_the_same": whole["score"]},
        json_file=json_file,
    )


if __name__ == "__main__":
    main()
