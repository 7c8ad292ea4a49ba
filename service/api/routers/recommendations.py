"""Recommendations: configs with their evidence."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api import problems
from service.api.dependencies import JobId, ReadSession
from service.api.schemas.jobs import RecommendationList, RecommendationRead
from service.errors import NotFound
from service.store.repositories import JobRepository, RecommendationRepository

router = APIRouter(prefix="/v1", tags=["recommendations"])


@router.get(
    "/recommendations", summary="Ask for a workload's recommended configs", responses=problems.documented(422, 503)
)
def list_recommendations(
    session: ReadSession,
    workload: Annotated[str, Query(min_length=1, max_length=200, examples=["digits-mlp"])],
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> RecommendationList:
    """The recommendations of finished jobs for a workload, newest first; empty if there was none."""
    found = RecommendationRepository(session).of_model(workload, limit=limit)
    return RecommendationList(items=[RecommendationRead.of(recommendation) for recommendation in found])


@router.get(
    "/jobs/{job_id}/recommendation", summary="Read a job's recommendation", responses=problems.documented(404, 422, 503)
)
def read_recommendation(session: ReadSession, job_id: JobId) -> RecommendationRead:
    """The recommendation of a job; 404 until it has ended with at least one completed search trial."""
    job = JobRepository(session).get(job_id)
    recommendation = RecommendationRepository(session).of_job(job.id)
    if recommendation is None:
        raise NotFound(f"recommendation of the {job.state} job", job.id)
    return RecommendationRead.of(recommendation)
