"""The health of a job, from its rows: the questions to `service.evidence.health`, and its answers."""

from __future__ import annotations

from search_spaces import Scalar
from service.domain import JobState, Phase, Side
from service.evidence.health.cards import HealthCard, SearchedJob, SearchedTrial
from service.evidence.health.findings import health_of
from service.evidence.insights import SideInsights
from service.evidence.types import Evidence
from service.specification.phases import spaces_of
from service.store.models import Job
from service.store.repositories import InsightsRepository, TrialColumnsRepository
from service.store.session import Session
from service.use_cases.progress import JobProgress
from service.use_cases.untuned.presets import better_preset


def health_of_job(session: Session, job: Job, progress: JobProgress, evidence: Evidence | None) -> list[HealthCard]:
    """The findings about a job, warnings first, with a few statements.

    Args:
        evidence: the evidence of its recommendation, if it has one.
    """
    columns = TrialColumnsRepository(session)
    outcomes = [SearchedTrial(*row) for row in columns.outcomes(job.id)]
    specification = job.specification
    is_over = job.state.is_final
    return health_of(
        SearchedJob(
            direction=job.direction,
            outcomes=outcomes,
            evidence=evidence if is_over else None,
            is_over=is_over,
            ended_by_budget=job.state is JobState.SUCCEEDED,
            spaces=spaces_of(specification),
            # A caveat says the same about a recommended config, and advice that appears twice looks like two.
            best_parameters=_best_parameters(columns, job, progress) if evidence is None else {},
            insights=_of_search(session, job),
            training_seconds=0.0 if job.is_external else progress.training_seconds,
            elapsed_seconds=progress.seconds_elapsed or 0.0,
            parallel_trials=specification.resources.parallel_trials or 1,
            better_preset=better_preset(session, job) if is_over and evidence is not None else None,
        )
    )


def _of_search(session: Session, job: Job) -> SideInsights | None:
    """The insights into the job's search, if there are any yet."""
    row = InsightsRepository(session).of_job(job.id)
    sides = [] if row is None else row.insights.sides
    return next((own for own in sides if own.side == Phase.SEARCH), None)


def _best_parameters(columns: TrialColumnsRepository, job: Job, progress: JobProgress) -> dict[Side, dict[str, Scalar]]:
    """The sampled values of the best trial of the search, and of the best one of all baselines."""
    best: dict[Side, int] = {}
    if progress.best is not None:
        best[Phase.SEARCH] = progress.best.number
    if progress.baseline_best is not None and progress.baseline_optimizer is not None:
        best[progress.baseline_optimizer] = progress.baseline_best.number
    sampled = columns.parameters(job.id, list(best.values())) if best else {}
    return {side: sampled[number] for side, number in best.items() if number in sampled}
