"""The health of a job: what a reader should know before relying on its answer."""

from __future__ import annotations

from fastapi import APIRouter

from service.api import problems
from service.api.dependencies import JobId, Now, ReadSession, TrialMemoryDependency
from service.api.one_thread import OneThreadRoute
from service.api.schemas.insights import JobHealth
from service.evidence.recommended import evidence_from_json
from service.store.repositories import JobRepository, RecommendationRepository
from service.use_cases.health import health_of_job
from service.use_cases.progress import progress_of

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=OneThreadRoute)


@router.get("/{job_id}/health", summary="Read a job's health", responses=problems.documented(404, 422, 503))
def read_job_health(session: ReadSession, now: Now, memory: TrialMemoryDependency, job_id: JobId) -> JobHealth:
    """Findings about a job, in words and each with what to do: an under-tuned baseline, a noisy metric, values at
    the edge of their ranges, ... Nothing where nothing is wrong."""
    job = JobRepository(session).get(job_id)
    progress = progress_of(session, [job], now=now, memory=memory)[job.id]
    stored = RecommendationRepository(session).of_job(job.id)
    evidence = None if stored is None else evidence_from_json(stored.content["evidence"])
    return JobHealth(items=health_of_job(session, job, progress, evidence))
