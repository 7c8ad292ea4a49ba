"""Workers on machines whose clocks are wrong by an hour: none takes the job of another that lives."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import func, select

from service.domain import JobState
from service.store.models import Worker
from service.store.session import Database
from tests.service.scheduler.test_job_run import specification
from tests.support.service.service_process import NO_CLUSTER, PLUGIN, ServiceProcesses, is_running

pytestmark = pytest.mark.services

HOUR = 3600.0
SEVERAL_LOOKS_SECONDS = 3.0
"""A free worker looks for a job twice a second."""


def num_registered(service: ServiceProcesses) -> int:
    with service.database.reading() as session:
        return session.execute(select(func.count()).select_from(Worker)).scalar_one()


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_job_stays_with_its_worker_whose_clock_is_behind_and_that_of_a_free_one_ahead(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever went by its own clock, one in writing a lease or the other in reading it: the lease would seem to
    be over."""
    monkeypatch.syspath_prepend(PLUGIN)
    service = ServiceProcesses(database, tmp_path)
    try:
        service.start_worker(seconds_ahead=-HOUR)
        job_id = service.submit(specification(num_trials=1, options=service.slowly(0.2)))
        service.wait_for("a run of the job", lambda: is_running(service, job_id))
        monkeypatch.setenv("RAY_ADDRESS", NO_CLUSTER)  # the free worker begins no job
        service.start_worker(seconds_ahead=HOUR)
        service.wait_for("the other worker", lambda: num_registered(service) == 2)
        time.sleep(SEVERAL_LOOKS_SECONDS)
        service.hurry()
        job, _ = service.finish(job_id)
    finally:
        service.close()
    assert (job.state, job.attempt, job.crashes) == (JobState.SUCCEEDED, 1, 0), job.failure
