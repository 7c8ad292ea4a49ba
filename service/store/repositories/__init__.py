"""Every SQL statement the service runs, one repository per table. They never commit and never decide."""

from __future__ import annotations

from service.store.repositories.access import (
    AuditRepository,
    ProjectRepository,
    SigningKeyRepository,
    TokenRepository,
    Usage,
)
from service.store.repositories.cluster import ClusterShareRepository, WorkerRepository
from service.store.repositories.code import CodeRepository
from service.store.repositories.deletions import DeletionRepository
from service.store.repositories.events import EventRepository
from service.store.repositories.external import ExternalRequestRepository, TrialLeaseRepository
from service.store.repositories.insights import InsightsRepository
from service.store.repositories.job_lists import Archived, JobListRepository, JobOrder, JobQuery, TagFilter
from service.store.repositories.jobs import JobRepository
from service.store.repositories.keyset import Place, Sortable
from service.store.repositories.of_trials.measurements import MeasurementRepository
from service.store.repositories.of_trials.trial_columns import (
    DrawnTrials,
    ListedTrial,
    Remark,
    TrialColumnsRepository,
    TrialOfModel,
    TrialSpending,
)
from service.store.repositories.of_trials.trial_lists import (
    BY_NUMBER,
    PARAMETER_PREFIX,
    FoundNumbers,
    NumberRange,
    ParameterFilter,
    ParameterKey,
    TrialKey,
    TrialListRepository,
    TrialOfList,
    TrialQuery,
    TrialSorting,
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
    KnownValues,
    ModelShapeRepository,
    RecommendationQuery,
    RecommendationRepository,
    StoredAnswer,
    VersionFilter,
)
from service.store.repositories.studies import StudyJob, StudyRepository, StudyTrial

__all__ = [
    "BY_NUMBER",
    "PARAMETER_PREFIX",
    "Archived",
    "AuditRepository",
    "ClusterShareRepository",
    "CodeRepository",
    "CompletedTrial",
    "DeletionRepository",
    "DrawnTrials",
    "EventRepository",
    "ExternalRequestRepository",
    "FoundNumbers",
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
    "NumberRange",
    "OperationFigures",
    "OperationRepository",
    "ParameterFilter",
    "ParameterKey",
    "Place",
    "PlottedTrial",
    "ProjectRepository",
    "RecommendationQuery",
    "RecommendationRepository",
    "Remark",
    "SigningKeyRepository",
    "Sortable",
    "StoredAnswer",
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
    "TrialOfList",
    "TrialOfModel",
    "TrialQuery",
    "TrialRepository",
    "TrialSorting",
    "TrialSpending",
    "TrialSummary",
    "Usage",
    "VersionFilter",
    "WorkerRepository",
]
