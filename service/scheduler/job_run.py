"""One job, one Ray Tune run, one process: `python -m service.scheduler.job_run`, started by the worker.

The worker holds the other end of standard input: its end of file tells the run that the worker is gone. The run's exit
status (`run_end.ExitStatus`) tells the worker how it ended.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # imported objects stay: looking for garbage among them takes a fourth of the start

import argparse
import logging
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from ray import tune

from service.checkpoint_files import weights_of
from service.errors import LeaseLost
from service.monitoring.logs import set_up_job_log
from service.scheduler.before_training import check_data, make_feasibility, num_at_once, with_known_configs
from service.scheduler.checkpoint_storage import checkpoints_of
from service.scheduler.cluster import process_tree, ray_cluster
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.cluster.ray_internals import TuneRankGroups, counting_no_callbacks
from service.scheduler.cluster.worker_start import SOCKET_VARIABLE
from service.scheduler.cluster.worker_template import WorkerTemplate, is_useful
from service.scheduler.disk import Room
from service.scheduler.insights.keeper import InsightsKeeper
from service.scheduler.job_code import enter_code, runtime_environment
from service.scheduler.kept_weights import WeightsPlaces
from service.scheduler.live_trackers import LiveTrackers
from service.scheduler.output.files import OutputPlaces, local_parent
from service.scheduler.output.keeper import OutputKeeper
from service.scheduler.output.on_cluster import ClusterOutput
from service.scheduler.policy.searching.sampling.user_sampler import SamplerFailed
from service.scheduler.removal import remove_checkpoints_if_finished
from service.scheduler.stored_job import (
    Stored,
    group_size,
    is_final,
    is_to_be_judged,
    parts_of,
    plan_of,
    read_stored,
    restored_policy,
    retries_of,
    set_limits,
    trackers_of,
    unfinished_configs,
)
from service.scheduler.tune.adapters import TuneAdapters, adapters_of
from service.scheduler.tune.journal import RUN_OUTAGE_SECONDS, Journal
from service.scheduler.tune.open_trials import OpenTrials
from service.scheduler.tune.run_end import Ending, ExitStatus, JobImpossible, RunEnded
from service.scheduler.tune.sharing import Sharing
from service.scheduler.tune.step_timing import with_step_times
from service.scheduler.tune.trainable import WarmTrainable, trial_resources
from service.scheduler.watch import LEAVING_SECONDS, Watch, at_most, end_at_once
from service.settings import Settings
from service.store.retry import Write, write_with_retries
from service.store.session import DATABASE_ERRORS, Database
from service.store.writes import is_full
from service.use_cases import run
from service.use_cases.leases import Lease, release_job
from trainers.processes.job_code import JobCode
from trainers.processes.orphans import adopt_orphans
from trainers.storage import Place, StoreFailed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job, and its arguments."""

    database: Database
    lease: Lease
    settings: Settings
    directory: Path
    """The directory for temporary files."""
    watch: Watch
    groups: TuneRankGroups = field(default_factory=TuneRankGroups)

    @property
    def address(self) -> str | None:
        """The address of the cluster; None: it is a local one of its own."""
        return self.settings.cluster_address

    @property
    def checkpoints(self) -> Place:
        """The place of the job's checkpoints."""
        return checkpoints_of(self.settings.checkpoint_place, self.lease.job_id)

    def write(self, write: Write) -> None:
        """Writes, whether or not the run has been told to end."""
        write_with_retries(self.database, write, give_up_seconds=RUN_OUTAGE_SECONDS)


def run_job(this: JobRun) -> None:
    """Runs a leased job to its end, or until its watch ends the run."""
    failure, ending = None, Ending.DONE
    output = _output_of_cluster(this)
    if output is not None:
        output.start()
    stored = read_stored(this.database, this.lease)
    trackers = trackers_of(stored.job, this.settings.tracker_place)
    insights = InsightsKeeper(this.database, this.lease, clock=this.database.now)
    insights.start()
    try:
        with _template(this):
            _search(this, stored, trackers)
    except RunEnded as ended:
        ending = ended.ending
    except JobImpossible as error:
        failure = str(error)
        if this.watch.is_told:  # perhaps its own end caused the error; if not, the next run meets it
            failure, ending = None, this.watch.ending() or ending
    _leave(this, ending, failure, output, insights)
    trackers.close()  # after the job has ended and its devices are free, so nothing waits for a slow tracker


def _output_of_cluster(this: JobRun) -> OutputKeeper | None:
    """Keeps the output of ranks on other machines; the worker keeps that on its own."""
    if this.address is None or not this.settings.log_bytes_per_rank:
        return None
    job_id = this.lease.job_id
    source = ClusterOutput(job_id, this.groups.node_ids)
    return OutputKeeper(this.database, job_id, source, bytes_per_rank=this.settings.log_bytes_per_rank)


def _template(this: JobRun) -> AbstractContextManager[object]:
    """The template of the workers of a local cluster, unless this run's launcher has started it."""
    is_missing = is_useful(this.address) and SOCKET_VARIABLE not in os.environ
    return WorkerTemplate(this.directory) if is_missing else nullcontext()


def _leave(
    this: JobRun, ending: Ending, failure: str | None, output: OutputKeeper | None, insights: InsightsKeeper
) -> None:
    """Ends the ranks, writes the end of the job or gives it back, and leaves Ray."""
    # From here on the state of the cluster does not matter to the job. Before another run gets the job, its ranks must
    # be gone.
    this.watch.stop_for_cluster()
    is_to_finish = not ending.gives_back and ending is not Ending.LEASE_LOST
    if is_to_finish:
        this.watch.stop_for_lease()
    if this.address is None:
        ray_cluster.end_local_ranks()
    else:
        this.groups.end()
    if is_to_finish:
        insights.close()
    else:
        insights.stop()
    # The job's end is written before leaving Ray, whose own code can hang or end this process.
    if is_to_finish:
        try:
            cut_short = ending.cut_short
            this.write(
                lambda session: run.finish_job(
                    session, this.lease, failure=failure, cut_short=cut_short, now=this.database.now()
                )
            )
        except LeaseLost:
            logger.info("the lease of job %s was lost", this.lease.job_id)
    with at_most(LEAVING_SECONDS, status=ExitStatus.CUT_SHORT if ending.gives_back else ExitStatus.IN_ORDER):
        if output is not None:
            output.close()
        ray_cluster.leave(this.address)
    if ending.gives_back:
        this.write(lambda session: release_job(session, this.lease, now=this.database.now(), crash=None))
    elif is_final(this.database, this.lease):
        try:
            remove_checkpoints_if_finished(
                this.database,
                this.settings.checkpoint_place,
                this.lease.job_id,
                kept=this.settings.checkpoints_kept,
                clock=this.database.now,
            )
        except (StoreFailed, *DATABASE_ERRORS) as error:
            logger.warning("checkpoints stay for now: %s", error)


def _search(this: JobRun, stored: Stored, trackers: LiveTrackers) -> NoReturn:
    """Runs the trials that the policy asks for.

    Raises:
        RunEnded: always, at the end; measurements are written.
        JobImpossible: the job cannot be run, or cannot be continued.
        WorkloadNotDescribed: the job cannot be run now.
    """
    code = enter_code(this.database, stored.job, this.settings, this.directory)
    plan = plan_of(stored.job, this.settings)
    set_limits(this.watch, plan, stored, now=this.database.now())
    journal = Journal(this.database, this.lease, this.watch)
    plan = with_known_configs(plan, stored, journal, this.settings.data_directories)
    policy = restored_policy(plan, stored, this.watch)
    retries = retries_of(stored)
    hopeless = retries.why_to_stop()
    if hopeless is not None:
        raise JobImpossible(hopeless)
    size = group_size(plan)
    if this.address is None:
        check_data(plan, this.settings.data_directories)
    nodes = _connected(this, size, code)
    sharing, roots = _sharing(this, journal, nodes, size), this.settings.data_directories
    feasibility = make_feasibility(plan, stored, is_local=this.address is None)
    timed = with_step_times(
        plan,
        stored.trials,
        journal,
        this.watch,
        size=size,
        feasibility=feasibility,
        sharing=sharing,
        data_roots=roots,
    )
    if timed is not plan:
        plan, policy = timed, restored_policy(timed, stored, this.watch)
    trials = OpenTrials(
        journal,
        policy,
        this.watch,
        configs=unfinished_configs(stored),
        checkpoints=this.checkpoints,
        never_launched={trial.number for trial in stored.trials if is_to_be_judged(trial)},
        parts=parts_of(stored),
        trackers=trackers,
    )
    adapters = adapters_of(
        plan,
        policy,
        journal,
        trials,
        this.watch,
        size=size,
        retries=retries,
        feasibility=feasibility,
        groups=this.groups,
        sharing=sharing,
        data_roots=roots,
        output=_output_places(this),
        weights=_weights_places(this, stored) if plan.specification.keep_weights else None,
    )
    at_once = num_at_once(plan, feasibility, fitting=ray_cluster.max_parallel_trials(nodes, size))
    # Ray has set its own signal handler; ours only notes a signal, and the run ends at its next turn.
    this.watch.end_on_sigterm()
    try:
        with counting_no_callbacks():
            _tuner(adapters, size, num_parallel=at_once, directory=this.directory).fit()
    except RunEnded as ended:
        if ended.ending is not Ending.LEASE_LOST:
            journal.flush()
        raise
    except (JobImpossible, SamplerFailed) as error:
        journal.flush()
        raise JobImpossible(str(error)) from error
    raise AssertionError("Tune ended although the policy has trials left")


def _weights_places(this: JobRun, stored: Stored) -> WeightsPlaces:
    place = weights_of(this.settings.checkpoint_place, this.lease.job_id)
    return WeightsPlaces(place, {trial.number for trial in stored.trials if trial.confirms is not None})


def _output_places(this: JobRun) -> OutputPlaces | None:
    """The places where ranks write their output; None: it is not kept."""
    if not this.settings.log_bytes_per_rank:
        return None
    parent = str(local_parent(this.settings.data_dir)) if this.address is None else None
    return OutputPlaces(parent, this.lease.job_id)


def _connected(this: JobRun, size: GroupSize, code: JobCode | None) -> list[ray_cluster.Node]:
    """The machines of the cluster, to which this process is connected from here on.

    Raises:
        JobImpossible: they cannot hold a single trial.
    """
    this.watch.start_for_processes()
    namespace = f"shampoo-tuner/{this.lease.job_id}"
    nodes = ray_cluster.connect(
        this.address,
        directory=this.directory,
        namespace=namespace,
        runtime_environment=None if this.address is None else runtime_environment(code),
    )
    this.watch.start_for_cluster()
    if ray_cluster.max_parallel_trials(nodes, size) == 0:
        raise JobImpossible(ray_cluster.describe_shortage(nodes, size))
    return nodes


def _sharing(this: JobRun, journal: Journal, nodes: Sequence[ray_cluster.Node], size: GroupSize) -> Sharing | None:
    """The run's share of its cluster; None: the cluster is only for this run."""
    if this.address is None:
        return None
    return Sharing(
        journal,
        this.watch,
        cluster=ray_cluster.identity(),
        nodes=nodes,
        size=size,
        groups=this.groups,
        poll_seconds=this.settings.poll_seconds,
    )


def _tuner(adapters: TuneAdapters, size: GroupSize, *, num_parallel: int, directory: Path) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(WarmTrainable, trial_resources(size)),
        tune_config=tune.TuneConfig(
            search_alg=adapters.searcher,
            scheduler=adapters.pruner,
            num_samples=-1,  # the searcher says when nothing is left
            max_concurrent_trials=num_parallel,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            storage_path=str(directory / "tune"),
            verbose=0,
            callbacks=adapters.callbacks,
            # Otherwise each trial would end with a call that saves nothing.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the job named by the command line."""
    parser = argparse.ArgumentParser(prog="python -m service.scheduler.job_run", description=__doc__)
    parser.add_argument("--job", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument("--directory", required=True, type=Path, help="for temporary files; removed at the end")
    options = parser.parse_args(arguments)
    adopt_orphans()
    settings = Settings()
    set_up_job_log(settings.log_format, job=options.job, attempt=options.attempt)
    database = Database(settings.resolved_database_url)
    lease = Lease(options.job, options.worker, options.attempt)
    watch = Watch(database, lease, poll_seconds=settings.poll_seconds, room=Room(settings))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to handle
    watch.end_on_sigterm()
    watch.start()
    status = ExitStatus.IN_ORDER
    try:
        run_job(JobRun(database, lease, settings, options.directory, watch))
    except Exception as error:  # a process boundary
        if is_full(error):
            logger.warning("the run of job %s ends until the disk of the database has room: %s", lease.job_id, error)
            status = ExitStatus.CUT_SHORT
        elif watch.is_told:  # perhaps it was just about to end, and lost Ray because of that
            logger.warning("the run of job %s, told to end, could not end in order", lease.job_id, exc_info=True)
            status = ExitStatus.CUT_SHORT
        elif isinstance(error, ray_cluster.ClusterOutOfReach):
            logger.error("%s", error)  # whoever reads it is to mend the cluster or its address: no traceback
            status = ExitStatus.CRASHED
        else:
            logger.exception("the run of job %s crashed", lease.job_id)
            status = ExitStatus.CRASHED
    process_tree.end_descendants()
    shutil.rmtree(options.directory, ignore_errors=True)
    end_at_once(status=status)


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    main()
