"""The code that came with a job, unpacked where its run and its ranks import it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from service.access.permitted import refuse_code_switched_off
from service.code.archive import UnusableCode, unpack
from service.code.requirements import hold
from service.errors import InvalidInput, NotFound
from service.scheduler.tune.journal import RUN_OUTAGE_SECONDS
from service.scheduler.tune.run_end import JobImpossible
from service.settings import Settings
from service.store.models import Job
from service.store.repositories import CodeRepository
from service.store.retry import with_retries
from service.store.session import Database
from trainers.processes.job_code import PACKAGES_VARIABLE, JobCode

SENT_PACKAGES = ".packages"
"""The place of the sent packages in the code's directory on the machines of a cluster."""


def enter_code(database: Database, job: Job, settings: Settings, directory: Path) -> JobCode | None:
    """Unpacks a job's code below `directory`, and makes this process and all processes that it starts use it; None: the
    job came without code. Nothing of it is imported.

    A run calls it before it starts any process.

    Raises:
        JobImpossible: code is not allowed here, or no longer exists.
        NotInstalled: its packages cannot be installed now.
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
            give_up_seconds=RUN_OUTAGE_SECONDS,
        )
        unpack(archive, directory / "code")
    except (InvalidInput, NotFound, UnusableCode) as error:
        raise JobImpossible(f"the job can no longer be run: {error}") from error
    # They are locked until this process ends. A failed installation is not the job's fault: the index may be
    # unreachable, and the next run tries again.
    packages = hold(code.requirements, settings.package_place, max_bytes=settings.package_bytes)
    found = JobCode(directory / "code", code.environment, packages.paths)
    found.enter()
    return found


def runtime_environment(code: JobCode | None) -> dict[str, Any] | None:
    """Ray's runtime environment for the machines of a cluster, which have none of this machine's files: Ray sends the
    directory with the packages to each machine that needs it, identified by its content. None: the cluster's own.

    The packages come from this machine: Ray's own `pip` would first copy the whole environment of each machine.
    """
    if code is None:
        return None
    variables = dict(code.environment)
    for path in code.packages:
        shutil.copytree(path, code.directory / SENT_PACKAGES, dirs_exist_ok=True)
        variables[PACKAGES_VARIABLE] = SENT_PACKAGES  # ranks are started in the directory
    return {"working_dir": str(code.directory), "env_vars": variables}
