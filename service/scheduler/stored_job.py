"""A job as it is stored when its run starts, and the state of the run that follows from its stored trials."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from service.access.permitted import check_paths, refuse_code_switched_off
from service.domain import Phase
from service.errors import InvalidInput, NotFound
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.live_trackers import LiveTrackers
from service.scheduler.policy.history import history_of
from service.scheduler.policy.in_common import InCommon
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.retries import Retries, Setbacks
from service.scheduler.policy.searching.sampling.user_sampler import SamplerFailed
from service.scheduler.tune.journal import RUN_OUTAGE_SECONDS
from service.scheduler.tune.run_end import Ending, JobImpossible, RunEnded, Signals
from service.scheduler.watch import Watch
from service.settings import Settings
from service.specification.planning import JobPlan, plan_job
from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.retry import with_retries
from service.store.session import Database
from service.use_cases.budgets import allowed_device_hours, device_hours, running_seconds
from service.use_cases.leases import Lease
from trainers.config import InvalidConfig, TrialConfig


@dataclass(frozen=True, slots=True)
class Stored:
    """A job's rows."""

    job: Job
    trials: list[Trial]


def read_stored(database: Database, lease: Lease) -> Stored:
    """Reads a leased job; through an outage of the database, too."""
    return with_retries(
        database.reading,
        lambda session: Stored(
            JobRepository(session).get(lease.job_id),
            TrialRepository(session).with_measurements(lease.job_id),
        ),
        give_up_seconds=RUN_OUTAGE_SECONDS,
    )


def plan_of(job: Job, settings: Settings) -> JobPlan:
    """The plan of a stored job, made again. Its names are checked against this worker's settings, which can differ from
    those of the API that accepted the job, and can have changed since.

    Raises:
        JobImpossible: it has no valid plan any more, e.g. because the workload has changed; or it names code or paths
            that are not allowed here. Nothing of them has been opened.
        WorkloadNotDescribed: its plan cannot be made now. That is not the job's fault: this run crashes, and the next
            one tries again.
    """
    specification = job.specification
    try:
        refuse_code_switched_off(specification.workload, specification.sampler, settings)
        plan = plan_job(specification)
        if specification.external is None:  # else its clients open what it names
            check_paths(plan, settings.data_directories, data_are_here=False)
    except InvalidInput as error:
        raise JobImpossible(f"the job can no longer be run: {error}") from error
    return plan


def retries_of(stored: Stored) -> Retries:
    """The retries of a job, told of the failures of its stored trials."""
    retries, reopened_at = Retries(suspects_memory=not stored.job.is_external), stored.job.reopened_at
    for trial in stored.trials:
        # A user who continues a job after its end has fixed what ended it.
        is_mended = reopened_at is not None and trial.finished_at is not None and trial.finished_at < reopened_at
        reason = None if is_mended else trial.reason
        retries.restore(trial.number, Setbacks(trial.losses, trial.memory_failures), reason, trial.detail)
    return retries


def unfinished_configs(stored: Stored) -> dict[int, TrialConfig]:
    """The configs of the trials that have not ended, by number.

    Raises:
        JobImpossible: a stored config is no longer valid.
    """
    try:
        return {
            trial.number: TrialConfig.from_json(trial.config) for trial in stored.trials if not trial.state.is_final
        }
    except InvalidConfig as error:
        raise JobImpossible(f"a trial of the job can no longer be run: {error}") from error


def parts_of(stored: Stored) -> dict[int, int]:
    """The parts of each batch that each trial takes or took, by number."""
    return {trial.number: trial.stored_config.accumulation_steps for trial in stored.trials}


def is_to_be_judged(trial: Trial) -> bool:
    """True if a stored trial may still be found infeasible before it is launched: not if a user wants it tried again,
    nor if another trial with the same or a similar config has been trained."""
    was_trained = trial.phase is Phase.CONFIRMATION or trial.forked_from is not None
    was_launched = trial.runs > 0 or trial.spared or was_trained
    return not was_launched and not trial.state.is_final


def restored_policy(plan: JobPlan, stored: Stored, signals: Signals) -> JobPolicy | InCommon:
    """The policy of a job that has something left to try.

    Raises:
        RunEnded: it has nothing left, or the run already has to end.
        JobImpossible: its sampler can no longer be imported, or fails.
    """
    try:
        policy = make_policy(plan)
        policy.restore(history_of(stored.trials, plan.objectives))
    except (InvalidInput, SamplerFailed) as error:
        raise JobImpossible(f"the job can no longer be run: {error}") from error
    if policy.is_done:
        raise RunEnded(Ending.DONE)
    if (ending := signals.ending()) is not None:
        raise RunEnded(ending)
    return policy


def set_limits(watch: Watch, plan: JobPlan, stored: Stored, *, now: datetime) -> None:
    """Makes the run end when the job's time is spent."""
    specification = plan.specification
    budget, spent = specification.budget, sum(trial.spent_seconds for trial in stored.trials)
    if budget.wall_clock_seconds is not None:
        watch.limit(budget.wall_clock_seconds - running_seconds(stored.job, now))
    allowed_hours = allowed_device_hours(budget, stored.job.price)
    if allowed_hours is not None:
        allowed = allowed_hours / device_hours(specification, 1.0)
        watch.limit_training(allowed)
        if spent >= allowed:
            watch.limit(0.0)


def group_size(plan: JobPlan) -> GroupSize:
    """The ranks of each of a job's trials."""
    resources = plan.specification.resources
    return GroupSize(
        resources.workers_per_trial,
        resources.cpus_per_worker,
        resources.gpus_per_worker,
        resources.memory_per_worker or 0,
        resources.custom_resources,
    )


def trackers_of(job: Job, directory: Path) -> LiveTrackers:
    """The experiment trackers that a job asks for; to be closed."""
    return LiveTrackers(job.id, job.specification.trackers, directory, job_name=job.name)


def is_final(database: Database, lease: Lease) -> bool:
    """True if the leased job has come to its end."""
    try:
        return with_retries(
            database.reading,
            lambda session: JobRepository(session).get(lease.job_id).state.is_final,
            give_up_seconds=RUN_OUTAGE_SECONDS,
        )
    except NotFound:
        return True  # it has ended, and was deleted
