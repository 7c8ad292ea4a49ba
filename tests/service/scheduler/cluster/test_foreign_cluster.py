"""Jobs on a Ray cluster that is there before and after them: they leave nothing in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from service.clock import utc_now
from service.code.archive import CodeFile, pack
from service.code.unpacked import laid_out
from service.domain import JobState, TrialState
from service.scheduler.output.files import directory_of
from service.specification.code import CodeChoice
from service.store.repositories.of_trials.outputs import OutputRepository
from service.store.session import Database
from service.use_cases.keeping.code import keep_code
from tests.service.scheduler.test_job_run import specification
from tests.support.service.service_process import PLUGIN, ServiceProcesses
from tests.support.service.wheels import index_alone, write_wheel
from tests.support.waiting import PATIENCE_SECONDS, started

pytestmark = pytest.mark.services

# In a process of its own: a test's process is never a Ray driver, and the cluster must outlive every run.
CLUSTER = """
import json, sys
import ray
from ray._private import state
from ray.cluster_utils import Cluster

# Without the processes that show, print or grow a cluster: each is an interpreter with much of Ray.
shown = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
cluster = Cluster(
    initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": 80 * 2**20, **shown}
)
ray.init(address=cluster.address, log_to_driver=False)
print(json.dumps(cluster.address), flush=True)
for _ in sys.stdin:
    living = [a["Name"] for a in state.actors().values() if a["State"] != "DEAD"]
    groups = [g["placement_group_id"] for g in ray.util.placement_group_table().values() if g["state"] != "REMOVED"]
    print(json.dumps([living, groups]), flush=True)
ray.shutdown()
cluster.shutdown()
"""


CODE = """
import os
from pathlib import Path

from part import GREETING
from sent_package import NAME
from tests.support.trainers.broken_workloads import Sound

assert os.environ["GREETING"] == GREETING
assert NAME == "sent-package"

class Sent(Sound):
    title = "Sent"

    def __init__(self) -> None:
        super().__init__()
        if "RAY_RAYLET_PID" in os.environ:  # in a rank
            assert "ray" in Path(__file__).parts[-3] or "working_dir" in __file__, __file__
"""


@dataclass
class ForeignCluster:
    process: subprocess.Popen[str]

    def ask(self) -> list[list[str]]:
        """Living actors and placement groups of all jobs."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer: list[list[str]] = json.loads(self.process.stdout.readline())
        return answer

    def is_empty(self) -> bool:
        return self.ask() == [[], []]

    def head(self) -> psutil.Process:
        processes = psutil.Process(self.process.pid).children(recursive=True)
        return next(process for process in processes if process.name() == "gcs_server")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForeignCluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", os.urandom(32).hex())
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "600")  # its processes live on without its head
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PLUGIN), str(Path.cwd())]),
        "RAY_prestart_worker_first_driver": "0",  # each is an interpreter with Ray
    }
    command = [sys.executable, "-c", textwrap.dedent(CLUSTER)]
    with (
        (tmp_path / "cluster.log").open("w") as log,
        started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment) as process,
    ):
        assert process.stdout is not None
        monkeypatch.setenv("RAY_ADDRESS", json.loads(process.stdout.readline()))
        yield ForeignCluster(process)
        process.communicate(timeout=PATIENCE_SECONDS)  # the end of its input ends it
        assert process.returncode == 0


@pytest.fixture
def service(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcesses]:
    """On PostgreSQL, where the end of a job can be held up."""
    monkeypatch.syspath_prepend(PLUGIN)
    service = ServiceProcesses(database, tmp_path)
    yield service
    service.close()


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_killed_runs_and_finished_jobs_leave_no_actor_and_no_placement_group(
    cluster: ForeignCluster, service: ServiceProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAMPOO_TUNER_ALLOW_CODE", "true")
    write_wheel(tmp_path / "index", "sent-package", "NAME = 'sent-package'")
    index_alone(monkeypatch, tmp_path / "index")
    service.start_worker()
    printing = {"trouble": "words", "trouble_step": 1}
    job_id = service.submit(specification(num_trials=2, options=service.slowly(0.4) | printing))
    service.wait_for("a measurement", lambda: any(t.step for t in service.trials(job_id)))
    before, _ = cluster.ask()
    service.run_process().kill()
    service.hurry()
    job, trials = service.finish(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert [trial.state for trial in trials] == [TrialState.COMPLETED] * 2
    assert max(trial.runs for trial in trials) == 2
    assert before
    service.wait_for("an empty cluster", cluster.is_empty)
    with service.database.reading() as session:
        for trial in trials:
            lines = [line for chunk in OutputRepository(session).after(trial.id, limit=100) for line in chunk.lines]
            assert {"Python's words", "C's words", "a child's words", "an error's words"} <= set(lines)
    assert not directory_of(None, job_id).exists()

    # Its code comes with it, and with that its packages, from no path that the cluster's machines have.
    archive = pack({"sent.py": CodeFile(CODE.encode()), "part.py": CodeFile(b"GREETING = 'of the job'")})
    with service.database.writing() as session:
        keep_code(session, archive, project="default", owner=None, now=utc_now())
    environment, requirements = {"GREETING": "of the job"}, ["sent-package"]
    parts = {"workload": {"name": "sent:Sent"}, "training": {"num_steps": 2, "evaluate_every": 1}}
    code = {"sha256": archive.sha256, "environment": environment, "requirements": requirements}
    with laid_out(archive.content, CodeChoice.model_validate(code), packages=tmp_path / "packages", max_bytes=10**9):
        job_id = service.submit({**specification(num_trials=1), **parts, "code": code})
    # And the cluster hangs at its end: that does not wait for its run to leave the cluster, nor the worker for ever.
    with service.end_held_up():
        run, head = service.run_process(), cluster.head()
        head.suspend()
    try:
        job, trials = service.finish(job_id)
        assert run.is_running()
        service.wait_for("the end of the run", lambda: not run.is_running())
    finally:
        head.resume()
    assert (job.state, job.attempt, job.crashes) == (JobState.SUCCEEDED, 1, 0), (job.failure, trials)
    assert [trial.state for trial in trials] == [TrialState.COMPLETED]
    service.wait_for("an empty cluster", cluster.is_empty)
    assert service.job(job_id).state is JobState.SUCCEEDED
    assert service.logs().count("crashed") == 1  # the run that was killed above
