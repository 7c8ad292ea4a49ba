"""The table of a job's trials, as a part of its page, and the columns that its parallel coordinates are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from service.access.caller import Scope
from service.access.permitted import may_have_run
from service.api.conditional import IfNoneMatch
from service.api.dependencies import CallerDependency, Now, ReadSession, SettingsDependency, TrialMemoryDependency
from service.api.lists.trial_filters import TrialFilters, checked, order_of
from service.api.one_thread import OneThreadRoute
from service.api.paging import LARGEST_INT
from service.dashboard.job.parallel import axes_of, columns_from
from service.dashboard.job.trial_table import (
    NEWEST_FIRST,
    TRIALS_PER_PAGE,
    TableAddress,
    TrialTable,
    columns_of,
    filters_of,
    held_numbers,
)
from service.dashboard.rendering import live_parts
from service.errors import InvalidInput
from service.specification.phases import spaces_of
from service.store.models import Job
from service.store.repositories import (
    FoundNumbers,
    JobRepository,
    TrialColumnsRepository,
    TrialListRepository,
    TrialQuery,
    TrialSorting,
)
from service.store.repositories.of_trials.outputs import OutputRepository
from service.store.session import Session
from service.use_cases.progress import JobProgress, progress_of
from service.use_cases.steer_trials import RETRIABLE

router = APIRouter(route_class=OneThreadRoute)


@dataclass(frozen=True, slots=True)
class TableChoices:
    """The reader's choices for the table, as the query of the page's address says them."""

    query: TrialQuery
    order: TrialSorting
    page: int
    columns: str | None
    address: TableAddress


async def _asked(
    request: Request,
    query: TrialFilters,
    order_by: Annotated[str, Query(max_length=200)] = str(NEWEST_FIRST),
    page: Annotated[int, Query(ge=1, le=LARGEST_INT // TRIALS_PER_PAGE)] = 1,
    columns: Annotated[str | None, Query(max_length=5000)] = None,
) -> TableChoices:
    order = order_of("order_by", order_by)
    return TableChoices(query, order, page, columns, TableAddress(request.query_params.multi_items()))


AskedOfTable = Annotated[TableChoices, Depends(_asked)]


async def _held(held: Annotated[str, Query(max_length=20 * TRIALS_PER_PAGE)] = "") -> list[int]:
    """Numbers of trials, with commas between them."""
    found = held.split(",") if held else []
    if len(found) > TRIALS_PER_PAGE or not all(text.isascii() and text.isdecimal() for text in found):
        raise InvalidInput("held", f"must be up to {TRIALS_PER_PAGE} numbers of trials, with commas between them")
    return [min(int(text[:10]), LARGEST_INT) for text in found]


def best_numbers_of(progress: JobProgress) -> list[int]:
    """The best trials of the search and of the baselines."""
    return [best.number for best in (progress.best, progress.baseline_best) if best is not None]


def table_of(
    session: Session,
    job: Job,
    asked: TableChoices,
    *,
    best: Sequence[int],
    num_trials: int,
    trial: int | None = None,
    held: Sequence[int] = (),
) -> TrialTable:
    """A page of the table.

    Args:
        best: the trials that stand above all pages.
        num_trials: of the job.
        trial: the page is the one that has this trial, if it is found at all.
        held: the trials that the reader has before his eyes: their rows stay where they are.

    Raises:
        InvalidInput: the job has no such parameter, or the table no such column.
    """
    query = checked(session, job.id, asked.query, order=asked.order)
    lists = TrialListRepository(session)
    before = None if trial is None else lists.num_before(job.id, query, order=asked.order, number=trial)
    page = asked.page if before is None else before // TRIALS_PER_PAGE + 1
    found = _numbers(lists, job.id, query, asked.order, page)
    if not found.numbers and found.total:  # there are not so many pages any more
        page = -(-found.total // TRIALS_PER_PAGE)
        found = _numbers(lists, job.id, query, asked.order, page)
    numbers = held_numbers(held, found.numbers)
    listed = TrialColumnsRepository(session).listed(job.id, {*numbers, *best})
    sources = {trial.confirms for trial in listed.values() if trial.confirms is not None}
    repeated = listed | TrialColumnsRepository(session).listed(job.id, sources - listed.keys())
    objective = job.objectives[0]
    return TrialTable(
        best=[listed[number] for number in best],
        rows=[listed[number] for number in numbers if number in listed],
        num_found=found.total,
        num_trials=num_trials,
        page=page,
        order=asked.order,
        columns=columns_of(
            spaces_of(job.specification),
            metric=objective.metric,
            direction=objective.direction,
            chosen=asked.columns,
        ),
        address=asked.address,
        filters=filters_of(query, metric=objective.metric),
        num_new=len(set(found.numbers) - set(numbers)),
        is_reordered=numbers != found.numbers,
        is_missing=trial is not None and before is None,
        printing=OutputRepository(session).printing(job.id, {*numbers, *best}),
        repeated={number: repeated[number].phase for number in sources if number in repeated},
    )


def _numbers(
    lists: TrialListRepository, job_id: str, query: TrialQuery, order: TrialSorting, page: int
) -> FoundNumbers:
    return lists.numbers(job_id, query, order=order, offset=(page - 1) * TRIALS_PER_PAGE, limit=TRIALS_PER_PAGE)


@router.get("/jobs/{job_id}/trials", include_in_schema=False)
def trials_part(
    request: Request,
    session: ReadSession,
    caller: CallerDependency,
    settings: SettingsDependency,
    memory: TrialMemoryDependency,
    now: Now,
    job_id: str,
    asked: AskedOfTable,
    held: Annotated[list[int], Depends(_held)],
    trial: Annotated[int | None, Query(ge=0, le=LARGEST_INT)] = None,
    known: IfNoneMatch = None,
) -> Response:
    """A page of the table of trials, for the script of the job's page: 304 if it is the one that the script shows."""
    job = JobRepository(session).get(job_id)
    progress = progress_of(session, [job], now=now, memory=memory)[job.id]
    best = best_numbers_of(progress)
    context = {
        "job": job,
        "table": table_of(
            session, job, asked, best=best, num_trials=sum(progress.trials.values()), trial=trial, held=held
        ),
        "may_steer": caller.may(Scope.SUBMIT),
        "may_run_again": may_have_run(job.specification.workload, job.specification.sampler, settings, caller=caller),
        "retriable": RETRIABLE,
        "best_numbers": best,
    }
    return live_parts(request, "job/trials_page.html", context, known)


@router.get("/jobs/{job_id}/parallel", include_in_schema=False)
def parallel_columns(
    session: ReadSession,
    job_id: str,
    first: Annotated[int, Query(ge=0, le=LARGEST_INT)] = 0,
) -> Response:
    """Columns for the parallel coordinates of a job's page: its axes, and of its trials from number `first` on
    a column for each."""
    job = JobRepository(session).get(job_id)
    columns = TrialColumnsRepository(session)
    found = columns_from(
        columns.drawn(job.id, first=first), axes_of(spaces_of(job.specification)), direction=job.direction
    )
    unfinished = columns.num_unfinished_before(job.id, first) if first else 0
    return Response(found.json(metric=job.metric, num_unfinished_before=unfinished), media_type="application/json")
