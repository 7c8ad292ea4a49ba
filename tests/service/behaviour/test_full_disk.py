"""A disk that is full while a job runs and others wait: nothing is lost, and all goes on when there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.domain import JobState, TrialState
from tests.service.scheduler.test_job_run import specification
from tests.support.service.service_process import PLUGIN, ServiceProcesses, lasting, states

pytestmark = pytest.mark.services

MEBIBYTE = 2**20


@pytest.fixture
def service(migrated_sqlite_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcesses]:
    """One with a worker, whose checkpoints are alone on a disk of 100 MiB."""
    monkeypatch.syspath_prepend(PLUGIN)
    disk = tmp_path / "checkpoints"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", disk], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"no disk can be mounted: {mount.stderr.strip()}")
    try:
        with lasting(migrated_sqlite_file, tmp_path) as service:
            yield service
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_job_on_a_full_disk_is_given_back_waits_for_room_and_goes_on_as_if_nothing_had_been(
    service: ServiceProcesses, tmp_path: Path
) -> None:
    once, filler = tmp_path / "once", tmp_path / "checkpoints" / "filler"
    once.mkdir()
    options = {"trouble": "full", "once_directory": str(once), **service.slowly(0.2)}
    job_id = service.submit(specification(num_trials=2, options=options))
    service.wait_for("a checkpoint", lambda: any(trial.step for trial in service.trials(job_id)))
    filler.write_bytes(bytes(50 * MEBIBYTE))
    service.hurry()
    service.wait_for("the end of the run", lambda: service.job(job_id).state is not JobState.RUNNING)
    assert service.job(job_id).state is JobState.QUEUED
    next_id = service.submit(specification(num_trials=1))
    told = "no job is begun until there is room: checkpoints: "
    service.wait_for("the worker to tell so", lambda: told in (tmp_path / "worker.log").read_text())
    assert [service.job(each).state for each in (job_id, next_id)] == [JobState.QUEUED] * 2
    filler.unlink()
    for finished in (job_id, next_id):
        job, trials = service.finish(finished)
        assert job.state is JobState.SUCCEEDED
        assert set(states(trials)) == {TrialState.COMPLETED}
        assert [trial.losses for trial in trials] == [0] * len(trials)
    assert service.job(job_id).crashes == 0
    assert (tmp_path / "worker.log").read_text().count(told) == 1
