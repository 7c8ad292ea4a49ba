"""The pages' content as plain values: words and numbers for people, made from rows. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from service.domain import Direction, JobState, Phase, TrialState
from service.evidence.types import Evidence, SeedResult
from service.evidence.wording import chance
from service.evidence.words import Answer, answer_by_values, answer_of
from service.store.repositories import ListedTrial
from service.use_cases.progress import JobProgress

NOTHING_TO_COMPARE = "There is nothing to compare the best value with."
BAR_STATES = (TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED, TrialState.RUNNING)


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A stretch of a budget bar, in percent of its width."""

    state: TrialState
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class SeedRow:
    """A config's results with each seed of the confirmation."""

    number: int
    """The trial that found it."""
    is_best: bool
    is_baseline: bool
    found_value: float
    """Its objective in the search."""
    mean: float | None
    standard_deviation: float | None
    chance_best: str | None
    """That it is in truth the best of its side, in words."""
    results: list[SeedResult | None]
    """For each of the table's seeds; None: not trained."""


@dataclass(frozen=True, slots=True)
class SeedTable:
    """The confirmation of a job."""

    seeds: list[int]
    choosing: list[int]
    """Those of the seeds that chose the configs, and do not compare them."""
    rows: list[SeedRow]

    @property
    def has_gaps(self) -> bool:
        """True if a config was not trained with all of the seeds, or was and takes no part in the comparison."""
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


def ago(then: datetime, now: datetime) -> str:
    """The time before `now`, in one unit; `static/times.js` keeps it true in an open page."""
    seconds = (now - then).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def iso(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def absolute(moment: datetime) -> str:
    """Date and time in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def bar(progress: JobProgress) -> list[BarSegment]:
    """The stretches of a job's budget bar, finished trials first; what is left of 100 is not begun."""
    segments: list[BarSegment] = []
    start = 0.0
    for state in BAR_STATES:
        width = 100.0 * progress.trials.get(state, 0) / progress.num_trials
        if width:
            segments.append(BarSegment(state, round(start, 3), round(width, 3)))
            start += width
    return segments


def remarked(trials: Sequence[ListedTrial]) -> ListedTrial | None:
    """The newest completed trial of those shown whose measurements remarked something of the data."""
    return max(
        (trial for trial in trials if trial.state is TrialState.COMPLETED and trial.detail),
        key=lambda trial: trial.number,
        default=None,
    )


def answer(
    state: JobState,
    direction: Direction,
    progress: JobProgress,
    labels: Mapping[Phase, str],
    *,
    has_baseline: bool,
    evidence: Evidence | None = None,
) -> Answer:
    """The comparison of the search's best with the baselines', whichever way it went.

    Args:
        labels: what the search tunes, and what it is compared with.
        evidence: of the job's recommendation: once the job has ended, it decides.
    """
    best, baseline = progress.best, progress.baseline_best
    ours, theirs = labels[Phase.SEARCH], labels[Phase.BASELINE]
    is_over = state.is_final
    found = answer_of(evidence) if is_over and has_baseline and evidence is not None else None
    if found is not None:
        return found
    if best is None:
        missing = f"No {ours} trial completed" if is_over else f"No {ours} trial has completed yet"
        return Answer("open", missing, _waiting(state))
    if not has_baseline:
        return Answer("open", "No baseline was asked for", NOTHING_TO_COMPARE)
    if baseline is None:
        missing = "No baseline trial completed" if is_over else "No baseline trial has completed yet"
        return Answer("open", missing, NOTHING_TO_COMPARE)
    return answer_by_values(best.value, baseline.value, direction, ours=ours, theirs=theirs, is_over=is_over)


def seed_table(evidence: Evidence | None) -> SeedTable | None:
    """The confirmation behind a recommendation; None: there was none."""
    result = None if evidence is None else evidence.confirmation
    if evidence is None or result is None:
        return None
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
                mean=config.mean,
                standard_deviation=config.standard_deviation,
                chance_best=None if config.probability_best is None else chance(config.probability_best),
                results=[by_seed.get(seed) for seed in seeds],
            )
        )
    return SeedTable(seeds, result.choosing_seeds, rows)


def _waiting(state: JobState) -> str:
    return {
        JobState.QUEUED: "The job waits for a worker.",
        JobState.RUNNING: "The first trials are training.",
        JobState.PAUSED: "The job is paused.",
    }.get(state, "So there is no best value.")


def parameter_names(trials: Sequence[ListedTrial]) -> list[str]:
    """Every parameter that a trial sampled: those of the search first, in the order they appear."""
    names: dict[str, None] = {}
    for phase in Phase:
        for trial in trials:
            if trial.phase is phase:
                names.update(dict.fromkeys(trial.parameters))
    return list(names)


@dataclass(frozen=True, slots=True)
class ListAddress:
    """The address of a page of the list of jobs, and of others beside it with the same filters."""

    asked: Sequence[tuple[str, str]]
    """Names and values of the query."""

    @property
    def others(self) -> list[tuple[str, str]]:
        """What the search form keeps as it is: all that it has no field for."""
        tags = [pair for pair in self.asked if pair[0] == "tag"][1:]
        return self._without("before", "text", "archived", "tag") + tags

    @property
    def first_tag(self) -> str:
        """Of those that are asked for, the one in the search form."""
        return next((value for name, value in self.asked if name == "tag"), "")

    @property
    def is_narrowed(self) -> bool:
        """True if jobs may be left out by what was asked."""
        return any(value for pair in self.asked if pair != ("archived", "false") for value in pair[1:])

    def with_state(self, state: str | None) -> str:
        """The first page with jobs in a state alone; None: in any."""
        return self._to([*self._without("state", "before"), *([] if state is None else [("state", state)])])

    def before(self, job_id: str | None) -> str:
        """The page that begins behind a job; None: the first one."""
        return self._to([*self._without("before"), *([] if job_id is None else [("before", job_id)])])

    def _without(self, *names: str) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.asked if name not in names]

    def _to(self, pairs: Sequence[tuple[str, str]]) -> str:
        return f"/?{urlencode(pairs)}" if pairs else "/"
