"""Metrics for Prometheus."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from service.api.dependencies import MetricsDependency

router = APIRouter(tags=["health"])

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "All metrics, in Prometheus' text format.",
        "content": {"text/plain": {"schema": {"type": "string"}, "example": 'shampoo_tuner_jobs{state="running"} 2.0'}},
    }
}


@router.get("/metrics", summary="How does the service do?", response_class=Response, responses=_TEXT)
async def read_metrics(metrics: MetricsDependency) -> Response:
    """Metrics for Prometheus: jobs, trials, workers, answers, connections, events.

    Counts of jobs and trials can be some seconds old.
    """
    return Response(await metrics.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
