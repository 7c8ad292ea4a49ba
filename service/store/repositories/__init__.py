"""Every SQL statement the service runs, one repository per table. They never commit and never decide."""

from __future__ import annotations

from service.store.repositories.access import (
    AuditRepository,
    ProjectRepository,
    SigningKeyRepository,
    TokenRepository,
    Usage,
)
from service.store.repositories.code import CodeRepository
from service.store.repositories.deletions import DeletionRepository
from service.store.repositories.external import ExternalRequestRepository, TrialLeaseRepository
from service.store.repositories.insights import InsightsRepository
from service.store.repositories.job_lists import Archived, JobListRepository, JobOrder, JobQuery, TagFilter
from service.store.repositories.jobs import EventRepository, JobRepository
from service.store.repositories.keyset import Place, Sortable
from service.store.repositories.of_trials.measurements import MeasurementRepository
from service.store.repositories.of_trials.trial_columns import (
    DrawnTrials,
    EndedTrial,
    ListedTrial,
    Remark,
    TrialColumnsRepository,
)
from service.store.repositories.of_trials.trial_lists import (
    BY_NUMBER,
    PARAMETER_PREFIX,
    FoundNumbers,
    FoundTrial,
    ParameterFilter,
    ParameterKey,
    Range,
    TrialKey,
    TrialListRepository,
    TrialOrder,
    TrialQuery,
)
from service.store.repositories.of_trials.trials import (
    CompletedTrial,
    LeadingTrial,
    PlottedTrial,
    TrialLengths,
    TrialRepository,
    TrialSummary,
)
from service.store.repositories.operation import OperationFigures, OperationRepository
from service.store.repositories.recommendations import (
    Answer,
    KnownValues,
    RecommendationQuery,
    RecommendationRepository,
)
from service.store.repositories.shapes import ModelShapeRepository
from service.store.repositories.studies import StudyJob, StudyRepository, StudyTrial
from service.store.repositories.workers import ClusterShareRepository, WorkerRepository

__all__ = [
    "BY_NUMBER",
    "PARAMETER_PREFIX",
    "Answer",
    "Archived",
    "AuditRepository",
    "ClusterShareRepository",
    "CodeRepository",
    "CompletedTrial",
    "DeletionRepository",
    "DrawnTrials",
    "EndedTrial",
    "EventRepository",
    "ExternalRequestRepository",
    "FoundNumbers",
    "FoundTrial",
    "InsightsRepository",
    "JobListRepository",
    "JobOrder",
    "JobQuery",
    "JobRepository",
    "KnownValues",
    "LeadingTrial",
    "ListedTrial",
    "MeasurementRepository",
    "ModelShapeRepository",
    "OperationFigures",
    "OperationRepository",
    "ParameterFilter",
    "ParameterKey",
    "Place",
    "PlottedTrial",
    "ProjectRepository",
    "Range",
    "RecommendationQuery",
    "RecommendationRepository",
    "Remark",
    "SigningKeyRepository",
    "Sortable",
    "StudyJob",
    "StudyRepository",
    "StudyTrial",
    "TagFilter",
    "TokenRepository",
    "TrialColumnsRepository",
    "TrialKey",
    "TrialLeaseRepository",
    "TrialLengths",
    "TrialListRepository",
    "TrialOrder",
    "TrialQuery",
    "TrialRepository",
    "TrialSummary",
    "Usage",
    "WorkerRepository",
]
