"""A worker runs the search of an external job beside a job that it trains itself, and again when its run is killed."""

from __future__ import annotations

import psutil
import pytest

from service.api.schemas.jobs import JobRead
from service.client import Client, suggest
from service.domain import JobState, TrialState
from service.scheduler.external.beside import MODULE
from tests.support.service.external import FIELDS
from tests.support.service.live import running
from tests.support.service.service_process import ServiceProcesses
from tests.support.waiting import LONG_PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.patient


def runs_of(job_id: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if {MODULE, job_id} <= set(process.info["cmdline"] or ())
    ]


def test_an_external_job_is_run_beside_another_and_outlives_its_run(shared_service: ServiceProcesses) -> None:
    trained_here = {
        "workload": {"name": "digits-mlp"},
        "budget": {"num_trials": 1},
        "training": {"num_steps": 20},
        "baselines": [],
        "confirmation": None,
    }
    with running(shared_service.database) as url, Client(url) as client:
        job: JobRead = client.submit({**FIELDS, "budget": {"num_trials": 2}})
        other = client.submit(trained_here)
        trial = suggest(client, job.id)
        assert trial is not None
        assert trial.report(5, {"validation_loss": 1.0})
        # The end of the other run takes its processes along, and none of this one.
        assert client.wait(other.id, timeout_seconds=LONG_PATIENCE_SECONDS).state is JobState.SUCCEEDED
        [run] = runs_of(job.id)
        run.kill()
        wait_until(lambda: runs_of(job.id) not in ([], [run]), "another run", seconds=LONG_PATIENCE_SECONDS)
        trial.report(10, {"validation_loss": 0.5})  # until the new run has taken it in, its client may go on
        wait_until(trial.should_stop, "the end of the trial", seconds=LONG_PATIENCE_SECONDS)
        again = suggest(client, job.id)
        assert again is not None
        assert again.number == 1
        again.report(10, {"validation_loss": 0.4})
        job = client.wait(job.id, timeout_seconds=LONG_PATIENCE_SECONDS)
        assert job.state is JobState.SUCCEEDED, job.failure
        first, second = client.trials(job.id)
        # Each run has looked at what its trials tell before it ended its job.
        assert [client.insights(ended.id).num_ended for ended in (other, job)] == [1, 2]
        assert not client.insights(job.id).sides[0].prices  # the shapes of its model are not known
    assert (first.state, first.value) == (TrialState.COMPLETED, 0.5)
    assert (second.state, second.value) == (TrialState.COMPLETED, 0.4)
