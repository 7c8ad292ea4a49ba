"""The section of a job whose trials others train, and the workload for a model of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints

from service.described_model import MaxEntries, StrictModel
from service.shown_text import SEEN
from trainers.workload.description import MAX_METRIC_NAME, Direction, WorkloadDescription, WorkloadOption

EXTERNAL = "external"
"""The name of the workload that only its clients know."""
MAX_METRICS = 100
"""Names that are measured, by judgement: far more than a training has, and each is kept in every measurement."""

MetricName: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_METRIC_NAME, pattern=r"^[^\x00-\x1f]+$"), SEEN
]


class ExternalTrials(StrictModel):
    """Trials are trained outside of the service, e.g. by the tasks of a SLURM array: each asks for a config (`POST
    /v1/jobs/{job_id}/suggestions`), trains it, and reports what it measures."""

    lease_seconds: float = Field(default=900.0, ge=5.0, le=604_800.0)
    """Seconds without a report after which a client loses its trial to another one, up to three times."""
    metrics: Annotated[dict[MetricName, Literal["minimize", "maximize"]], MaxEntries(MAX_METRICS)] = Field(
        default_factory=dict, examples=[{"validation_loss": "minimize"}]
    )
    """With the workload `external`: the metrics that clients measure, and the direction in which each is better. The
    first one is the objective if the job names none."""


def describe_external(
    metrics: Mapping[str, Direction], options: Mapping[str, object], *, batch_size: int
) -> WorkloadDescription:
    """The workload that a job's clients train: all that is known of it is what the job says.

    Args:
        metrics: the metrics that they measure; the first one is the default objective.
        options: the options of theirs that the job or its search spaces name.
        batch_size: the smallest that divides among a trial's ranks.
    """
    return WorkloadDescription(
        name=EXTERNAL,
        title="Trained elsewhere",
        implementation="",
        metrics=dict(metrics),
        default_objective=next(iter(metrics)),
        default_num_steps=1,
        default_evaluate_every=1,
        default_batch_size=batch_size,
        options={name: WorkloadOption(None, "Of the clients' own training.") for name in options},
    )
