"""The trials of a job; propose, change, stop and retry."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from service.api import conditional, problems
from service.api.conditional import (
    IF_TRIAL_UNCHANGED,
    IfMatch,
    TaggedDependency,
    changeable_of_trial,
    refuse_if_trial_changed,
)
from service.api.dependencies import (
    IdempotencyKey,
    JobId,
    Now,
    ReadSession,
    SettingsDependency,
    TrialNumber,
    WriteSession,
)
from service.api.lists.trial_filters import TrialFilters, TrialOrderParameter, checked
from service.api.lists.views import View, view_of
from service.api.one_thread import OneThreadRoute
from service.api.paging import (
    DEFAULT_PAGE_SIZE,
    PageSize,
    PageToken,
    cut,
    decode_place,
    encode_place,
)
from service.api.preparation import JobWorkload, permitted_job
from service.api.schemas.common import Page
from service.api.schemas.trials import TrialChange, TrialConfigRead, TrialCreate, TrialItem, TrialRead
from service.api.strict_json import refuse_repeated_names
from service.domain import Phase
from service.errors import TrialNotFound
from service.store.repositories import (
    JobRepository,
    TrialListRepository,
    TrialOfList,
    TrialRepository,
)
from service.use_cases import steer_trials
from service.use_cases.keeping import marks
from service.use_cases.trials.rank_output import last_lines
from service.use_cases.trials.trial_pasting import config_to_paste

router = APIRouter(prefix="/v1/jobs/{job_id}/trials", tags=["trials"], route_class=OneThreadRoute)


@router.get(
    "",
    summary="List a job's trials",
    response_model=Page[TrialItem],
    responses=problems.documented(404, 422, 503),
)
def list_trials(
    session: ReadSession,
    job_id: JobId,
    asked: TrialFilters,
    view: Annotated[View, Depends(view_of(TrialRead, always="number", large="config"))],
    order_by: TrialOrderParameter,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
    page_token: PageToken = None,
) -> Response:
    """A job's trials, by number unless told otherwise. They come without their `config`: `view=full` has it."""
    query = checked(session, job_id, asked, order=order_by)
    kind = f"trial {order_by}"
    after = None if page_token is None else decode_place(kind, page_token, *order_by.value_types, tie_type=int)
    rows = TrialListRepository(session).page(
        job_id, query, order=order_by, after=after, with_config="config" in view.fields, limit=page_size + 1
    )
    found, token = cut(rows, page_size, lambda row: encode_place(kind, row.place))
    items = [_row(row, view) for row in found]
    page = Page[TrialItem].model_construct(items=items, next_page_token=token)
    return Response(page.model_dump_json(by_alias=True, exclude_unset=True), media_type="application/json")


def _row(listed: TrialOfList, view: View) -> TrialItem:
    of_others: dict[str, Any] = {"num_steps": listed.num_steps, "last_lines": []}  # lines are of what is read alone
    values = {name: of_others[name] if name in of_others else getattr(listed.trial, name) for name in view.fields}
    return TrialItem.model_construct(**values)


@router.post(
    "",
    status_code=202,
    summary="Propose a trial",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=TrialRead,
    responses={
        202: {
            "description": "The trial waits for its turn, which is the next one.",
            "headers": {"Location": {"description": "The trial's path.", "schema": {"type": "string"}}},
        },
        200: {
            "model": TrialRead,
            "description": "The trial that an earlier request with this `Idempotency-Key` proposed.",
            "headers": {"Idempotent-Replayed": {"description": "`true`", "schema": {"type": "string"}}},
        },
        **problems.documented(403, 404, 408, 409, 413, 415, 422, 503),
    },
)
def propose_trial(
    body: TrialCreate,
    workload: JobWorkload,
    session: WriteSession,
    settings: SettingsDependency,
    now: Now,
    job_id: JobId,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> TrialRead:
    """Tries a config of your own, before anything else that the search would choose, and judges it like the others.

    The budget of its side grows by one trial (`budget.extra_search_trials`, or `extra_trials` of the baseline). A
    running job tries it within seconds: its run ends in order and starts again, trials from their last checkpoints. A
    paused job tries it when it is resumed; a finished one is reopened for it, and for whatever else its budget
    leaves.
    """
    _, trial, is_new = steer_trials.propose_trial(
        session,
        job_id,
        workload=workload,
        phase=Phase(body.phase),
        parameters=body.parameters,
        optimizer=body.optimizer,
        beyond_bounds=body.beyond_bounds,
        idempotency_key=idempotency_key,
        checkpoints_kept=settings.checkpoints_kept,
        now=now,
    )
    response.headers["Location"] = f"/v1/jobs/{job_id}/trials/{trial.number}"
    if not is_new:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return TrialRead.of(trial)


@router.get(
    "/{number}",
    summary="Read a trial",
    response_model=TrialRead,
    responses={**conditional.RESPONSES, **problems.documented(404, 422, 503)},
)
def read_trial(session: ReadSession, tagged: TaggedDependency, job_id: JobId, number: TrialNumber) -> Response:
    """A trial with its config and its last measurement."""
    trial = TrialRepository(session).find(job_id, number)
    if trial is None:
        JobRepository(session).check_exists(job_id)
        raise TrialNotFound(job_id, number)
    return tagged.answer(TrialRead.of(trial, last_lines=last_lines(session, trial)), changeable_of_trial(trial))


@router.patch(
    "/{number}",
    summary="Change a trial",
    dependencies=[Depends(refuse_repeated_names)],
    responses=problems.documented(403, 404, 408, 412, 413, 415, 422, 503),
)
def change_trial(
    body: TrialChange, session: WriteSession, now: Now, job_id: JobId, number: TrialNumber, if_match: IfMatch = None
) -> TrialRead:
    """Changes the note of a trial, and nothing else, whether it is training or has ended."""
    refuse_if_trial_changed(session, job_id, number, if_match)
    return TrialRead.of(marks.change_trial(session, job_id, number, note=body.note, now=now))


@router.get("/{number}/config", summary="Read a trial's config to paste", responses=problems.documented(404, 422, 503))
def read_config(session: ReadSession, job_id: JobId, number: TrialNumber) -> TrialConfigRead:
    """The config of any trial as a recommendation has it, and as Python; of the job's front, for example."""
    job = JobRepository(session).get(job_id)
    trial = TrialRepository(session).get(job_id, number)
    found, python = config_to_paste(job, trial)
    return TrialConfigRead.of(trial.number, found, python=python)


@router.post(
    "/{number}/stop",
    summary="Stop a trial",
    dependencies=[IF_TRIAL_UNCHANGED],
    responses=problems.documented(403, 404, 409, 412, 422, 503),
)
def stop_trial(session: WriteSession, now: Now, job_id: JobId, number: TrialNumber) -> TrialRead:
    """Cancels one trial; the job goes on. A trial in training ends at its next measurement; until then `requested` is
    `stop`. If that measurement is its last, it completes."""
    _, trial = steer_trials.stop_trial(session, job_id, number, now=now)
    return TrialRead.of(trial)


@router.post(
    "/{number}/retry",
    summary="Try a trial again",
    dependencies=[Depends(permitted_job), IF_TRIAL_UNCHANGED],
    responses=problems.documented(403, 404, 409, 412, 422, 503),
)
def retry_trial(
    session: WriteSession, settings: SettingsDependency, now: Now, job_id: JobId, number: TrialNumber
) -> TrialRead:
    """Queues a pruned, failed or cancelled trial again, with the same config: from its checkpoint if there is one,
    otherwise from its beginning, and to its end, as it is not pruned again. A finished job is reopened for it, and for
    whatever else its budget leaves. A fork of a population cannot be retried: the checkpoint that it began from is
    gone."""
    _, trial = steer_trials.retry_trial(session, job_id, number, checkpoints_kept=settings.checkpoints_kept, now=now)
    return TrialRead.of(trial)
