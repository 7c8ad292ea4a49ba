"""The page on which a job is put together. It asks the API what the job would cost, and submits it there."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from search_spaces import SearchSpace, presets
from service.access.caller import Scope
from service.api.dependencies import (
    AuthenticationDependency,
    CallerDependency,
    DatabaseDependency,
    SettingsDependency,
    TurnsDependency,
)
from service.api.preparation import PreparationsDependency, job_expected
from service.dashboard.new_job.fields import FormField
from service.dashboard.new_job.form import first_workload, job_defaults, job_form, search_space, without_code
from service.dashboard.new_job.options import OPTIONS, workload_form
from service.dashboard.rendering import page
from service.errors import InvalidInput, JobNotFound
from service.evidence.in_words.wording import OPTIMIZER_TITLES
from service.specification.workloads import known_workloads
from service.store.repositories import JobRepository
from service.use_cases.keeping.clone import submission_of

FREE_OPTIONS = FormField(
    pointer=OPTIONS,
    label="Options",
    help="Arguments of the workload, held fixed in every trial, as a JSON object.",
    kind="json",
    default={},
)
"""The options of a workload that does not describe them here."""

router = APIRouter()


def _shown(space: SearchSpace) -> dict[str, Any]:
    """A space without where its ranges come from, which the form does not show."""
    found = space.to_json()
    for parameter in found["parameters"]:
        del parameter["source"]
    return found


@router.get("/jobs/new", include_in_schema=False, dependencies=[Depends(job_expected)])
async def new_job_page(
    request: Request,
    caller: CallerDependency,
    settings: SettingsDependency,
    authentication: AuthenticationDependency,
    database: DatabaseDependency,
    turns: TurnsDependency,
    preparations: PreparationsDependency,
    workload: Annotated[str | None, Query(max_length=200)] = None,
    clone: Annotated[str | None, Query(max_length=40)] = None,
) -> HTMLResponse:
    """The form: empty, with a workload, or filled from a job that is to be cloned."""

    def read(job_id: str) -> dict[str, Any]:
        with database.reading() as session:
            job = JobRepository(session).get(job_id)
            return {"id": job.id, "name": job.name, "submission": submission_of(job)}

    original: dict[str, Any] | None = None
    if clone is not None:
        if not await authentication.sees(caller, clone):
            raise JobNotFound(clone)
        async with turns.one():
            original = await run_in_threadpool(read, clone)
    found = await preparations.do("the installed workloads", known_workloads)
    workloads = [workload_form(description) for description in found]
    begins_with = workload if original is None else original["submission"]["workload"]["name"]
    begins_with = begins_with or first_workload()
    may_name_code = settings.allow_code and caller.may(Scope.CODE)
    context = {
        "may_submit": caller.may(Scope.SUBMIT),
        "may_name_code": may_name_code,
        "code_is_allowed": settings.allow_code,
        "clone": original,
        "workloads": workloads,
        "first": next((form for form in workloads if form.name == begins_with), None),
        "sections": job_form() if may_name_code or original else without_code(job_form()),
        "search_space": search_space(),
        "free_options": FREE_OPTIONS,
        "catalogue": {
            "spaces": {name: _shown(space) for name, space in presets().items()},
            "titles": OPTIMIZER_TITLES,
            "workloads": {form.name: {"told": form.defaults, "metrics": form.metrics} for form in workloads},
            "clone": original,
            "defaults": job_defaults(),
            "workload": begins_with,
            "service_url": str(request.base_url).rstrip("/"),
            "sends_token": caller.name is not None,
        },
    }
    return await run_in_threadpool(page, request, "new_job/page.html", context)


@router.get("/jobs/new/options", include_in_schema=False, dependencies=[Depends(job_expected)])
async def new_job_options(
    request: Request, preparations: PreparationsDependency, workload: Annotated[str, Query(max_length=200)]
) -> HTMLResponse:
    """The fields of an installed workload's options, which the form asks for when it is chosen."""
    found = await preparations.do("the installed workloads", known_workloads)
    known = next((description for description in found if description.name == workload), None)
    if known is None:
        raise InvalidInput("workload", f"there is no installed workload {workload!r}")
    return await run_in_threadpool(page, request, "new_job/options.html", {"workload": workload_form(known)})
