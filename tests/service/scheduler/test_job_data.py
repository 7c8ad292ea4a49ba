"""A run's look at the data of its job, before it starts anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.domain import JobState
from service.errors import InvalidInput
from service.scheduler.before_training import check_data
from service.scheduler.stored_job import plan_of
from service.scheduler.tune.run_end import JobImpossible
from service.settings import Settings
from service.specification.planning import check_population_is_measured, plan_job
from service.store.models import Job
from service.store.repositories import JobRepository
from service.store.session import Database
from tests.support.service.scenarios import claimed_job, specification
from tests.support.waiting import PATIENCE_SECONDS

BY_EPOCHS = {
    "pruner": {"name": "pbt", "interval": 10},
    "baseline": None,
    "budget": {"num_trials": 6},
    "training": {"num_steps": 40, "batch_size": 64, "evaluate_every_epochs": 2.0},
}


def test_a_run_without_data_ends_before_it_starts_anything(tmp_path: Path) -> None:
    path = str(tmp_path / "images")
    plan = plan_job(specification(workload={"name": "image-folder", "options": {"path": path}}))
    with pytest.raises(JobImpossible, match=r"^workload\.options\.path: there is nothing at '.*/images'$"):
        check_data(plan, Settings().data_directories)
    check_data(plan_job(specification()), Settings().data_directories)


RUN_THAT_IS_TOLD_TO_END = """
import sys
from pathlib import Path

from service.scheduler.job_run import JobRun, run_job
from service.scheduler.tune.run_end import Ending
from service.scheduler.watch import Watch
from service.settings import Settings
from service.store.session import Database
from service.use_cases.leases import Lease

settings = Settings(database_url=sys.argv[1], data_roots=(Path(sys.argv[5]),))
database, lease = Database(settings.resolved_database_url), Lease(sys.argv[2], sys.argv[3], int(sys.argv[4]))
watch = Watch(database, lease, poll_seconds=60.0)
watch.end(Ending.STOPPED)
run_job(JobRun(database, lease, settings, Path(sys.argv[5]), watch))
"""


@pytest.mark.processes
def test_a_run_that_is_told_to_end_fails_no_job_for_what_it_then_lacks(
    sqlite_database: Database, tmp_path: Path
) -> None:
    lease = claimed_job(sqlite_database, workload={"name": "image-folder", "options": {"path": "/etc/ssl"}})
    url = sqlite_database.engine.url.render_as_string(hide_password=False)
    arguments = [url, lease.job_id, lease.worker_id, str(lease.attempt), str(tmp_path)]
    subprocess.run([sys.executable, "-c", RUN_THAT_IS_TOLD_TO_END, *arguments], check=True, timeout=PATIENCE_SECONDS)
    with sqlite_database.reading() as session:
        job = JobRepository(session).get(lease.job_id)
        assert (job.state, job.failure) == (JobState.QUEUED, None)


def test_a_run_refuses_what_this_worker_does_not_allow_any_more(tmp_path: Path) -> None:
    def refusal(**parts: Any) -> str:
        job = Job()
        job.specification = specification(**parts)
        with pytest.raises(JobImpossible) as refused:
            plan_of(job, Settings(data_roots=(tmp_path,)))
        return str(refused.value)

    # There are no such modules: nobody has looked for them.
    for parts in ({"workload": {"name": "nowhere:Mine"}}, {"sampler": {"name": "nowhere:Mine"}}):
        assert "'nowhere:Mine' is code" in refusal(**parts)
        assert "SHAMPOO_TUNER_ALLOW_CODE" in refusal(**parts)
    outside = refusal(workload={"name": "image-folder", "options": {"path": "/etc/ssl"}})
    assert "workload.options.path: '/etc/ssl' is in none of" in outside
    assert "SHAMPOO_TUNER_DATA_ROOTS" in outside


@pytest.mark.parametrize(
    ("num_train_examples", "refused"), [(1200, False), (1248, False), (1249, True), (10_000, True)]
)
def test_a_population_is_refused_that_is_measured_at_its_last_step_alone(
    num_train_examples: int, refused: bool
) -> None:
    plan = plan_job(specification(**BY_EPOCHS))  # 40 steps are two epochs of 1280 examples
    if not refused:
        check_population_is_measured(plan, num_train_examples)
        return
    with pytest.raises(InvalidInput, match=r"2 epochs are .* every 10 of their 40 steps \(pruner\.interval\)") as error:
        check_population_is_measured(plan, num_train_examples)
    assert error.value.field == "training.evaluate_every_epochs"


def test_other_jobs_may_be_measured_at_their_end_alone() -> None:
    check_population_is_measured(plan_job(specification(training=BY_EPOCHS["training"])), 10_000)


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_run_counts_the_examples_of_a_population_that_is_measured_by_epochs() -> None:
    training = {"num_steps": 40, "batch_size": 64, "evaluate_every_epochs": 2.0}
    with pytest.raises(JobImpossible, match=r"^training\.evaluate_every_epochs: 2 epochs are \d+ steps, and 'pbt'"):
        check_data(plan_job(specification(**{**BY_EPOCHS, "training": training})), Settings().data_directories)
