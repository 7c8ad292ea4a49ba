"""The tables, by subject. To import any of them knows them all. Never a query, and never a decision."""

from __future__ import annotations

from service.store.models.access import AuditEntry, Project, SigningKey, Token
from service.store.models.base import Base, UtcDateTime
from service.store.models.code import Code
from service.store.models.events import Delivery, Event, Webhook
from service.store.models.external import ExternalRequest, TrialLease
from service.store.models.jobs import DeletedJob, Job, MeasurementRow, MetricSet, Trial
from service.store.models.output import OutputChunk, RankOutput
from service.store.models.recommendations import JobInsightsRow, ModelShapeRow, RecommendationRow
from service.store.models.workers import ClusterShare, Worker

__all__ = [
    "AuditEntry",
    "Base",
    "ClusterShare",
    "Code",
    "DeletedJob",
    "Delivery",
    "Event",
    "ExternalRequest",
    "Job",
    "JobInsightsRow",
    "MeasurementRow",
    "MetricSet",
    "ModelShapeRow",
    "OutputChunk",
    "Project",
    "RankOutput",
    "RecommendationRow",
    "SigningKey",
    "Token",
    "Trial",
    "TrialLease",
    "UtcDateTime",
    "Webhook",
    "Worker",
]
