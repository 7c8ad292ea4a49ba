"""Jobs on a Ray cluster of several machines, each a raylet of its own: groups over machines, and machines that die."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster

from service.domain import JobState, TrialState
from service.scheduler.cluster.ray_cluster import OBJECT_STORE_BYTES
from service.scheduler.cluster.ray_internals import only_what_trains
from service.scheduler.cluster.worker_start import SOCKET_VARIABLE
from service.scheduler.cluster.worker_template import SOCKET_NAME
from service.scheduler.run_process import make_directory
from tests.service.scheduler.test_job_run import specification
from tests.support.service.service_process import PLUGIN, ServiceProcesses, for_one_test, lasting
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.patient,
    # Ray leaves its log files and sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

REPOSITORY = Path(__file__).parents[4]
STEPS = [10, 20, 30, 40]
OPTIONS = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES}
TEMPLATES = """
import os, signal, sys
from pathlib import Path
from service.scheduler.cluster import worker_template

assert worker_template.can_fork_after_imports()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
end, held = os.pipe()
for directory in sys.stdin:
    with worker_template.listening(Path(directory.strip())) as listener:
        template = os.fork()
        if template == 0:
            os.close(held)
            worker_template.serve(listener, end)
            os._exit(0)
    print(template, flush=True)
"""
"""Imports once, and forks a template of workers for each directory on its standard input, which all end with it."""


class Machines:
    """A Ray cluster in which each machine forks its workers from a process of its own, as in a run's own cluster.

    What a cluster that is not ours does differently, `test_foreign_cluster` sees. A worker that starts by itself
    imports for six core-seconds.
    """

    def __init__(self) -> None:
        self.cluster = Cluster()
        self._forking = subprocess.Popen(
            [sys.executable, "-c", TEMPLATES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        self._templates: dict[Any, psutil.Process] = {}
        self.add()

    def add(self) -> None:
        """Adds a machine with room for one rank; the first is the head."""
        directory = make_directory()
        assert self._forking.stdin is not None
        assert self._forking.stdout is not None
        self._forking.stdin.write(f"{directory}\n")
        self._forking.stdin.flush()
        template = psutil.Process(int(self._forking.stdout.readline()))
        os.environ[SOCKET_VARIABLE] = str(directory / SOCKET_NAME)  # what starts from here on knows it
        with only_what_trains():
            node = self.cluster.add_node(wait=False, **OPTIONS)
        del os.environ[SOCKET_VARIABLE]
        self._templates[node] = template

    def processes(self, node: Any) -> list[psutil.Process]:
        """The processes that the raylet of a machine has started."""
        [raylet] = node.all_processes["raylet"]
        return [
            *psutil.Process(raylet.process.pid).children(),
            *self._templates[node].children(),
        ]

    def ranks(self, node: Any) -> list[psutil.Process]:
        """The rank processes of a machine."""
        return [process for process in self.processes(node) if process.name().startswith("ray::Rank")]

    def lose(self, node: Any) -> None:
        """Ends a machine as if its power failed: all of its processes at once."""
        lost = self.processes(node)
        self.cluster.remove_node(node, allow_graceful=False)
        # These only miss their raylet after up to a second, in which they could train the trial to its end, now that
        # it hurries.
        for process in lost:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._templates.pop(node).kill()

    def close(self) -> None:
        self.cluster.shutdown()  # type: ignore[no-untyped-call]
        self._forking.communicate(timeout=PATIENCE_SECONDS)  # the end of its input ends it


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """A cluster that begins with its head; workers started meanwhile use it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{PLUGIN}{os.pathsep}{REPOSITORY}")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_prestart_worker_first_driver", "0")  # as in a run's own cluster
        machines = Machines()
        try:
            patch.setenv("RAY_ADDRESS", machines.cluster.address)
            yield machines
        finally:
            machines.close()


@pytest.fixture(autouse=True)
def _three_of_them(machines: Machines) -> None:
    """The head and two more machines."""
    while len(machines.cluster.worker_nodes) < 2:
        machines.add()
    machines.cluster.wait_for_nodes()


@pytest.fixture(scope="module")
def two_workers(
    machines: Machines, migrated_sqlite_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProcesses]:
    """A service with two workers that have been told of the cluster."""
    assert os.environ["RAY_ADDRESS"] == machines.cluster.address
    with lasting(migrated_sqlite_file, tmp_path_factory.mktemp("lasting"), num_workers=2) as service:
        yield service


@pytest.fixture
def service(two_workers: ServiceProcesses, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcesses]:
    """The service with two workers."""
    yield from for_one_test(two_workers, monkeypatch)


def test_a_trial_whose_machine_dies_goes_on_elsewhere_from_its_checkpoint(
    machines: Machines, service: ServiceProcesses
) -> None:
    job_id = service.submit(
        specification(num_trials=1, options=service.slowly(0.4), resources={"workers_per_trial": 2})
    )
    service.wait_for("a measurement", lambda: any(t.measurements for t in service.trials(job_id)))
    [first] = service.trials(job_id)
    head = machines.cluster.head_node
    holders = [node for node in [head, *machines.cluster.worker_nodes] if machines.ranks(node)]
    assert len(holders) == 2, "a rank on each of two machines"
    machines.lose(next(node for node in holders if node is not head))  # the run is on the head
    service.hurry()
    job, [trial] = service.finish(job_id)

    assert job.state is JobState.SUCCEEDED, job.failure
    assert job.attempt == 1
    assert trial.state is TrialState.COMPLETED
    assert trial.runs >= 2  # its ranks may have been put on the dead machine once more before Ray knew
    assert [measurement.step for measurement in trial.measurements] == STEPS
    # What was measured before the newest checkpoint was not measured again. That of the last measurement may have been
    # in writing, and what was measured at the one before is given again.
    num_kept = max(len(first.measurements) - 2, 0)
    before, after = first.measurements[:num_kept], trial.measurements[:num_kept]
    assert [m.recorded_at for m in after] == [m.recorded_at for m in before]


def test_rank_groups_of_two_jobs_take_turns_where_only_one_fits(service: ServiceProcesses) -> None:
    # Each wants two of three ranks. Were ranks got one by one, each job could end up with one, waiting for the other's.
    jobs = [service.submit(specification(num_trials=2, resources={"workers_per_trial": 2})) for _ in range(2)]
    for job_id in jobs:
        job, trials = service.finish(job_id)
        assert job.state is JobState.SUCCEEDED, job.failure
        assert [trial.state for trial in trials] == [TrialState.COMPLETED] * 2


def test_a_late_job_gets_its_part_of_a_full_cluster_as_trials_end(service: ServiceProcesses) -> None:
    early = service.submit(specification(num_trials=10_000, options={"seconds_per_step": 0.1}))
    service.wait_for("a rank on each machine", lambda: service.num_groups(early) == 3)
    late = service.submit(specification(num_trials=2))
    job, trials = service.finish(late)

    assert job.state is JobState.SUCCEEDED, job.failure
    assert [trial.state for trial in trials] == [TrialState.COMPLETED] * 2
    assert (job.waiting_since, job.waiting_for) == (None, None)
    # Everything was the early job's when it came.
    assert service.waits(late)[0] == "needs 1 CPU, 0 free"
    assert service.waits(late)[-1] is None
    assert service.job(early).state is JobState.RUNNING
    assert {trial.runs for trial in service.trials(early) if trial.state is TrialState.COMPLETED} == {1}
    service.cancel(early)


def test_an_urgent_job_gets_the_only_rank_group_at_the_end_of_a_trial_and_the_other_waits(
    service: ServiceProcesses,
) -> None:
    in_pairs = {"workers_per_trial": 2}
    patient = service.submit(specification(num_trials=10_000, options={"seconds_per_step": 0.03}, resources=in_pairs))
    service.wait_for("a trial's end", lambda: service.num_finished(patient) > 0)
    urgent = service.submit(specification(num_trials=2, resources=in_pairs), priority=1)
    job, trials = service.finish(urgent)

    assert job.state is JobState.SUCCEEDED, job.failure
    assert [trial.state for trial in trials] == [TrialState.COMPLETED] * 2
    # Three CPUs are no two rank groups of two, and no job has started half of one.
    assert service.waits(urgent)[0] == "needs 2 CPUs, 1 free"
    assert any(f"job {urgent} (priority 1) goes first" in (told or "") for told in service.waits(patient))
    done = service.num_finished(patient)
    service.wait_for("the patient job to go on", lambda: service.num_finished(patient) > done)
    assert service.job(patient).waiting_for is None
    assert service.job(patient).attempt == 1
    service.cancel(patient)
