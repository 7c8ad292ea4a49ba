"""Jobs side by side as plain values for their page: what they found, and how far that compares. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.dashboard.compare.differences import ComparedConfig
from service.evidence.best_values import BestTrial
from service.evidence.in_words.standing import standing_of
from service.evidence.in_words.told_interval import told_interval
from service.evidence.in_words.wording import (
    DASH,
    cost_words,
    device_time,
    duration,
    number,
    optimizer_title,
    signed_share,
    spread,
)
from service.evidence.in_words.words import Answer
from service.evidence.types import Evidence
from service.store.models import Job
from service.use_cases.progress import JobProgress

LETTERS = "ABCDEF"
"""Letters that tell the jobs apart: no more are compared at once."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A job among others."""

    letter: str
    job: Job
    progress: JobProgress
    answer: Answer
    """Its comparison with its own baseline."""
    evidence: Evidence | None
    recommendation_id: str | None
    data_digest: str | None
    """The digest of the data that its recommended config was trained on; None: not known."""
    config: ComparedConfig
    """The config of its best trial; without settings: there is none."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the improvement over its baseline, as it is told; None: nothing was compared over seeds."""
        result = None if self.evidence is None else self.evidence.confirmation
        if self.evidence is None or result is None or result.improvement is None:
            return None
        return told_interval(self.evidence, result.improvement)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a job in a row: a text, and a smaller one below."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of what the jobs found."""

    name: str
    cells: list[Cell]


def facts(jobs: Sequence[Compared]) -> list[Fact]:
    """Rows that say what the jobs found and what it cost."""
    rows: list[tuple[str, Callable[[Compared], Cell]]] = [
        ("Verdict", lambda one: Cell(one.answer.headline)),
        ("Objective", lambda one: Cell(one.job.metric, one.job.direction)),
        ("Best", lambda one: _best(one.progress.best)),
        ("Baseline's best", lambda one: _best(one.progress.baseline_best, one.progress.baseline_optimizer)),
        ("Over the baseline", _improvement),
        ("Standing", _standing),
        ("Trials", _trials),
        ("Ran for", lambda one: Cell(duration(one.progress.seconds_elapsed))),
        ("Device time", lambda one: Cell(device_time(one.progress.device_hours))),
        ("Cost", lambda one: Cell(cost_words(one.progress.cost, one.job.currency, None) or DASH)),
    ]
    found = [Fact(name, [cell(one) for one in jobs]) for name, cell in rows]
    return [fact for fact in found if any(cell.text != DASH for cell in fact.cells)]


def obstacle(jobs: Sequence[Compared]) -> str | None:
    """The reason why the jobs' values cannot be drawn in one chart; None: they can."""
    groups = _groups(jobs, lambda one: (one.job.metric, one.job.direction))
    if len(groups) < 2:
        return None
    told = [
        f"{_letters(own)} {direction.value}{'s' if len(own) == 1 else ''} {metric}"
        for (metric, direction), own in groups.items()
    ]
    return (
        f"{_joined(told)}. Values of different objectives say nothing about each other: they stand in the tables alone."
    )


def cautions(jobs: Sequence[Compared]) -> list[str]:
    """All that stands in the way of a fair comparison of jobs with the same objective, a sentence each."""
    found = []
    workloads = _groups(jobs, lambda one: one.job.workload)
    if len(workloads) > 1:
        found.append(f"They train different workloads: {_told(workloads, str)}.")
    data = _groups([one for one in jobs if one.data_digest is not None], lambda one: one.data_digest)
    if len(data) > 1:
        found.append(
            f"They were trained on different data: {_joined([_letters(own) for own in data.values()])} differ."
        )
    steps = _groups(jobs, lambda one: one.job.num_steps)
    if len(steps) > 1:
        found.append(f"Their trials differ in length: {_told(steps, lambda num: f'up to {num} steps')}.")
    bases = _groups(
        [one for one in jobs if one.progress.best is not None],
        lambda one: one.progress.best is not None and one.progress.best.num_new_seeds > 0,
    )
    if len(bases) > 1:
        found.append(
            f"The best of {_letters(bases[False])} is what a search found with one seed, the luckiest of its trials; "
            f"that of {_letters(bases[True])} is a mean over new seeds. Luck flatters {_letters(bases[False])}."
        )
    running = [one for one in jobs if not one.job.state.is_final]
    if running:
        found.append(f"{_letters(running)} {'has' if len(running) == 1 else 'have'} not ended yet.")
    return found


def _best(best: BestTrial | None, optimizer: str | None = None) -> Cell:
    if best is None:
        return Cell(DASH)
    deviation = "" if best.standard_deviation is None else f" {spread(best.standard_deviation)}"
    whose = "" if optimizer is None else f"{optimizer_title(optimizer)}, "
    return Cell(f"{number(best.value)}{deviation}", f"{whose}{best.basis}, trial #{best.number}")


def _improvement(one: Compared) -> Cell:
    evidence, interval = one.evidence, one.interval
    if evidence is None or evidence.improvement is None:
        return Cell(DASH)
    if interval is None:
        return Cell("not known", "nothing was trained again with new seeds")
    return Cell(signed_share(evidence.improvement), f"{signed_share(interval[0])} to {signed_share(interval[1])}")


def _standing(one: Compared) -> Cell:
    return Cell(DASH if one.evidence is None else standing_of(one.evidence).short, one.job.state.value)


def _trials(one: Compared) -> Cell:
    return Cell(f"{one.progress.num_finished} of {one.progress.num_trials}", f"{one.progress.num_steps:,} steps")


def _groups(jobs: Sequence[Compared], key: Callable[[Compared], Any]) -> dict[Any, list[Compared]]:
    found: dict[Any, list[Compared]] = {}
    for one in jobs:
        found.setdefault(key(one), []).append(one)
    return found


def _letters(jobs: Sequence[Compared]) -> str:
    return _joined([one.letter for one in jobs])


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _told(groups: Mapping[Any, Sequence[Compared]], write: Callable[[Any], str]) -> str:
    return "; ".join(f"{_letters(own)}: {write(value)}" for value, own in groups.items())


def is_comparable(jobs: Sequence[Compared]) -> bool:
    """True if the jobs' values can be drawn in one chart."""
    return len(jobs) > 1 and obstacle(jobs) is None
