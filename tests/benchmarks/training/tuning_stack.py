"""The service's own driver of trials (policy, searcher, pruner, recorder on SQLite) around any trainable.

What `scheduler_scale` and `report_idle` measure. Ray must have been started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ray import tune

from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.tune.adapters import adapters_of
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.open_trials import OpenTrials
from service.scheduler.tune.run_end import RunEnded
from service.scheduler.watch import Watch
from service.specification.job import JobSpecification
from service.specification.planning import plan_job
from service.store.migrate import migrate
from service.store.session import Database
from service.use_cases.leases import claim_job, register_worker
from service.use_cases.submit import create_job

DATABASE = "benchmark.sqlite3"
# What a job's run has in its environment; before Ray is imported.
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",
}


@contextmanager
def database(directory: Path) -> Iterator[Database]:
    """A migrated SQLite database in the directory."""
    found = Database(f"sqlite:///{directory / DATABASE}")
    try:
        migrate(found)
        yield found
    finally:
        found.close()


def run_job(
    store: Database,
    specification: dict[str, Any],
    trainable: Any,
    *,
    size: GroupSize,
    num_parallel: int,
    directory: Path,
    callbacks: list[tune.Callback],
) -> None:
    """Runs a job to its end, as `service.scheduler.job_run` does."""
    now = datetime.now(UTC)
    plan = plan_job(JobSpecification.model_validate(specification))
    with store.writing() as session:
        worker_id = register_worker(session, host="here", pid=1, now=now)
        create_job(
            session,
            plan.specification,
            name=None,
            tags={},
            project="default",
            owner=None,
            idempotency_key=None,
            now=now,
        )
        lease = claim_job(session, worker_id, lease_seconds=1e6, now=now)
    assert lease is not None
    policy = make_policy(plan)
    policy.restore([])
    watch = Watch(store, lease, poll_seconds=1.0)  # not started: nothing ends the run early
    journal = Journal(store, lease, watch)
    trials = OpenTrials(journal, policy, watch, configs={}, checkpoints=directory / "checkpoints")
    adapters = adapters_of(plan, policy, journal, trials, watch, size=size)
    with suppress(RunEnded):
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=adapters.searcher,
                scheduler=adapters.pruner,
                num_samples=-1,
                max_concurrent_trials=num_parallel,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                storage_path=str(directory / "tune"),
                verbose=0,
                callbacks=[adapters.recorder, *callbacks],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()
        raise AssertionError("Tune ended although the policy has trials left")
