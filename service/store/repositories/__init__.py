"""Every SQL statement the service runs, one repository per table. They never commit and never decide."""

from __future__ import annotations

from service.store.repositories.jobs import EventRepository, JobRepository, RecommendationRepository
from service.store.repositories.trials import (
    CompletedTrial,
    LeadingTrial,
    MeasurementRepository,
    TrainedTrial,
    TrialRepository,
    TrialSummary,
)
from service.store.repositories.workers import ClusterShareRepository, WorkerRepository

__all__ = [
    "ClusterShareRepository",
    "CompletedTrial",
    "EventRepository",
    "JobRepository",
    "LeadingTrial",
    "MeasurementRepository",
    "RecommendationRepository",
    "TrainedTrial",
    "TrialRepository",
    "TrialSummary",
    "WorkerRepository",
]
