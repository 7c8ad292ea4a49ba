"""Every SQL statement the service runs, one repository per table. They never commit and never decide."""

from __future__ import annotations

from service.store.repositories.access import (
    AuditRepository,
    ProjectRepository,
    SigningKeyRepository,
    TokenRepository,
    Usage,
)
from service.store.repositories.external import ExternalRequestRepository, TrialLeaseRepository
from service.store.repositories.jobs import EventRepository, JobRepository
from service.store.repositories.measurements import MeasurementRepository
from service.store.repositories.operation import OperationFigures, OperationRepository
from service.store.repositories.recommendations import (
    Answer,
    KnownValues,
    RecommendationQuery,
    RecommendationRepository,
)
from service.store.repositories.studies import StudyJob, StudyRepository, StudyTrial
from service.store.repositories.trials import (
    CompletedTrial,
    LeadingTrial,
    PlottedTrial,
    TrialLengths,
    TrialRepository,
    TrialSummary,
)
from service.store.repositories.workers import ClusterShareRepository, WorkerRepository

__all__ = [
    "Answer",
    "AuditRepository",
    "ClusterShareRepository",
    "CompletedTrial",
    "EventRepository",
    "ExternalRequestRepository",
    "JobRepository",
    "KnownValues",
    "LeadingTrial",
    "MeasurementRepository",
    "OperationFigures",
    "OperationRepository",
    "PlottedTrial",
    "ProjectRepository",
    "RecommendationQuery",
    "RecommendationRepository",
    "SigningKeyRepository",
    "StudyJob",
    "StudyRepository",
    "StudyTrial",
    "TokenRepository",
    "TrialLeaseRepository",
    "TrialLengths",
    "TrialRepository",
    "TrialSummary",
    "Usage",
    "WorkerRepository",
]
