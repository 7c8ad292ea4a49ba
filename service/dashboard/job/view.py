"""A job's page as plain values: words and numbers for people, made from rows. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from service.domain import Direction, JobState, Phase, TrialState
from service.errors import InvalidInput
from service.evidence.best_values import BestTrial
from service.evidence.caveat_kinds import Caveat, CaveatKind
from service.evidence.health.cards import HealthKind
from service.evidence.in_words.speed import step_words
from service.evidence.in_words.told_interval import told_interval
from service.evidence.in_words.wording import (
    DASH,
    cost_words,
    counted,
    device_time_parts,
    duration,
    number,
    signed_share,
    spread,
)
from service.evidence.in_words.words import AT_EQUAL, Answer, answer_by_values, answer_of
from service.evidence.recommended import PasteableConfig
from service.evidence.types import Evidence
from service.specification.job import JobSpecification, MovedConfig
from service.specification.phases import known_configs_tried, spaces_of
from service.store.repositories.of_trials.trial_columns import UnfinishedTrial
from service.use_cases.progress import JobProgress

NOTHING_TO_COMPARE = "There is nothing to compare the best value with."
MENDED_BY_A_CLONE = frozenset(
    {
        CaveatKind.ONE_SEED,
        CaveatKind.AT_THE_EDGE,
        CaveatKind.NO_BASELINE,
        CaveatKind.UNEQUAL_TRIALS,
        CaveatKind.UNEQUAL_START,
        CaveatKind.UNEQUAL_OPTIONS,
        CaveatKind.SEEDS_ALIKE,
        CaveatKind.NO_FRONT,
    }
)
MENDED_BY_MORE_BUDGET = frozenset({CaveatKind.ENDED_EARLY, CaveatKind.NOT_CONFIRMED})
BAR_STATES = (TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED, TrialState.RUNNING)
"""States in the order in which the bar of a budget shows them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the answer's card."""

    term: str
    """The quantity that the value is of."""
    value: str
    spread: str = ""
    """The words beside the value: its spread over seeds, or its unit."""
    notes: Sequence[str] = ()
    """Below it."""
    role: Literal["search", "baseline", "other"] = "other"
    """The side whose colour it has."""


@dataclass(frozen=True, slots=True)
class AdvicePlace:
    """A place where advice on a job's health is followed."""

    name: str
    """The words of the button or the heading there."""
    address: str


@dataclass(frozen=True, slots=True)
class KnownConfigsOfSearch:
    """The configs of other models that a search begins with, in words."""

    told: str
    """The number that it tries: `begins with 2 of 3 known configs`."""
    explained: str
    """The models that they were tuned for, and why not all are tried."""


def known_configs_of(specification: JobSpecification, num_steps: int) -> KnownConfigsOfSearch | None:
    """The words about a search's known configs; None: it was given none.

    Args:
        num_steps: steps of a trial.
    """
    given = [entry for entry in specification.pinned if isinstance(entry, MovedConfig)]
    if not given:
        return None
    try:
        space = spaces_of(specification, num_steps=num_steps)[Phase.SEARCH]
        num_tried = len(known_configs_tried(specification, space))
    except InvalidInput:
        num_tried = len(given)  # an older version ran it, in whose space they lay
    told = f"begins with {counted(len(given), 'known config')}"
    explained = f"Tuned for {'; '.join(entry.source for entry in given)}, and moved to this model."
    if num_tried < len(given):
        told = f"begins with {num_tried or 'none'} of {counted(len(given), 'known config')}"
        explained += " The budget of the search is too small for all of them."
    return KnownConfigsOfSearch(told, explained)


def state_in_title(state: JobState, progress: JobProgress) -> str:
    """The state of a job before its name, as short as a tab of a browser is: `12/56`, `paused:`."""
    return f"{progress.num_finished}/{progress.num_trials}" if state is JobState.RUNNING else f"{state}:"


def places_of(kind: HealthKind, job_id: str, *, may_clone: bool) -> list[AdvicePlace]:
    """The places that the advice of a finding leads to.

    Args:
        may_clone: whether the reader may submit a job like this one, or let it go on.
    """
    found = []
    if kind is HealthKind.MANY_DIVERGED:
        found.append(AdvicePlace("Failed trials", f"/jobs/{job_id}?state=failed#trials-section"))
    if kind is HealthKind.EARLY_VALUES_MISLEAD:
        found.append(AdvicePlace("Pruned trials", f"/jobs/{job_id}?state=pruned#trials-section"))
    if kind is HealthKind.STILL_IMPROVING:
        return [AdvicePlace("Change budget", "#change-budget")] if may_clone else []
    return [*found, AdvicePlace("Edit and clone", f"/jobs/new?clone={job_id}")] if may_clone else found


def places_of_failure(job_id: str, progress: JobProgress, *, may_clone: bool) -> list[AdvicePlace]:
    """The places where what made a job fail is looked at and mended.

    Args:
        may_clone: as `places_of` takes it.
    """
    has_failed_trials = progress.trials.get(TrialState.FAILED, 0) > 0
    found = [AdvicePlace("Failed trials", f"/jobs/{job_id}?state=failed#trials-section")] if has_failed_trials else []
    return [*found, AdvicePlace("Edit and clone", f"/jobs/new?clone={job_id}")] if may_clone else found


def places_of_caveat(caveat: Caveat, job_id: str, *, may_clone: bool) -> list[AdvicePlace]:
    """The places where a caveat is followed: the page of its trial, and where it can be mended.

    Args:
        may_clone: as `places_of` takes it.
    """
    number = caveat.trial
    trial = [] if number is None else [AdvicePlace(f"Trial {number}", f"/jobs/{job_id}/trials/{number}")]
    if caveat.kind in MENDED_BY_A_CLONE and may_clone:
        return [*trial, AdvicePlace("Edit and clone", f"/jobs/new?clone={job_id}")]
    if caveat.kind in MENDED_BY_MORE_BUDGET and may_clone:
        return [*trial, AdvicePlace("Change budget", "#change-budget")]
    return trial


def searched_beside(config: PasteableConfig, names: Collection[str]) -> dict[str, Any]:
    """The values of a recommended config that were searched and that neither its optimizer nor its schedule takes, by
    their names in a space: `training.batch_size`, `workload.width`.

    Args:
        names: of all parameters of the job's spaces.
    """
    training = {f"training.{name}": value for name, value in config.training.items()}
    options = {f"workload.{name}": value for name, value in config.workload_options.items()}
    return {name: value for name, value in (training | options).items() if name in names}


def figures(
    progress: JobProgress,
    labels: Mapping[str, str],
    *,
    has_baseline: bool,
    evidence: Evidence | None,
    currency: str | None,
    ahead: Mapping[Phase, UnfinishedTrial],
    is_running: bool = False,
) -> list[Figure]:
    """The numbers behind the answer: the best values, by how much they differ, how soon one was reached, the cost.

    Args:
        labels: what each phase tunes; of the baselines, the one with the best value.
        evidence: of the job's recommendation, once it has ended.
        currency: the currency of the cost.
        ahead: the trial that has come to the best value, for each phase without a completed trial.
        is_running: whether numbers are still to come: a cost that is not known yet has its place.
    """
    found = [_best_figure(labels[Phase.SEARCH], progress.best, ahead.get(Phase.SEARCH), "search")]
    if has_baseline:
        found.append(
            _best_figure(labels[Phase.BASELINE], progress.baseline_best, ahead.get(Phase.BASELINE), "baseline")
        )
    result = None if evidence is None else evidence.confirmation
    if evidence is not None and evidence.improvement is not None and result is not None and result.improvement:
        low, high = told_interval(evidence, result.improvement)
        interval = f"{result.confidence:.0%} interval {signed_share(low)} to {signed_share(high)}"
        seeds = f"over {len(result.seeds)} new seeds, {AT_EQUAL[evidence.currency]}"
        found.append(Figure("Improvement", signed_share(evidence.improvement), notes=[interval, seeds]))
    if evidence is not None and (reached := evidence.reached_baseline) is not None:
        has_time = reached.seconds_ratio is not None
        after = f", {duration(reached.seconds)}" if has_time else ""
        theirs = f"{labels[Phase.BASELINE]} itself: step {reached.baseline_step:.0f}"
        theirs += f", {duration(reached.baseline_seconds)}" if has_time else ""
        term = f"Reached {labels[Phase.BASELINE]}'s best"
        found.append(Figure(term, f"{step_words(reached)}{after}", notes=[theirs]))  # by how much, the words below say
    if progress.device_hours or is_running:
        cost = cost_words(progress.cost, currency, None)
        spent, unit = device_time_parts(progress.device_hours) if progress.device_hours else (DASH, "")
        found.append(Figure("Cost of the search", spent, unit, notes=[cost] if cost else []))
    return found


def _best_figure(
    label: str, best: BestTrial | None, early: UnfinishedTrial | None, role: Literal["search", "baseline"]
) -> Figure:
    is_baseline = role == "baseline"
    term = f"{label} best (baseline)" if is_baseline else f"{label} best"
    if best is None and early is not None and early.value is not None:
        missing = "no baseline completed" if is_baseline else "no trial completed"
        notes = [f"#{early.number} at step {early.step} of {early.num_steps}", missing]
        return Figure(f"{label} so far", number(early.value), notes=notes, role=role)
    if best is None:
        return Figure(term, DASH, notes=["no completed trial"], role=role)
    deviation = "" if best.standard_deviation is None else spread(best.standard_deviation)
    whose = f"{best.basis}, {'config of ' if best.num_new_seeds else ''}trial #{best.number}"
    return Figure(term, number(best.value), deviation, [whose], role)


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


def _waiting(state: JobState) -> str:
    return {
        JobState.QUEUED: "The job waits for a worker.",
        JobState.RUNNING: "The first trials are training.",
        JobState.PAUSED: "The job is paused.",
    }.get(state, "So there is no best value.")


@dataclass(frozen=True, slots=True)
class BarSegment:
    """A stretch of a budget bar, in percent of its width."""

    state: TrialState
    start: float
    width: float


def bar_of(progress: JobProgress) -> list[BarSegment]:
    """The stretches of a job's budget bar, finished trials first; what is left of 100 is not begun."""
    segments: list[BarSegment] = []
    start = 0.0
    for state in BAR_STATES:
        width = 100.0 * progress.trials.get(state, 0) / max(1, progress.num_trials)  # a job that ended at once had none
        if width:
            segments.append(BarSegment(state, round(start, 3), round(width, 3)))
            start += width
    return segments
