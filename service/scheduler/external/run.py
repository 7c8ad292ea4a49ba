"""The run of one job whose trials clients train, in a process of its own: `python -m service.scheduler.external.run`,
started by the worker, which holds the other end of standard input.

It imports neither torch nor Ray and starts nothing: it costs a worker some memory, and no device.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from service.clock import Clock, utc_now
from service.domain import Phase
from service.errors import LeaseLost
from service.monitoring.logs import set_up_job_log
from service.scheduler.checkpoint_storage import checkpoints_of
from service.scheduler.external.serving import Serving
from service.scheduler.insights.keeper import InsightsKeeper
from service.scheduler.live_trackers import LiveTrackers
from service.scheduler.policy.decisions import Decisions
from service.scheduler.policy.feasibility import Feasibility
from service.scheduler.policy.searching.sampling.user_sampler import SamplerFailed
from service.scheduler.policy.time_limit import Pace
from service.scheduler.stored_job import (
    Stored,
    group_size,
    parts_of,
    plan_of,
    read_stored,
    restored_policy,
    retries_of,
    set_limits,
    trackers_of,
    unfinished_configs,
)
from service.scheduler.tune.journal import RUN_OUTAGE_SECONDS, Journal
from service.scheduler.tune.judgement import Judgement
from service.scheduler.tune.open_trials import OpenTrials
from service.scheduler.tune.orders import Orders
from service.scheduler.tune.run_end import Ending, ExitStatus, JobImpossible, RunEnded, Signals
from service.scheduler.watch import Watch, end_at_once
from service.settings import Settings
from service.specification.planning import JobPlan
from service.store.retry import Write, write_with_retries
from service.store.session import Database
from service.store.writes import is_full
from service.use_cases import run
from service.use_cases.leases import Lease, release_job
from trainers.storage import Place

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
"""Time between two checks for requests, while there are clients; a check is one statement on an index."""
QUIET_SECONDS = 60.0
"""Time without a request after which it checks less often."""
QUIET_POLL_SECONDS = 0.5
"""Time between two checks then. By judgement: the next client waits up to this long for its answer."""


def run_external_job(
    database: Database, lease: Lease, watch: Watch, settings: Settings, *, clock: Clock = utc_now
) -> None:
    """Answers the clients of a leased job to its end, or until its watch ends the run."""
    failure, ending = None, Ending.DONE
    stored = read_stored(database, lease)
    trackers = trackers_of(stored.job, settings.tracker_place)
    insights = InsightsKeeper(database, lease, clock=clock)
    insights.start()
    try:
        serve_clients(database, lease, stored, watch, trackers, settings, clock=clock)
    except RunEnded as ended:
        ending = ended.ending
    except JobImpossible as error:
        failure = str(error)

    def write(what: Write) -> None:
        write_with_retries(database, what, give_up_seconds=RUN_OUTAGE_SECONDS)

    if ending.gives_back:
        write(lambda session: release_job(session, lease, now=clock(), crash=None))
    elif ending is not Ending.LEASE_LOST:
        watch.stop_for_lease()
        insights.close()
        try:
            cut_short = ending.cut_short
            write(lambda session: run.finish_job(session, lease, failure=failure, cut_short=cut_short, now=clock()))
        except LeaseLost:
            logger.info("the lease of job %s was lost", lease.job_id)
    insights.stop()
    trackers.close()


def serve_clients(
    database: Database,
    lease: Lease,
    stored: Stored,
    watch: Watch,
    trackers: LiveTrackers,
    settings: Settings,
    *,
    clock: Clock = utc_now,
) -> NoReturn:
    """Answers until something ends the run.

    Raises:
        RunEnded: the reason; everything received is written, unless the job no longer belongs to this run.
        JobImpossible: the job cannot be run, or cannot be continued.
    """
    plan = plan_of(stored.job, settings)
    set_limits(watch, plan, stored, now=clock())
    serving = make_serving(
        database,
        lease,
        stored,
        plan,
        watch,
        checkpoints=checkpoints_of(settings.checkpoint_place, lease.job_id),
        trackers=trackers,
        clock=clock,
    )
    asked_at = time.monotonic()
    try:
        serving.begin()
        while True:
            if serving.turn():
                asked_at = time.monotonic()
            is_quiet = time.monotonic() - asked_at > QUIET_SECONDS
            time.sleep(QUIET_POLL_SECONDS if is_quiet else POLL_SECONDS)
    except RunEnded as ended:
        if ended.ending is not Ending.LEASE_LOST:
            serving.flush()
        raise
    except (JobImpossible, SamplerFailed) as error:
        serving.flush()
        raise JobImpossible(str(error)) from error


def make_serving(
    database: Database,
    lease: Lease,
    stored: Stored,
    plan: JobPlan,
    signals: Signals,
    *,
    checkpoints: Place,
    trackers: LiveTrackers | None = None,
    clock: Clock = utc_now,
) -> Serving:
    """The answers of a run of a stored job.

    Raises:
        RunEnded: nothing is left to try, or the run already has to end.
        JobImpossible: the job cannot be run any further.
    """
    policy = restored_policy(plan, stored, signals)
    retries = retries_of(stored)
    hopeless = retries.why_to_stop()
    if hopeless is not None:
        raise JobImpossible(hopeless)
    journal = Journal(database, lease, signals)
    trials = OpenTrials(
        journal,
        policy,
        signals,
        configs=unfinished_configs(stored),
        checkpoints=checkpoints,
        parts=parts_of(stored),
        trackers=trackers,
    )
    decisions = Decisions(policy, metrics=[objective.metric for objective in plan.objectives])
    feasibility = Feasibility()
    return Serving(
        plan,
        journal,
        policy,
        trials,
        Orders(plan, journal, trials, signals, size=group_size(plan), feasibility=feasibility),
        decisions,
        Judgement(plan, trials, decisions, retries, feasibility),
        retries,
        signals,
        Pace(plan.length.whole, num_confirming=plan.allotments.get(Phase.CONFIRMATION, 0), clock=time.monotonic),
        clock=clock,
    )


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the job named by the command line."""
    parser = argparse.ArgumentParser(prog="python -m service.scheduler.external.run", description=__doc__)
    parser.add_argument("--job", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument("--directory", required=True, type=Path, help="for temporary files; removed at the end")
    options = parser.parse_args(arguments)
    settings = Settings()
    set_up_job_log(settings.log_format, job=options.job, attempt=options.attempt)
    database = Database(settings.resolved_database_url)
    lease = Lease(options.job, options.worker, options.attempt)
    watch = Watch(database, lease, poll_seconds=settings.poll_seconds)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to handle
    watch.end_on_sigterm()
    watch.start()
    status = ExitStatus.IN_ORDER
    try:
        run_external_job(database, lease, watch, settings, clock=database.now)
    except Exception as error:  # a process boundary
        logger.exception("the run of job %s crashed", lease.job_id)
        status = ExitStatus.CUT_SHORT if watch.is_told or is_full(error) else ExitStatus.CRASHED
    shutil.rmtree(options.directory, ignore_errors=True)
    end_at_once(status=status)


if __name__ == "__main__":
    main()
