"""Recommendations: configs with their evidence."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api import problems
from service.api.dependencies import JobId, ReadSession
from service.api.schemas.jobs import RecommendationList, RecommendationRead
from service.errors import NotFound
from service.evidence.recommend import snippet_from_json
from service.store.models import RecommendationRow
from service.store.repositories import JobRepository, RecommendationRepository

router = APIRouter(prefix="/v1", tags=["recommendations"])


@router.get(
    "/recommendations", summary="Ask for a model's recommended configs", responses=problems.documented(422, 503)
)
def list_recommendations(
    session: ReadSession,
    model: Annotated[str, Query(min_length=1, max_length=200, examples=["digits-mlp"])],
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> RecommendationList:
    """What finished jobs recommend for a model, newest first; empty if there was none."""
    found = RecommendationRepository(session).of_model(model, limit=limit)
    return RecommendationList(items=[_read(recommendation) for recommendation in found])


@router.get(
    "/jobs/{job_id}/recommendation", summary="Read a job's recommendation", responses=problems.documented(404, 422, 503)
)
def read_recommendation(session: ReadSession, job_id: JobId) -> RecommendationRead:
    """What a job recommends; 404 until it has ended with at least one completed search trial."""
    job = JobRepository(session).get(job_id)
    recommendation = RecommendationRepository(session).of_job(job.id)
    if recommendation is None:
        raise NotFound(f"recommendation of the {job.state} job", job.id)
    return _read(recommendation)


def _read(recommendation: RecommendationRow) -> RecommendationRead:
    return RecommendationRead.of(recommendation, python=snippet_from_json(recommendation.content))
