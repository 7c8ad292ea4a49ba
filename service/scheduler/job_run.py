"""One job, one Ray Tune run, one process: `python -m service.scheduler.job_run`, started by the worker.

The worker holds the other end of standard input: its end of file tells the run that the worker is gone. Exit status 0:
the job has finished, or is no longer this run's; anything else is a crash.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ray import tune

from service import runs
from service.domain import Phase, TrialState
from service.errors import InvalidInput, LeaseLost, NotFound
from service.jobs import specification_of
from service.leases import Lease, release_job
from service.scheduler import process_tree, ray_cluster
from service.scheduler.ending import Ending, JobImpossible, RunEnded
from service.scheduler.phases import JobPolicy, PhasePlan
from service.scheduler.policy import TrialHistory
from service.scheduler.pruning import PolicyPruner
from service.scheduler.rank_group import GroupSize
from service.scheduler.recorder import OUTAGE_SECONDS, Recorder
from service.scheduler.run_environment import cluster_address
from service.scheduler.search import PolicySearcher
from service.scheduler.searching.auto import AutoSearch
from service.scheduler.searching.phase_search import PhaseSearch, SampledSearch
from service.scheduler.searching.pruners import make_pruner
from service.scheduler.searching.samplers import make_sampler
from service.scheduler.trainable import WarmTrainable, trial_resources
from service.settings import Settings
from service.specification import JobPlan, plan_job
from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.retry import Write, write_with_retries
from service.store.session import Database

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 8.0
"""After the run was told to end, how long it may take before it ends without ceremony."""
CLUSTER_POLL_SECONDS = 2.0
"""How often a run looks whether its Ray cluster still counts on it."""


class Watch:
    """Watches from threads whether the run must end early."""

    def __init__(self, database: Database, lease: Lease, *, poll_seconds: float) -> None:
        self._database = database
        self._lease = lease
        self._poll_seconds = poll_seconds
        self._told: Ending | None = None
        self._deadline: float | None = None
        self._leaving = threading.Event()
        self._finishing = threading.Event()
        self._cluster_watch = threading.Thread(target=self._watch_cluster, name="watch-cluster", daemon=True)

    def start(self) -> None:
        threading.Thread(target=self._watch_worker, name="watch-worker", daemon=True).start()
        threading.Thread(target=self._watch_lease, name="watch-lease", daemon=True).start()

    def start_for_cluster(self) -> None:
        """Watches the connected Ray cluster too, until `stop_for_cluster`."""
        self._cluster_watch.start()

    def stop_for_cluster(self) -> None:
        """Watches it no more. To be called before the process leaves it: asking Ray afterwards would start another."""
        self._leaving.set()
        if self._cluster_watch.is_alive():
            self._cluster_watch.join(timeout=CLUSTER_POLL_SECONDS)

    def stop_for_lease(self) -> None:
        """Watches the lease no more. To be called before the run gives it up by finishing the job."""
        self._finishing.set()

    def end_on_sigterm(self) -> None:
        """Notes the signal, from a thread of its own: a handler may interrupt code that holds a lock."""
        signal.signal(
            signal.SIGTERM, lambda _number, _frame: threading.Thread(target=self.end, args=[Ending.STOPPED]).start()
        )

    def limit(self, seconds: float) -> None:
        """Ends the run after so many seconds from now."""
        self._deadline = time.monotonic() + seconds

    def ending(self) -> Ending | None:
        """What ends the run, if anything."""
        if self._told is None and self._deadline is not None and time.monotonic() >= self._deadline:
            return Ending.BUDGET_SPENT
        return self._told

    def end(self, ending: Ending) -> None:
        """Tells the run to end, and sees to it that it does."""
        if self._told is None:
            self._told = ending
            logger.info("the run of job %s ends: %s", self._lease.job_id, ending)
            timer = threading.Timer(PATIENCE_SECONDS, end_at_once, kwargs={"status": 1})
            timer.daemon = True
            timer.start()

    def _watch_worker(self) -> None:
        while os.read(sys.stdin.fileno(), 1024):  # the worker writes nothing; this ends when it is gone
            pass
        self.end(Ending.STOPPED)

    def _watch_lease(self) -> None:
        while self._told is None and not self._finishing.wait(self._poll_seconds):
            try:
                with self._database.reading() as session:
                    held = self._lease.is_held_on(JobRepository(session).get(self._lease.job_id))
            except NotFound:
                held = False
            except Exception:  # a thread's boundary: the next look may succeed, and writes have a fence
                logger.exception("cannot see whether the lease is still held")
                continue
            if not held and not self._finishing.is_set():
                self.end(Ending.LEASE_LOST)

    def _watch_cluster(self) -> None:
        """Ends a run whose raylet died: Tune would wait for ever for resources. The worker starts it again."""
        while not self._leaving.wait(CLUSTER_POLL_SECONDS):
            try:
                lost = ray_cluster.own_machine_is_lost()
            except Exception:  # a thread's boundary: a run without its cluster's head is ended by Ray after a minute
                logger.exception("cannot see whether the cluster is well")
                continue
            if lost and not self._leaving.is_set():
                logger.error("the Ray cluster has lost the machine of this run; job %s starts anew", self._lease.job_id)
                end_at_once(status=1)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What SQL holds of a job when its run starts."""

    job: Job
    trials: list[Trial]


def run_job(database: Database, lease: Lease, settings: Settings, *, directory: Path, watch: Watch) -> None:
    """Runs a leased job to its end, or until `watch` ends the run."""
    stored = _read(database, lease)
    checkpoints = settings.data_dir / "checkpoints" / lease.job_id
    address = cluster_address(settings)
    failure, ending = None, Ending.DONE
    try:
        _search(database, lease, settings, stored, checkpoints=checkpoints, directory=directory, watch=watch)
    except RunEnded as ended:
        ending = ended.ending
    except JobImpossible as error:
        failure = str(error)
    # Before the job changes hands or its checkpoints go, its ranks must be gone.
    watch.stop_for_cluster()
    ray_cluster.leave(address)
    if ending is Ending.STOPPED:
        _write(database, lambda session: release_job(session, lease, now=_now(), crash=None))
        return
    watch.stop_for_lease()
    try:
        if ending is not Ending.LEASE_LOST:
            _write(database, lambda session: runs.finish_job(session, lease, failure=failure, now=_now()))
    except LeaseLost:
        logger.info("the lease of job %s was lost", lease.job_id)
    if _is_final(database, lease):
        shutil.rmtree(checkpoints, ignore_errors=True)


def _search(
    database: Database,
    lease: Lease,
    settings: Settings,
    stored: _Stored,
    *,
    checkpoints: Path,
    directory: Path,
    watch: Watch,
) -> NoReturn:
    """Tries what the policy asks for.

    Raises:
        RunEnded: always, at the end; measurements are written.
        JobImpossible: the job cannot be run.
    """
    try:
        plan = plan_job(specification_of(stored.job))
    except InvalidInput as error:
        raise JobImpossible(f"the job can no longer be run: {error}") from error
    wall_clock_seconds = plan.specification.budget.wall_clock_seconds
    if wall_clock_seconds is not None:
        assert stored.job.started_at is not None
        watch.limit(wall_clock_seconds - (_now() - stored.job.started_at).total_seconds())
    size = _group_size(plan)
    policy = make_policy(plan)
    policy.restore([_history(trial, plan.metric) for trial in stored.trials])
    if policy.is_done:
        raise RunEnded(Ending.DONE)

    nodes = ray_cluster.connect(cluster_address(settings), directory=directory)
    watch.start_for_cluster()
    fitting = ray_cluster.max_parallel_trials(nodes, size)
    if fitting == 0:
        raise JobImpossible(ray_cluster.describe_shortage(nodes, size))
    pruner = PolicyPruner(policy, metric=plan.metric, constraints=plan.specification.constraints)
    recorder = Recorder(
        database,
        lease,
        plan=plan,
        policy=policy,
        pruner=pruner,
        size=size,
        configs={trial.number: trial.config for trial in stored.trials if not trial.state.is_final},
        checkpoints=checkpoints,
        ending=watch.ending,
    )
    tuner = tune.Tuner(
        tune.with_resources(WarmTrainable, trial_resources(size)),
        tune_config=tune.TuneConfig(
            search_alg=PolicySearcher(policy, order=recorder.order, give_up=recorder.give_up),
            scheduler=pruner,
            num_samples=-1,  # the searcher says when nothing is left
            max_concurrent_trials=min(fitting, plan.specification.resources.parallel_trials or fitting),
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            storage_path=str(directory / "tune"),
            verbose=0,
            callbacks=[recorder],
            # Else each trial would end with a call to save nothing.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    # Ray has set its own handler; a signal is only noted, and the run ends at its next turn.
    watch.end_on_sigterm()
    try:
        tuner.fit()
    except RunEnded as ended:
        if ended.ending is not Ending.LEASE_LOST:
            recorder.flush()
        raise
    raise AssertionError("Tune ended although the policy has trials left")


def make_policy(plan: JobPlan) -> JobPolicy:
    """The policy of a job."""
    return JobPolicy(
        [
            PhasePlan(
                phase,
                plan.spaces[phase],
                plan.allotments[phase],
                search=partial(_make_search, plan, phase),
                pinned=plan.pinned[phase],
                patience=plan.specification.budget.patience,
                direction=plan.direction,
            )
            for phase in Phase
            if phase in plan.spaces
        ]
    )


def _make_search(plan: JobPlan, phase: Phase) -> PhaseSearch:
    sampler, pruner = plan.specification.sampler, plan.specification.pruner
    space, seed = plan.spaces[phase], f"{sampler.seed}/{phase}"
    if plan.sampler == "auto":
        return AutoSearch(
            space,
            direction=plan.direction,
            max_steps=plan.num_steps,
            measure_every=plan.evaluate_every or 1,
            first_rung=pruner.min_steps,
            pauses=plan.pruner != "none",
            seed=random.Random(seed).getrandbits(32),
        )
    assert plan.pruner != "auto"
    return SampledSearch(
        make_sampler(plan.sampler, space, direction=plan.direction, num_trials=plan.allotments[phase], seed=seed),
        make_pruner(
            plan.pruner,
            min_steps=plan.min_pruning_steps,
            max_steps=plan.num_steps,
            reduction_factor=pruner.reduction_factor or 3,
            direction=plan.direction,
        ),
    )


def _group_size(plan: JobPlan) -> GroupSize:
    resources = plan.specification.resources
    return GroupSize(
        resources.workers_per_trial,
        resources.cpus_per_worker,
        resources.gpus_per_worker,
        resources.memory_per_worker or 0,
        resources.custom_resources,
    )


def _history(trial: Trial, metric: str) -> TrialHistory:
    def objective(metrics: dict[str, Any]) -> float:
        value = metrics.get(metric)
        return float("nan") if value is None else float(value)  # SQL keeps no NaN

    return TrialHistory(
        number=trial.number,
        phase=trial.phase,
        parameters=trial.parameters,
        state=trial.state,
        reason=trial.reason,
        value=trial.value if trial.state is TrialState.COMPLETED else None,
        curve=tuple((measurement.step, objective(measurement.metrics)) for measurement in trial.measurements),
    )


def _read(database: Database, lease: Lease) -> _Stored:
    with database.reading() as session:
        return _Stored(
            JobRepository(session).get(lease.job_id), TrialRepository(session).with_measurements(lease.job_id)
        )


def _is_final(database: Database, lease: Lease) -> bool:
    with database.reading() as session:
        return JobRepository(session).get(lease.job_id).state.is_final


def _write(database: Database, write: Write) -> None:
    write_with_retries(database, write, give_up_seconds=OUTAGE_SECONDS)


def _now() -> datetime:
    return datetime.now(UTC)


def end_at_once(*, status: int) -> NoReturn:
    """Ends this process and all it started, without Ray's own farewells, which can wait for busy ranks."""
    process_tree.end_descendants()
    logging.shutdown()
    os._exit(status)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the job named by the command line."""
    parser = argparse.ArgumentParser(prog="python -m service.scheduler.job_run", description=__doc__)
    parser.add_argument("--job", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument("--directory", required=True, type=Path, help="for temporary files; removed at the end")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    process_tree.adopt_orphans()
    settings = Settings()
    database = Database(settings.resolved_database_url)
    lease = Lease(options.job, options.worker, options.attempt)
    watch = Watch(database, lease, poll_seconds=settings.poll_seconds)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to handle
    watch.end_on_sigterm()
    watch.start()
    status = 0
    try:
        run_job(database, lease, settings, directory=options.directory, watch=watch)
    except Exception:  # a process boundary
        logger.exception("the run of job %s crashed", lease.job_id)
        status = 1
    process_tree.end_descendants()
    shutil.rmtree(options.directory, ignore_errors=True)
    end_at_once(status=status)


if __name__ == "__main__":
    main()
