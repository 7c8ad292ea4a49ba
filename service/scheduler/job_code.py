"""The code that came with a job, laid out where its run and its ranks import from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from service.access.permitted import refuse_code_switched_off
from service.code.archive import UnusableCode, unpack
from service.errors import InvalidInput, NotFound
from service.scheduler.tune.journal import DATABASE_OUTAGE_SECONDS
from service.scheduler.tune.run_end import JobImpossible
from service.settings import Settings
from service.store.models import Job
from service.store.repositories import CodeRepository
from service.store.retry import with_retries
from service.store.session import Database
from trainers.processes.job_code import JobCode


def enter_code(database: Database, job: Job, settings: Settings, directory: Path) -> JobCode | None:
    """Lays out a job's code below `directory`, and makes this process and all that it starts the job's; None: it came
    with none. Nothing of it is imported.

    To be called by a run, before it starts any process.

    Raises:
        JobImpossible: code is not allowed here, or is not there any more.
    """
    specification = job.specification
    code = specification.code
    if code is None:
        return None
    try:
        refuse_code_switched_off(specification.workload, specification.sampler, settings)
        archive = with_retries(
            database.reading,
            lambda session: CodeRepository(session).archive(job.project, code.sha256),
            give_up_seconds=DATABASE_OUTAGE_SECONDS,
        )
        unpack(archive, directory / "code")
    except (InvalidInput, NotFound, UnusableCode) as error:
        raise JobImpossible(f"the job can no longer be run: {error}") from error
    found = JobCode(directory / "code", code.environment)
    found.enter()
    return found


def runtime_environment(code: JobCode | None) -> dict[str, Any] | None:
    """Ray's runtime environment for the machines of a cluster, which have no file of this one: Ray sends the directory
    to each that needs it, by its content. None: the cluster's own."""
    if code is None:
        return None
    return {"working_dir": str(code.directory), "env_vars": dict(code.environment)}
