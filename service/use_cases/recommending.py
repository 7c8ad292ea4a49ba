"""The recommendation of a job, made from its trials when it ends, and stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ulid import ULID

from service.domain import TrialState
from service.evidence.best_values import score_of
from service.evidence.finished_trial import FinishedTrial
from service.evidence.recommend import recommend
from service.evidence.recommended import Ranks, RecommendedConfig
from service.evidence.transfers import HeadStart, MovedStart
from service.specification.job import JobSpecification, MovedConfig
from service.specification.length import currency_of
from service.specification.phases import confirmation_of, num_searched, spaces_of
from service.specification.planning import confirmation_seeds
from service.store.models import Job, RecommendationRow, Trial
from service.store.repositories import EventRepository, RecommendationRepository
from service.store.session import Session
from service.use_cases.submit import parameter_groups_of
from trainers.identity.values import digest_of, versions_of_measures


def store_recommendation(session: Session, job: Job, trials: Sequence[Trial], *, now: datetime) -> bool:
    """Makes the recommendation of a locked job, in place of an earlier one; False: no search trial completed.

    Args:
        trials: all of the job's, with their measurements; each has ended.
    """
    sizes, spaces = confirmation_of(job.specification), spaces_of(job.specification)
    recommendation = recommend(
        [_finished(trial) for trial in trials],
        objectives=job.objectives,
        num_planned=num_searched(job.specification),
        seeds=confirmation_seeds(job.specification),
        top_k=1 if sizes is None else sizes.top_k,
        num_baselines=len(job.specification.baselines),
        parameter_groups=parameter_groups_of(job),
        spaces=spaces,
        currency=currency_of(job.specification, spaces),
        takes_equal_seconds=bool(job.specification.step_times),
        head_start=_head_start(job.specification),
        num_ranks=job.specification.resources.workers_per_trial,
    )
    if recommendation is None:
        return False
    resources = job.specification.resources
    ranks = Ranks(
        number=resources.workers_per_trial,
        device=resources.device,
        num_threads=resources.threads_per_worker,
    )
    keeps_weights = job.specification.keep_weights and job.specification.external is None
    recommendation = recommendation.model_copy(
        update={"ranks": ranks, "code_sha256": job.code_sha256, "keeps_weights": keeps_weights}
    )
    best = next(trial for trial in trials if trial.number == recommendation.evidence.best.number)
    RecommendationRepository(session).replace(_stored(job, best, recommendation, now=now))
    EventRepository(session).add(job.id, "job.recommendation", {}, now)
    return True


def _head_start(specification: JobSpecification) -> HeadStart:
    moved, *baselines_moved = (
        [entry for entry in pinned if isinstance(entry, MovedConfig)] for pinned in specification.pinned_of_sides
    )
    num_pinned, *baselines_pinned = (
        sum(not isinstance(entry, MovedConfig) for entry in pinned) for pinned in specification.pinned_of_sides
    )
    return HeadStart(
        moved=[MovedStart(entry.source, entry.distance, entry.parameters) for entry in moved],
        num_pinned=num_pinned,
        num_imported=len(specification.imported),
        baselines_moved=[len(entries) for entries in baselines_moved],
        baselines_pinned=baselines_pinned,
    )


def _stored(job: Job, best: Trial, recommendation: RecommendedConfig, *, now: datetime) -> RecommendationRow:
    """The row of a recommendation of a job, with the model and data that it is for, taken from its best trial."""
    resources, config = job.specification.resources, best.stored_config
    score = score_of(recommendation.evidence)
    return RecommendationRow(
        id=f"rec_{ULID()}",
        job_id=job.id,
        project=job.project,
        workload=job.workload,
        model=job.model,
        optimizer=recommendation.optimizer,
        status=recommendation.evidence.status,
        fingerprint=best.fingerprint,
        data_digest=best.data_digest,
        batch_size=config.batch_size,
        num_steps=config.num_steps,
        precision=config.precision,
        objective=recommendation.evidence.metric,
        device=resources.device,
        world_size=resources.workers_per_trial,
        score=score,
        measured_by=None if score is None else _measured_by(best, recommendation),
        environment=best.environment,
        content=recommendation.to_json(),
        created_at=now,
    )


def _measured_by(best: Trial, recommendation: RecommendedConfig) -> str | None:
    """The digest of everything that makes two values of an objective comparable: direction, code and versions."""
    environment = best.stored_environment
    if environment is None:
        return None
    versions = versions_of_measures(environment.versions)
    return digest_of([recommendation.evidence.direction, recommendation.code_sha256, versions])


def _finished(trial: Trial) -> FinishedTrial:
    return FinishedTrial(
        number=trial.number,
        phase=trial.phase,
        state=trial.state,
        reason=trial.reason,
        config=trial.stored_config,
        value=trial.value,
        curve=tuple((m.step, m.seconds, m.metrics) for m in trial.measurements),
        confirms=trial.confirms,
        forked_from=trial.forked_from,
        forked_at_step=trial.forked_at_step,
        parameters=trial.parameters,
        remarks=trial.detail if trial.state is TrialState.COMPLETED else None,  # it has no other
    )
