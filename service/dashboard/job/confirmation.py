"""The confirmation of a job as plain values: a table of its seeds, and where the marks of its chart lie. Pure
functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from service.dashboard.scale import AxisScale, Tick
from service.domain import Direction
from service.evidence.branches import Branches
from service.evidence.comparison.confirm import differences_of
from service.evidence.in_words.told_interval import told_further, told_interval
from service.evidence.in_words.wording import chance, number, signed_share, spread
from service.evidence.types import ConfirmationResult, ConfirmedConfig, Evidence, SeedResult
from service.store.repositories import ListedTrial

Role: TypeAlias = Literal["compares", "chose", "aside", "found"]
"""The role of a value: of a seed that compares, that chose or that takes no part, or of the search."""
HEIGHT = 44.0
"""Height of a lane, in pixels."""
EDGE = 9.0
"""Pixels above and below the marks of a lane."""
FURTHEST = 1.0
"""An interval has the chart be wider by at most this share of what its values span, on either side."""


@dataclass(frozen=True, slots=True)
class SeedRow:
    """A config's results with each seed of the confirmation."""

    number: int
    """The trial that found it."""
    is_best: bool
    is_baseline: bool
    found_value: float
    """Its objective in the search."""
    was_lucky: bool
    """True if its new seeds say that value was luck."""
    mean: float | None
    standard_deviation: float | None
    chance_best: str | None
    """The probability, in words, that it is in truth the best of its side."""
    results: list[SeedResult | None]
    """A result for each of the table's seeds; None: not trained."""


@dataclass(frozen=True, slots=True)
class SeedTable:
    """The results of all configs, seed by seed."""

    seeds: list[int]
    choosing: list[int]
    """The seeds that chose the configs, and do not compare them."""
    rows: list[SeedRow]

    @property
    def has_gaps(self) -> bool:
        """True if a config was not trained with one of the seeds."""
        return any(None in row.results for row in self.rows)

    @property
    def has_chances(self) -> bool:
        """True if of a config is known with what probability it is the best of its side."""
        return any(row.chance_best is not None for row in self.rows)

    @property
    def numbers(self) -> set[int]:
        """The trials that found the configs, and those that repeat them."""
        repeats = {result.number for row in self.rows for result in row.results if result is not None}
        return repeats | {row.number for row in self.rows}


@dataclass(frozen=True, slots=True)
class Mark:
    """A value in a lane."""

    x: float
    """Percent of the lane's width."""
    y: float
    """Pixels from its top: the same for the same seed in every lane."""
    role: Role
    words: str


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a lane, in percent of its width."""

    low: float
    high: float

    @property
    def width(self) -> float:
        return round(self.high - self.low, 2)


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of marks along an axis."""

    marks: list[Mark]
    mean: float | None
    """Percent of the lane's width; None: the values have no mean that counts."""
    interval: Span | None
    words: str
    """All that is drawn, for who does not see it."""


@dataclass(frozen=True, slots=True)
class ConfigLane:
    """A config's values with the new seeds."""

    row: SeedRow
    lane: Lane
    failures: list[str]
    """The seeds with which it has no value, in words."""


@dataclass(frozen=True, slots=True)
class Differences:
    """The gains of the chosen config over the baseline's, with each seed that compares."""

    lane: Lane
    zero: float
    """The place where both are level, in percent of the lane's width."""
    level: Span
    """The span of differences that count as equal."""
    ticks: list[Tick]


@dataclass(frozen=True, slots=True)
class ConfirmationView:
    """The confirmation of a job, as a chart and as a table."""

    metric: str
    direction: Direction
    confidence: float
    """The confidence of all intervals."""
    table: SeedTable
    lanes: list[ConfigLane]
    ticks: list[Tick]
    differences: Differences | None
    """None: nothing was compared."""
    branches: Branches | None
    """The choice of the space that won, as a member of a family."""


def confirmation_of(evidence: Evidence | None) -> ConfirmationView | None:
    """The confirmation behind a recommendation; None: there was none."""
    result = None if evidence is None else evidence.confirmation
    if evidence is None or result is None:
        return None
    table = _table(evidence, result)
    scale = _scale(result)
    seeds = table.seeds
    return ConfirmationView(
        metric=evidence.metric,
        direction=evidence.direction,
        confidence=result.confidence,
        table=table,
        lanes=[
            ConfigLane(row, _lane(config, result, seeds, scale), _failures(config))
            for row, config in zip(table.rows, result.configs, strict=True)
        ],
        ticks=scale.ticks(lambda value: f"{value:.4g}"),
        differences=_differences(evidence, result),
        branches=evidence.branches,
    )


def members_of(evidence: Evidence | None, trials: Sequence[ListedTrial]) -> dict[int, str]:
    """The choice of each trial, by its number, where the space is a family whose members the choices are."""
    branches = None if evidence is None else evidence.branches
    if branches is None:
        return {}
    return {
        trial.number: str(trial.parameters[branches.parameter])
        for trial in trials
        if branches.parameter in trial.parameters
    }


def _table(evidence: Evidence, result: ConfirmationResult) -> SeedTable:
    seeds = sorted({outcome.seed for config in result.configs for outcome in config.results})
    rows = []
    for config in result.configs:
        by_seed = {outcome.seed: outcome for outcome in config.results}
        is_baseline = not any(config is candidate for candidate in result.candidates)
        rows.append(
            SeedRow(
                number=config.number,
                is_best=config.number == evidence.best.number,
                is_baseline=is_baseline,
                found_value=config.found_value,
                was_lucky=config.was_lucky(evidence.direction),
                mean=config.mean,
                standard_deviation=config.standard_deviation,
                chance_best=None if config.probability_best is None else chance(config.probability_best),
                results=[by_seed.get(seed) for seed in seeds],
            )
        )
    return SeedTable(seeds, result.choosing_seeds, rows)


def _scale(result: ConfirmationResult) -> AxisScale:
    """An axis for all values of all configs, and for as much of their intervals as leaves room for these."""
    values = [config.found_value for config in result.configs]
    values += [outcome.value for config in result.configs for outcome in config.results if outcome.value is not None]
    ends = [end for config in result.configs for end in told_further(result, config) or ()]
    return AxisScale.of(values, ends, furthest=FURTHEST)


def _lane(config: ConfirmedConfig, result: ConfirmationResult, seeds: Sequence[int], scale: AxisScale) -> Lane:
    marks = [
        Mark(scale.place(config.found_value), HEIGHT / 2, "found", f"found by the search: {number(config.found_value)}")
    ]
    told = []
    for outcome in config.results:
        if outcome.value is None:
            continue
        role = _role(outcome, config, result)
        words = f"seed {outcome.seed}: {number(outcome.value)}{' (chose)' if role == 'chose' else ''}"
        marks.append(Mark(scale.place(outcome.value), _height(outcome.seed, seeds), role, words))
        told.append(words)
    further = told_further(result, config)
    interval = None if further is None else Span(*map(scale.place, further))
    if config.mean is not None and config.standard_deviation is not None:
        told.append(f"mean {number(config.mean)} {spread(config.standard_deviation)}")
    if further is not None:
        told.append(f"a further seed would lie between {number(further[0])} and {number(further[1])}")
    return Lane(
        marks=marks,
        mean=None if config.mean is None else scale.place(config.mean),
        interval=interval,
        words="; ".join([marks[0].words, *told]),
    )


def _role(outcome: SeedResult, config: ConfirmedConfig, result: ConfirmationResult) -> Role:
    if outcome.seed in result.choosing_seeds:
        return "chose"
    return "compares" if outcome.seed in result.seeds and config.mean is not None else "aside"


def _height(seed: int, seeds: Sequence[int]) -> float:
    """The height of a seed's mark in every lane, in pixels from the lane's top."""
    share = 0.5 if len(seeds) < 2 else seeds.index(seed) / (len(seeds) - 1)
    return round(EDGE + share * (HEIGHT - 2 * EDGE), 1)


def _failures(config: ConfirmedConfig) -> list[str]:
    return [
        f"seed {outcome.seed}: {str(outcome.ending).replace('_', ' ')}"
        for outcome in config.results
        if outcome.value is None
    ]


def _differences(evidence: Evidence, result: ConfirmationResult) -> Differences | None:
    found, interval = differences_of(result, evidence.direction), result.improvement
    baseline = result.baseline
    if not found or interval is None or baseline is None or not baseline.mean or evidence.improvement is None:
        return None
    interval = told_interval(evidence, interval)
    compared = next(iter(evidence.comparisons), None)
    if compared is not None and (compared.value, compared.baseline_value) != (evidence.best.value, baseline.mean):
        return None  # at equal spending the two had other values than in the end, which alone are known by seed
    shares = [difference / abs(baseline.mean) for difference in found]
    equal = evidence.equal_within
    scale = AxisScale.of([*shares, -equal, equal], interval, furthest=FURTHEST)
    marks = [
        Mark(scale.place(share), _height(seed, result.seeds), "compares", f"seed {seed}: {signed_share(share)}")
        for seed, share in zip(result.seeds, shares, strict=True)
    ]
    mean = sum(shares) / len(shares)
    words = [mark.words for mark in marks]
    words += [f"mean {signed_share(mean)}", f"interval {signed_share(interval[0])} to {signed_share(interval[1])}"]
    return Differences(
        lane=Lane(marks, scale.place(mean), Span(scale.place(interval[0]), scale.place(interval[1])), "; ".join(words)),
        zero=scale.place(0.0),
        level=Span(scale.place(-equal), scale.place(equal)),
        ticks=scale.ticks(lambda share: f"{100 * share:+.4g}%" if share else "0%"),
    )
