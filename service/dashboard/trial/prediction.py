"""The memory and step time predicted of a trial beside what it measured: a part of its page, made when asked for."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from service.access.caller import Scope
from service.api.dependencies import CallerDependency, DatabaseDependency, SettingsDependency, TurnsDependency
from service.api.preparation import CodeReaderDependency, PreparationsDependency, permitted_job
from service.code.unpacked import laid_out
from service.dashboard.rendering import page
from service.dashboard.trial.page import trial_number
from service.dashboard.trial.view import prediction_rows
from service.errors import ScopeMissing
from service.settings import Settings
from service.specification.job import JobSpecification
from service.specification.planning import plan_job
from service.store.repositories import JobRepository, TrialRepository
from service.use_cases.estimating.estimates import EarlierStep, earlier_step
from service.use_cases.estimating.memory_estimates import PredictedMemory, predict_trial
from trainers.config import TrialConfig

router = APIRouter()


@dataclass(frozen=True, slots=True)
class _Found:
    """A trial and its job, as far as a prediction needs them."""

    specification: JobSpecification
    project: str
    config: TrialConfig
    step_seconds: float | None
    peak_bytes: float | None
    earlier: EarlierStep | None


@router.get("/jobs/{job_id}/trials/{number}/prediction", include_in_schema=False, dependencies=[Depends(permitted_job)])
async def prediction_part(
    request: Request,
    caller: CallerDependency,
    settings: SettingsDependency,
    database: DatabaseDependency,
    turns: TurnsDependency,
    preparations: PreparationsDependency,
    code_reader: CodeReaderDependency,
    job_id: str,
    number: str,
) -> HTMLResponse:
    """The table of what was predicted and measured; the model is built for it, in a process."""
    if not caller.may(Scope.SUBMIT):
        raise ScopeMissing(Scope.SUBMIT.value, "a prediction, for which the model is built,")

    def read() -> _Found:
        with database.reading() as session:
            job = JobRepository(session).get(job_id)
            trial = TrialRepository(session).get(job_id, trial_number(job_id, number))
            config, metrics = TrialConfig.from_json(trial.config), trial.metrics
            earlier = earlier_step(session, job, optimizer=config.optimizer.name, batch_size=config.batch_size)
            measured = metrics.get("step_seconds"), metrics.get("peak_memory_bytes")
            return _Found(job.specification, job.project, config, *measured, earlier)

    async with turns.one():
        found = await run_in_threadpool(read)
    archive = await code_reader.archive(found.specification, project=found.project)
    what = json.dumps(["memory", found.specification.model_dump(mode="json"), found.config.to_json()], sort_keys=True)
    work = functools.partial(_predicted, found, archive, settings)
    memory = await preparations.do(what, work, token=caller.token)
    rows = prediction_rows(memory, found.earlier, step_seconds=found.step_seconds, peak_bytes=found.peak_bytes)
    return page(request, "trial/prediction.html", {"rows": rows})


def _predicted(found: _Found, archive: bytes | None, settings: Settings) -> PredictedMemory:
    code = found.specification.code
    with laid_out(archive, code, packages=settings.package_place, max_bytes=settings.package_bytes):
        return predict_trial(plan_job(found.specification), found.config, data_roots=settings.data_directories)
