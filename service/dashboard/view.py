"""What the pages say, as plain values: words and numbers for people, made from rows. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from service.api.figures import PlotTrial
from service.domain import Direction, JobState, Phase, TrialState
from service.evidence.best_values import DASH, number
from service.evidence.recommend import compare, improvement_over
from service.evidence.types import EQUAL_WITHIN
from service.evidence.types import Verdict as Outcome
from service.store.models import Job, Trial
from service.use_cases.progress import JobProgress

OPTIMIZER_TITLES = {"shampoo": "Shampoo", "adamw": "AdamW", "sgd": "SGD"}
BAR_STATES = (TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED, TrialState.RUNNING)


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A stretch of a budget bar, in percent of its width."""

    state: TrialState
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the search's best compares with the baseline's."""

    kind: Literal["better", "worse", "equal", "open"]
    headline: str
    detail: str


@dataclass(frozen=True, slots=True)
class SeedRow:
    """What a config reached with each seed of the confirmation."""

    number: int
    """The trial that found it."""
    label: str
    is_best: bool
    is_baseline: bool
    found_value: float
    """What it reached in the search."""
    mean: float | None
    standard_deviation: float | None
    results: list[Mapping[str, Any] | None]
    """A `service.evidence.types.SeedResult` as JSON for each of the table's seeds; None: not trained."""


@dataclass(frozen=True, slots=True)
class SeedTable:
    """The confirmation of a job."""

    seeds: list[int]
    rows: list[SeedRow]

    @property
    def numbers(self) -> set[int]:
        """The trials that found the configs, and those that repeat them."""
        repeats = {result["number"] for row in self.rows for result in row.results if result is not None}
        return repeats | {row.number for row in self.rows}


def parameter(value: object) -> str:
    """A parameter's value, short enough for a table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def duration(seconds: float | None) -> str:
    """Seconds as at most two units: `8.3 s`, `2 min 05 s`, `1 h 04 min`, `3 d 02 h`."""
    if seconds is None:
        return DASH
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def ago(then: datetime, now: datetime) -> str:
    """How long before `now`, in one unit; `static/times.js` keeps it true in an open page."""
    seconds = (now - then).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def iso(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def absolute(moment: datetime) -> str:
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


def verdict(
    job: Job,
    progress: JobProgress,
    labels: Mapping[Phase, str],
    *,
    has_baseline: bool,
    evidence: Mapping[str, Any] | None = None,
) -> Verdict:
    """Compares the best of the search with the best of the baseline, and says so either way.

    Args:
        evidence: of the job's recommendation, as JSON: once the job has ended with a confirmation, it decides.
    """
    best, baseline = progress.best, progress.baseline_best
    ours, theirs = labels[Phase.SEARCH], labels[Phase.BASELINE]
    over = job.state.is_final
    if over and has_baseline and evidence is not None and _decides_by_seeds(evidence):
        return _over_seeds(evidence, ours, theirs)
    if best is None:
        missing = f"No {ours} trial completed" if over else f"No {ours} trial has completed yet"
        return Verdict("open", missing, _waiting(job.state))
    if not has_baseline:
        return Verdict("open", "No baseline was asked for", "There is nothing to compare the best value with.")
    if baseline is None:
        missing = f"No {theirs} trial completed" if over else f"No {theirs} trial has completed yet"
        return Verdict("open", missing, "There is nothing to compare the best value with.")
    return _comparison(best.value, baseline.value, ours, theirs, job.direction, over=over)


def _comparison(best: float, baseline: float, ours: str, theirs: str, direction: Direction, *, over: bool) -> Verdict:
    outcome = compare(best, baseline, direction)
    if outcome is Outcome.EQUAL:
        headline = f"{ours} and {theirs} are level" + ("" if over else " so far")
        return Verdict("equal", headline, f"Their best values differ by less than {EQUAL_WITHIN:.1%}.")
    gap, share = abs(best - baseline), improvement_over(baseline, best, direction)
    size = number(gap) if share is None else f"{abs(share):.1%}"
    relation = "lower" if best < baseline else "higher"
    detail = f"Its best value is {relation} by {number(gap, 3)}."
    if outcome is Outcome.BETTER:
        return Verdict("better", f"{ours} {'beats' if over else 'leads'} {theirs} by {size}", detail)
    return Verdict("worse", f"{ours} {'falls short of' if over else 'trails'} {theirs} by {size}", detail)


def _decides_by_seeds(evidence: Mapping[str, Any]) -> bool:
    result = evidence.get("confirmation")
    return evidence["verdict"] == Outcome.UNDECIDED or (result is not None and result["improvement_low"] is not None)


def _over_seeds(evidence: Mapping[str, Any], ours: str, theirs: str) -> Verdict:
    """What the confirmation says."""
    result, outcome = evidence["confirmation"], Outcome(evidence["verdict"])
    low, high = result["improvement_low"], result["improvement_high"]
    if low is None or high is None:
        return Verdict("open", f"{ours} and {theirs} could not be compared over new seeds", _failures(result))
    num_seeds = len(result["seeds"])
    detail = (
        f"Over {num_seeds} new seeds, the improvement lies between {low:+.1%} and {high:+.1%} "
        f"({result['confidence']:.0%} interval)."
    )
    share = "" if evidence["improvement"] is None else f" by {abs(evidence['improvement']):.1%}"
    if outcome is Outcome.BETTER:
        return Verdict("better", f"{ours} beats {theirs}{share}", detail)
    if outcome is Outcome.WORSE:
        return Verdict("worse", f"{ours} falls short of {theirs}{share}", detail)
    if outcome is Outcome.EQUAL:
        return Verdict("equal", f"{ours} and {theirs} are level", detail)
    return Verdict("open", f"{num_seeds} new seeds do not tell {ours} from {theirs}", detail)


def _failures(result: Mapping[str, Any]) -> str:
    failed = [
        f"the config of trial {config['number']} with seed {outcome['seed']}"
        for config in [*result["candidates"], *filter(None, [result["baseline"]])]
        for outcome in config["results"]
        if outcome["value"] is None and outcome["ending"] != TrialState.CANCELLED
    ]
    return f"What failed: {', '.join(failed)}."


def seed_table(evidence: Mapping[str, Any] | None, labels: Mapping[Phase, str]) -> SeedTable | None:
    """The confirmation behind a recommendation, from its evidence as JSON; None: there was none."""
    result = (evidence or {}).get("confirmation")
    if evidence is None or result is None:
        return None
    configs = [(Phase.SEARCH, config) for config in result["candidates"]]
    configs += [(Phase.BASELINE, config) for config in [result["baseline"]] if config is not None]
    seeds = sorted({outcome["seed"] for _, config in configs for outcome in config["results"]})
    rows = []
    for phase, config in configs:
        by_seed = {outcome["seed"]: outcome for outcome in config["results"]}
        rows.append(
            SeedRow(
                number=config["number"],
                label=labels[phase],
                is_best=config["number"] == evidence["best"]["number"],
                is_baseline=phase is Phase.BASELINE,
                found_value=config["found_value"],
                mean=config["mean"],
                standard_deviation=config["standard_deviation"],
                results=[by_seed.get(seed) for seed in seeds],
            )
        )
    return SeedTable(seeds, rows)


def _waiting(state: JobState) -> str:
    return {
        JobState.QUEUED: "The job waits for a worker.",
        JobState.RUNNING: "The first trials are training.",
        JobState.PAUSED: "The job is paused.",
    }.get(state, "So there is no best value.")


def phase_labels(specification: Mapping[str, Any], trials: Sequence[Trial]) -> dict[Phase, str]:
    """The optimizer that each phase tunes, as a person calls it."""
    baseline = specification.get("baseline") or {}
    spaces = {Phase.SEARCH: specification.get("search_space"), Phase.BASELINE: baseline.get("search_space")}
    labels = {Phase.SEARCH: "Search", Phase.BASELINE: "Baseline", Phase.CONFIRMATION: "Confirmation"}
    for phase, space in spaces.items():
        name = space.get("optimizer") if isinstance(space, dict) else space
        configured = next((trial.config["optimizer"]["name"] for trial in trials if trial.phase is phase), name)
        if isinstance(configured, str):
            labels[phase] = OPTIMIZER_TITLES.get(configured, configured)
    return labels


def shown_trials(trials: Sequence[Trial], always: Collection[int], *, limit: int) -> list[Trial]:
    """The newest `limit` of the trials, and before them those with the numbers `always`.

    Args:
        trials: in the order of their numbers.
    """
    return [*(trial for trial in trials[:-limit] if trial.number in always), *trials[-limit:]]


def parameter_names(trials: Sequence[Trial]) -> list[str]:
    """Every parameter that a trial sampled: those of the search first, in the order they appear."""
    names: dict[str, None] = {}
    for phase in Phase:
        for trial in trials:
            if trial.phase is phase:
                names.update(dict.fromkeys(trial.parameters))
    return list(names)


def plot_trial(trial: Trial, *, started_at: datetime | None) -> PlotTrial:
    """A trial as the charts need it."""
    origin = started_at or trial.created_at
    return PlotTrial(
        number=trial.number,
        phase=trial.phase,
        state=trial.state,
        reason=trial.reason,
        value=trial.value,
        finished_after=(trial.finished_at - origin).total_seconds() if trial.finished_at else None,
        confirms=trial.confirms,
        parameters=trial.parameters,
    )
