"""The requests about jobs, trials and the catalogue, each declared once for both clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from service.api.schemas.catalogue import SearchSpaceList, SearchSpaceRead, WorkloadList, WorkloadRead
from service.api.schemas.common import Health, Page, Readiness
from service.api.schemas.insights import InsightsRead, JobHealth
from service.api.schemas.jobs import JobEstimate, JobRead, JobSubmitted
from service.api.schemas.many_jobs import JobOutcome, JobOutcomes
from service.api.schemas.trials import (
    CheckpointList,
    CheckpointRead,
    MeasurementPage,
    MeasurementRead,
    OutputPage,
    OutputRead,
    TrialConfigRead,
    TrialRead,
)
from service.client.calls import Call, Pages, Part, given, keyed, nothing, page_of, reading
from service.domain import JobState, Phase, TrialState, WeightsOf
from service.evidence.health.cards import HealthCard
from service.specification.job import JobSpecification


def submit(
    specification: JobSpecification | Mapping[str, Any],
    *,
    name: str | None = None,
    model: str | None = None,
    tags: Mapping[str, str] | None = None,
    priority: int | None = None,
    idempotency_key: str | None = None,
) -> Call[JobSubmitted]:
    """Submits a job. A repeated `idempotency_key` gives the job it made before; without one, each call has its own.

    Raises:
        ApiError: the service refused it; the problem names the field.
    """
    if isinstance(specification, JobSpecification):
        specification = specification.model_dump(mode="json")
    body = dict(specification)
    if name is not None:
        body["name"] = name
    if model is not None:
        body["model"] = model
    if tags:
        body["tags"] = {**body.get("tags", {}), **tags}
    if priority is not None:
        body["priority"] = priority
    return Call(reading(JobSubmitted), "POST", "/v1/jobs", body=body, headers=keyed(idempotency_key))


def estimate(specification: JobSpecification | Mapping[str, Any]) -> Call[JobEstimate]:
    """The cost of a job at most; nothing is stored.

    Raises:
        ApiError: the service would refuse it; the problem names the field.
    """
    if isinstance(specification, JobSpecification):
        specification = specification.model_dump(mode="json")
    return Call(
        reading(JobEstimate), "POST", "/v1/jobs", params={"dry_run": "true"}, body=dict(specification), repeatable=True
    )


def job(job_id: str) -> Call[JobRead]:
    """Raises: ApiError (404)."""
    return Call(reading(JobRead), "GET", _job_path(job_id))


def cancel(job_id: str) -> Call[JobRead]:
    """Raises: ApiError (404; 409: it had finished)."""
    return Call(reading(JobRead), "POST", f"{_job_path(job_id)}/cancel")


def delete(job_id: str) -> Call[None]:
    """Deletes a job that has ended, for good. Raises: ApiError (404; 409: it has not ended)."""
    return Call(nothing, "DELETE", _job_path(job_id))


def archive(job_id: str) -> Call[JobRead]:
    """Hides a job from lists, unless they are asked for archived ones. Raises: ApiError (404)."""
    return Call(reading(JobRead), "POST", f"{_job_path(job_id)}/archive")


def unarchive(job_id: str) -> Call[JobRead]:
    """Shows an archived job in lists again. Raises: ApiError (404)."""
    return Call(reading(JobRead), "POST", f"{_job_path(job_id)}/unarchive")


def clone(
    job_id: str, changes: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None
) -> Call[JobSubmitted]:
    """Submits a job like another one; `changes`: the fields that it has otherwise, as a merge patch.

    Raises:
        ApiError: 404; 422: the problem names the field.
    """
    return Call(
        reading(JobSubmitted),
        "POST",
        f"{_job_path(job_id)}/clone",
        body=dict(changes or {}),
        headers=keyed(idempotency_key),
    )


def each(verb: Literal["pause", "resume", "cancel"], job_ids: Sequence[str]) -> Call[list[JobOutcome]]:
    """Does to each of up to 100 jobs what the method of that name does to one; what became of each."""
    return Call(
        lambda content: JobOutcomes.model_validate_json(content).items,
        "POST",
        f"/v1/jobs:{verb}",
        body={"job_ids": list(job_ids)},
    )


def pause(job_id: str) -> Call[JobRead]:
    """Pauses a job; one that runs is `paused` when its run has ended.

    Raises:
        ApiError: 404; 409: it had finished.
    """
    return Call(reading(JobRead), "POST", f"{_job_path(job_id)}/pause")


def resume(job_id: str) -> Call[JobRead]:
    """Goes on with a paused job, or a finished one whose budget was raised.

    Raises:
        ApiError: 404; 409: it has finished and its budget is spent.
    """
    return Call(reading(JobRead), "POST", f"{_job_path(job_id)}/resume")


def change(
    job_id: str,
    *,
    name: str | None = None,
    tags: Mapping[str, str] | None = None,
    priority: int | None = None,
    notes: str | None = None,
    budget: Mapping[str, Any] | None = None,
) -> Call[JobRead]:
    """Changes a job: what is given, and of its budget the fields that are given; all else stays.

    Raises:
        ApiError: 404; 422: the problem names the field.
    """
    given = {"name": name, "tags": tags, "priority": priority, "notes": notes, "budget": budget}
    body = {field: value for field, value in given.items() if value is not None}
    return Call(reading(JobRead), "PATCH", _job_path(job_id), body=body)


def trial(job_id: str, number: int) -> Call[TrialRead]:
    """Raises: ApiError (404)."""
    return Call(reading(TrialRead), "GET", f"{_job_path(job_id)}/trials/{number}")


def trial_config(job_id: str, number: int) -> Call[TrialConfigRead]:
    """The config of a trial, to paste. Raises: ApiError (404)."""
    return Call(reading(TrialConfigRead), "GET", f"{_job_path(job_id)}/trials/{number}/config")


def propose_trial(
    job_id: str,
    parameters: Mapping[str, Any],
    *,
    phase: Phase = Phase.SEARCH,
    optimizer: str | None = None,
    beyond_bounds: bool = False,
    idempotency_key: str | None = None,
) -> Call[TrialRead]:
    """Tries a config next; parameters left out take their defaults. Reopens a finished job.

    `optimizer` says of which baseline, where the job has several. With `beyond_bounds`, numbers may lie beyond the
    search space's ranges, as far as the optimizer accepts them.

    Raises:
        ApiError: 404; 422: the problem names the parameter; 409: the job has finished, and its budget leaves no
            time.
    """
    body = {"phase": phase.value, "parameters": dict(parameters), "beyond_bounds": beyond_bounds}
    body.update({} if optimizer is None else {"optimizer": optimizer})
    return Call(reading(TrialRead), "POST", f"{_job_path(job_id)}/trials", body=body, headers=keyed(idempotency_key))


def change_trial(job_id: str, number: int, *, note: str) -> Call[TrialRead]:
    """Changes the note about a trial; empty: none. Raises: ApiError (404)."""
    return Call(reading(TrialRead), "PATCH", f"{_job_path(job_id)}/trials/{number}", body={"note": note})


def stop_trial(job_id: str, number: int) -> Call[TrialRead]:
    """Cancels a trial; one that trains, at its next measurement. Raises: ApiError (404; 409: it had ended)."""
    return Call(reading(TrialRead), "POST", f"{_job_path(job_id)}/trials/{number}/stop")


def retry_trial(job_id: str, number: int) -> Call[TrialRead]:
    """Queues a pruned, failed or cancelled trial again, to be trained to its end.

    Raises:
        ApiError: 404; 409: it has not ended so, it is a fork, whose beginning is gone, or the job has finished and
            its budget leaves no time.
    """
    return Call(reading(TrialRead), "POST", f"{_job_path(job_id)}/trials/{number}/retry")


def checkpoints(job_id: str, number: int) -> Call[list[CheckpointRead]]:
    """The checkpoints of a trial that are there now, the newest first. Raises: ApiError (404, 503)."""
    return Call(
        lambda content: CheckpointList.model_validate_json(content).items,
        "GET",
        f"{_job_path(job_id)}/trials/{number}/checkpoints",
    )


def insights(job_id: str) -> Call[InsightsRead]:
    """Insights of a job into its hyperparameters. Raises: ApiError (404: nothing yet)."""
    return Call(reading(InsightsRead), "GET", f"{_job_path(job_id)}/insights")


def health(job_id: str) -> Call[list[HealthCard]]:
    """Findings about a job, warnings first. Raises: ApiError (404)."""
    return Call(lambda content: JobHealth.model_validate_json(content).items, "GET", f"{_job_path(job_id)}/health")


def report(job_id: str) -> Call[bytes]:
    """The report of a job: one HTML file that needs nothing else. Raises: ApiError (404)."""
    return Call(bytes, "GET", f"/jobs/{quote(job_id, safe='')}/report")


def workloads() -> Call[list[WorkloadRead]]:
    return Call(lambda content: WorkloadList.model_validate_json(content).items, "GET", "/v1/workloads")


def search_spaces() -> Call[list[SearchSpaceRead]]:
    return Call(lambda content: SearchSpaceList.model_validate_json(content).items, "GET", "/v1/search-spaces")


def liveness() -> Call[Health]:
    """The service's version, as long as its process runs."""
    return Call(reading(Health), "GET", "/healthz", repeatable=False)


def readiness() -> Call[Readiness]:
    """Raises: ApiError (503: not ready), ServiceUnreachable."""
    return Call(reading(Readiness), "GET", "/readyz", repeatable=False)


def jobs(*, states: Sequence[JobState] = (), **asked: str | int | Sequence[str] | None) -> Pages[JobRead]:
    """Jobs, newest first unless asked otherwise; pages are asked for as they are needed.

    Args:
        asked: further parameters of `GET /v1/jobs`: `workload`, `model`, `tag`, `text`, `archived`, `order_by`, ...
            None: not asked for.
    """
    params = {"view": "full", "state": [state.value for state in states], **given(**asked)}
    return Pages(page_of(Page[JobRead]), "/v1/jobs", params)


def trials(
    job_id: str,
    *,
    states: Sequence[TrialState] = (),
    phase: Phase | None = None,
    parameters: Sequence[str] = (),
    **asked: str | int | None,
) -> Pages[TrialRead]:
    """A job's trials, by number unless asked otherwise.

    Args:
        parameters: values that they have, e.g. `lr=1e-4..1e-2`.
        asked: further parameters of the list: `value`, `order_by`; None: not asked for.
    """
    which = given(phase=None if phase is None else phase.value, **asked)
    params = {"view": "full", "state": [state.value for state in states], "parameter": list(parameters), **which}
    return Pages(page_of(Page[TrialRead]), f"{_job_path(job_id)}/trials", params)


def measurements(
    job_id: str, number: int, *, after_step: int = -1, **asked: str | int | Sequence[str]
) -> Pages[MeasurementRead]:
    """The measurements of a trial, by step.

    Args:
        asked: further parameters of `GET /v1/jobs/{job_id}/trials/{number}/measurements`: `metric`, ...
    """

    def read(content: bytes) -> Part[MeasurementRead]:
        page = MeasurementPage.model_validate_json(content)
        return Part(page.items, None if page.next_after_step is None else {"after_step": page.next_after_step})

    return Pages(read, f"{_job_path(job_id)}/trials/{number}/measurements", {**asked, "after_step": after_step})


def logs(job_id: str, number: int, **asked: str | int) -> Pages[OutputRead]:
    """Lines that the ranks of a trial have printed, the oldest first.

    Args:
        asked: parameters of `GET /v1/jobs/{job_id}/trials/{number}/logs`: `rank`, `stream`, `since`, `contains`,
            `tail`.
    """

    def read(content: bytes) -> Part[OutputRead]:
        page = OutputPage.model_validate_json(content)
        return Part(page.items, None if page.next_after is None else {"after": page.next_after})

    return Pages(read, logs_path(job_id, number), asked)


def logs_path(job_id: str, number: int) -> str:
    """The path at which what the ranks of a trial print is read and followed."""
    return f"{_job_path(job_id)}/trials/{number}/logs"


def events_path(job_id: str | None) -> str:
    """The path at which the events of a job are followed; None: of all jobs."""
    return "/v1/events" if job_id is None else f"{_job_path(job_id)}/events"


def export_path(job_id: str) -> str:
    """The path at which the table of a job is read."""
    return f"{_job_path(job_id)}/export"


def checkpoint_path(job_id: str, number: int, checkpoint: str, file: str) -> str:
    """The path at which a file of a checkpoint is read."""
    return f"{_job_path(job_id)}/trials/{number}/checkpoints/{checkpoint}/{file}"


def weights_path(job_id: str, side: WeightsOf) -> str:
    """The path at which the trained weights of a winner are read."""
    return f"{_job_path(job_id)}/weights/{side}"


def _job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"
