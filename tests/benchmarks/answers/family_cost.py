"""The cost of a search of the whole family, on learning curves.

    python -m tests.benchmarks.answers.family_cost

The preset `family` is searched, and each preset of a member alone, by the policy that jobs run, on tables of real
curves of all members (`make_seed_curves`). A search is as good as the true mean, over the seeds of the table, of the
config that it would recommend: of its completed trials the best by value. All begin with first learning rates for the
tables' 40 steps, as jobs do; the rule for these was chosen on longer trainings of the same workloads, among others.

- `trainings`, `trials`: what the family needs to be as good, on average over searches, as the preset that is the best
  one at that budget, over what that preset had: in full trainings of work, and in trials begun. Which preset is best is
  known only afterwards, and the searches for it are not counted.
- `all`: what the family needs to be as good as the best of all presets, each searched alone for so long, over what
  those searches took together.
- `by hand`: what somebody needs to be as good as the preset that is the best one at a budget, over that budget, who
  searches each preset alone for so long and then goes on with the one whose best value is the best.

With `--prior tables` searches are told of the shipped table's configs of other workloads, which it has of all but
`shampoo-sgd`; with `--prior jobs` of what one earlier search of the same kind on the other table has found: the
family's of the best config, whichever member's it is, and a preset's of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from search_spaces import SearchSpace
from service.scheduler.policy.searching.search_prior import KnownConfig
from service.transfer.candidates import Source, SourceKind, TransferCandidate
from service.transfer.rules import TunedConfig
from tests.benchmarks.answers.recommendation_regret import names_of
from tests.benchmarks.report import Cell, print_table, report
from tests.benchmarks.search.job_simulation import (
    SimulatedSearch,
    searched,
)
from tests.benchmarks.search.landscapes import Landscape, TableFamily
from tests.benchmarks.search.make_seed_curves import TASKS
from tests.benchmarks.search.priors import known_among, lengths_without, shipped_but, situation_of
from tests.benchmarks.search.seed_tables import read_seed_table

TABLES = ("digits-mlp-family", "digits-convnet-family")
BUDGETS = (5, 10, 20)
"""Full trainings of a preset."""
EACH = (4, 8)
"""Full trainings of each preset, where all of them are searched."""
MOST = 40
"""Full trainings of the family."""
PRIORS = ("none", "tables", "jobs")
EARLIER = 10
"""Full trainings of an earlier search."""
NUM_EARLIER = 8
"""Earlier searches, of which each search is told of one."""
MANY = 10**6
"""Trials: more than any budget allows."""
NUM_BOOTSTRAP = 200
FAMILY = "family"
FIRST_EARLIER = 5000
"""Seed of the first of the earlier searches."""


@dataclass(frozen=True, slots=True)
class Point:
    """A search when a trial of it was complete."""

    num_started: int
    """Trials begun."""
    trainings: float
    """Work until then, in full trainings."""
    value: float
    """The best one that it saw."""
    mean: float
    """The true mean of that config."""


@dataclass(frozen=True, slots=True)
class Course:
    """How good a search is, as it goes on."""

    points: Sequence[Point]
    """The first one before anything is complete."""

    def after(self, trainings: float) -> Point:
        """The search after so many trainings."""
        return next(point for point in reversed(self.points) if point.trainings <= trainings + 1e-9)

    def after_trials(self, num_started: float) -> Point:
        """The search when so many trials have been begun, and no more."""
        return next(point for point in reversed(self.points) if point.num_started <= num_started)


def course_of(landscape: Landscape, search: SimulatedSearch, *, before: float) -> Course:
    """The course of a search on a landscape.

    Args:
        before: the true mean that counts while nothing is complete.
    """
    points = [Point(0, 0.0, math.inf, before)]
    for one in search.completions:
        best = points[-1]
        value, mean = best.value, best.mean
        if one.value < best.value:
            value, mean = one.value, landscape.mean(search.parameters[one.number])
        points.append(Point(one.num_started, one.num_units / landscape.num_units, value, mean))
    return Course(points)


@dataclass(frozen=True, slots=True)
class Need:
    """The need of the family, over that of what it is compared with; with `is_more`, more than that."""

    ratio: float
    is_more: bool

    def __str__(self) -> str:
        return f"{'over ' if self.is_more else ''}{self.ratio:.2f}"


def needed(family: Sequence[Course], target: float, over: float, *, by_trials: bool = False) -> Need:
    """The least that the family's searches needed to be as good as the target on average, over something."""
    ends = sorted({point.num_started if by_trials else point.trainings for c in family for point in c.points})
    for end in ends:
        points = (course.after_trials(end) if by_trials else course.after(end) for course in family)
        if statistics.fmean(point.mean for point in points) <= target:
            return Need(end / over, False)
    return Need((ends[-1] if by_trials else MOST) / over, True)


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of the family, against the preset that is the best one at a budget."""

    best: str
    trainings: Need
    trials: Need


def costs(family: Sequence[Course], alone: Mapping[str, Sequence[Course]], budget: float) -> Costs:
    """The best preset at a budget of full trainings, and what the family needs over it."""
    means = {name: statistics.fmean(course.after(budget).mean for course in own) for name, own in alone.items()}
    best = min(means, key=means.__getitem__)
    num_started = statistics.fmean(course.after(budget).num_started for course in alone[best])
    trials = needed(family, means[best], num_started, by_trials=True)
    return Costs(best, needed(family, means[best], budget), trials)


def costs_of_all(family: Sequence[Course], alone: Mapping[str, Sequence[Course]], each: float) -> Need:
    """The family's need to be as good as the best of searches of all presets, over what those took together."""
    searches = zip(*alone.values(), strict=True)
    found = [min((course.after(each) for course in own), key=lambda point: point.value) for own in searches]
    return needed(family, statistics.fmean(point.mean for point in found), each * len(alone))


def by_hand(alone: Mapping[str, Sequence[Course]], explored: float) -> list[Course]:
    """The courses of searches of all presets for so many trainings each, one training of each in turn, and then of the
    one whose best value is the best."""
    found = []
    for own in zip(*alone.values(), strict=True):
        chosen = min(own, key=lambda course: course.after(explored).value)
        others = (len(own) - 1) * explored
        points = [
            dataclasses.replace(point, trainings=len(own) * point.trainings)
            for course in own
            for point in course.points
            if point.trainings <= explored
        ]
        points += [
            dataclasses.replace(point, trainings=others + point.trainings)
            for point in chosen.points
            if point.trainings > explored
        ]
        best = Point(0, 0.0, math.inf, own[0].points[0].mean)
        course = [best]
        for point in sorted(points, key=lambda point: point.trainings):
            best = min(best, point, key=lambda one: one.value)
            course.append(dataclasses.replace(point, value=best.value, mean=best.mean))
        found.append(Course(course))
    return found


def spread_of(family: Sequence[Course], alone: Mapping[str, Sequence[Course]], budget: float) -> tuple[Need, Need]:
    """The 80% interval of the cost in trainings, over draws of the searches."""
    rng = random.Random("bootstrap")
    drawn = []
    for _ in range(NUM_BOOTSTRAP):
        ours = rng.choices(family, k=len(family))
        theirs = {name: rng.choices(own, k=len(own)) for name, own in alone.items()}
        drawn.append(costs(ours, theirs, budget).trainings)
    drawn.sort(key=lambda need: need.ratio)
    tenth = NUM_BOOTSTRAP // 10
    return drawn[tenth], drawn[-1 - tenth]


@dataclass(frozen=True, slots=True)
class Told:
    """The configs that the searches of a table are told of."""

    table: str
    prior: str
    search: str

    def known(self, preset_name: str, space: SearchSpace, number: int) -> Sequence[KnownConfig]:
        """The configs that the search with that number of a preset is told of."""
        if self.prior == "none":
            return ()
        target = situation_of(TASKS[self.table])
        if self.prior == "tables":
            return known_among(space, shipped_but(target), target)
        other = next(name for name in TABLES if name != self.table)
        earlier = _earlier_winner(other, preset_name, self.search, number % NUM_EARLIER)
        source = Source(SourceKind.STORE, other)
        return known_among(space, [TransferCandidate(earlier, source, situation_of(TASKS[other]))], target)

    @property
    def lengths(self) -> Mapping[str, float]:
        """The length scales that `auto` expects beside known configs."""
        return lengths_without(TASKS[self.table].workload)


@functools.cache
def _earlier_winner(table: str, preset_name: str, search: str, number: int) -> TunedConfig:
    """The config that a search of a preset on a table has found, which was told of nothing."""
    family = landscape_of(table)
    landscape: Landscape = family if preset_name == FAMILY else family.alone()[preset_name]
    units = EARLIER * landscape.num_units
    ended = searched(landscape, search, MANY, FIRST_EARLIER + number, max_units=units)
    best = min(ended.completed, key=ended.completed.__getitem__)
    assigned = landscape.space.assign(ended.parameters[best])
    return TunedConfig(assigned.optimizer, assigned.optimizer_arguments, {"decay": "cosine", **assigned.schedule})


@functools.cache
def landscape_of(name: str) -> TableFamily:
    """The family on the table of that name."""
    return TableFamily(read_seed_table(name), num_steps=TASKS[name].num_steps)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", type=names_of(TABLES), default=list(TABLES), help="tables of real curves, by name")
    parser.add_argument("--search", default="auto", help="search, as in recommendation_regret (default: auto)")
    parser.add_argument("--searches", type=int, default=20, help="searches of each preset and table (default: 20)")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first search; the others follow it")
    parser.add_argument("--prior", choices=PRIORS, default="none", help="what searches know before (default: none)")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    given = _parsed(arguments)
    figures: dict[str, object] = {
        "num_searches": given.searches,
        "first_seed": given.first_seed,
        "search": given.search,
        "prior": given.prior,
    }
    columns = ("table, full trainings", "best preset", "trainings", "80% of draws", "trials", *_by_hand_columns())
    rows: list[list[Cell]] = []
    all_rows: list[list[Cell]] = []
    ratios: dict[str, list[float]] = {}
    for name in given.tables:
        landscape, told = landscape_of(name), Told(name, given.prior, given.search)
        before = _median_mean(landscape)
        seeds = range(given.first_seed, given.first_seed + given.searches)
        family = _courses(FAMILY, landscape, told, seeds, MOST, before=before)
        alone = {
            preset_name: _courses(preset_name, side, told, seeds, max(BUDGETS), before=before)
            for preset_name, side in landscape.alone().items()
        }
        hands = [by_hand(alone, each) for each in EACH]
        for budget in BUDGETS:
            cost, (low, high) = costs(family, alone, budget), spread_of(family, alone, budget)
            of_hands = [costs(hand, alone, budget).trainings for hand in hands]
            row = [f"{name}, {budget}", cost.best, str(cost.trainings), f"{low} to {high}", str(cost.trials)]
            rows.append([*row, *map(str, of_hands)])
            for kind, need in (("trainings", cost.trainings), ("trials", cost.trials)):
                ratios.setdefault(f"family_{kind}_over_best_preset_at_{budget}", []).append(need.ratio)
                figures[f"{name}.{budget}.{kind}"] = {"ratio": need.ratio, "is_more": need.is_more}
            for each, need in zip(EACH, of_hands, strict=True):
                figures[f"{name}.{budget}.by_hand_{each}"] = {"ratio": need.ratio, "is_more": need.is_more}
        for each in EACH:
            need = costs_of_all(family, alone, each)
            all_rows.append([f"{name}, {each} of each", str(need)])
            ratios.setdefault(f"family_trainings_over_all_presets_at_{each}_each", []).append(need.ratio)
            figures[f"{name}.{each}_each"] = {"ratio": need.ratio, "is_more": need.is_more}
        print_table(columns, rows[-len(BUDGETS) :])
        print_table(("table, full trainings", "all"), all_rows[-len(EACH) :])
    medians = {key: statistics.median(values) for key, values in ratios.items()}
    report("family_cost", columns=columns, rows=rows, figures=figures, ratios=medians, json_file=given.json)


def _by_hand_columns() -> list[str]:
    return [f"by hand, {each} of each" for each in EACH]


def _courses(
    preset_name: str, own: Landscape, told: Told, seeds: Sequence[int], trainings: int, *, before: float
) -> list[Course]:
    units = trainings * own.num_units
    found = []
    for number, seed in enumerate(seeds):
        known = told.known(preset_name, own.space, number)
        ended = searched(own, told.search, MANY, seed, max_units=units, known=known, lengths=told.lengths)
        found.append(course_of(own, ended, before=before))
    return found


def _median_mean(landscape: Landscape) -> float:
    """The true mean of a middling random config: what a search has before a trial is complete."""
    rng = random.Random("before")
    means = (landscape.mean(landscape.space.sample(rng)) for _ in range(300))
    return statistics.median(mean for mean in means if math.isfinite(mean))


if __name__ == "__main__":
    main()
