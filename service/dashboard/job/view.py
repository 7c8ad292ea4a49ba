"""A job's page as plain values: words and numbers for people, made from rows. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.domain import Direction, JobState, Phase, TrialState
from service.evidence.types import Evidence
from service.evidence.words import Answer, answer_by_values, answer_of
from service.store.repositories import ListedTrial
from service.use_cases.progress import JobProgress

NOTHING_TO_COMPARE = "There is nothing to compare the best value with."


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
