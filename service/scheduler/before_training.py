"""The steps before a job trains: a look at its data and at what is known of models like its own, and the prediction of
the memory that its trials need. Separate processes build its model."""

from __future__ import annotations

import dataclasses
import logging
from functools import partial

from service.access.permitted import check_paths
from service.domain import Phase, TrialState
from service.errors import InvalidInput
from service.scheduler.cluster.gpu_memory import largest_gpu_bytes
from service.scheduler.policy.feasibility import Feasibility
from service.scheduler.stored_job import Stored
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.run_end import JobImpossible, RunEnded
from service.specification.phases import pinned_of
from service.specification.planning import JobPlan, check_population_is_measured
from service.use_cases import earlier_winners, run
from service.use_cases.estimating.machine_memory import machine_limit_bytes, memory_of_this_machine
from service.use_cases.estimating.memory_predictor import MemoryPredictor, NotPredictable, WorkloadRefused
from service.use_cases.estimating.model_fingerprint import model_of
from service.use_cases.estimating.refused_values import is_known_to_build
from trainers.config import InvalidConfig, TrialConfig
from trainers.data.roots import DataRoots

logger = logging.getLogger(__name__)

PREDICTION_SECONDS = 60.0
"""Seconds that building a model may take, including loading its data, before its memory and shape count as unknown."""


def check_data(plan: JobPlan, data_roots: DataRoots) -> None:
    """Checks a job's data, which are on this machine, before anything is started that would train on them.

    Args:
        data_roots: the directories that trials may read.

    Raises:
        JobImpossible: there are no data at the paths that the job names, or too few for the job.
    """
    try:
        check_paths(plan, data_roots, data_are_here=True)
        if plan.population is None or plan.specification.training.evaluate_every_epochs is None:
            return  # nothing else depends on how many examples there are
        with MemoryPredictor(plan, data_roots=data_roots) as predictor:
            config = plan.trial_config(Phase.SEARCH, plan.spaces[Phase.SEARCH].defaults())
            predictor.predict(config, timeout_seconds=PREDICTION_SECONDS)
        if predictor.num_train_examples is not None:
            check_population_is_measured(plan, predictor.num_train_examples)
    except WorkloadRefused as error:
        raise JobImpossible(f"{error.field}: {error}") from error
    except NotPredictable as error:
        logger.warning("the number of training examples is not known: %s", error)
    except InvalidInput as error:
        raise JobImpossible(str(error)) from error


def with_known_configs(plan: JobPlan, stored: Stored, journal: Journal, roots: DataRoots) -> JobPlan:
    """The plan of a job that also begins with configs of the nearest tuned models, if it is to and has not begun yet.
    They are stored, for its later runs. If its model cannot be built here, it begins without any.

    Args:
        roots: the directories that the workload may read.

    Raises:
        RunEnded: the job is no longer this run's, a user has changed it meanwhile, or the run was told to end.
    """
    specification = plan.specification
    wanted = specification.known_configs
    has_begun = any(not trial.proposed for trial in stored.trials)
    if has_begun or not (wanted == "nearest" or (wanted == "auto" and plan.sampler == "auto")):
        return plan
    try:
        of_model = model_of(
            plan, data_roots=roots, timeout_seconds=PREDICTION_SECONDS, may_wait=lambda: journal.ending() is None
        )
    except (InvalidConfig, OSError) as error:
        if (ending := journal.ending()) is not None:
            raise RunEnded(ending) from error
        logger.warning("configs of models like this one could not be looked up: %s", error)
        return plan
    specification = journal.read(
        lambda session: earlier_winners.with_known_configs(session, plan, of_model, project=stored.job.project)
    )
    journal.write(lambda session: run.store_known_configs(session, journal.lease, specification))
    return dataclasses.replace(plan, specification=specification, pinned=pinned_of(specification, plan.spaces))


def make_feasibility(plan: JobPlan, stored: Stored, *, is_local: bool) -> Feasibility:
    """The check of a job's trials before they are launched; a separate process predicts, and lives until this one ends.

    Args:
        is_local: whether trials run on this machine, on a GPU like its own. Otherwise the machines of the cluster are
            asked about their GPUs when the first trial is checked; this process must be connected to the cluster by
            then.
    """
    resources = plan.specification.resources
    machine_limit = machine_limit_bytes(resources) if is_local else None
    if machine_limit is not None and is_known_to_build(plan.specification):
        machine_limit = None  # a small model
    if not resources.gpus_per_worker and resources.memory_per_worker is None and machine_limit is None:
        return Feasibility()
    try:
        predictor = MemoryPredictor(plan)
    except NotPredictable as error:
        logger.warning("the memory of trials cannot be predicted: %s", error)
        return Feasibility()

    def limit_bytes() -> int | None:
        if not resources.gpus_per_worker:
            return resources.memory_per_worker if machine_limit is None else machine_limit
        return predictor.device_bytes if is_local else largest_gpu_bytes()

    feasibility = Feasibility(
        partial(predictor.predict, timeout_seconds=PREDICTION_SECONDS),
        limit_bytes,
        machine_bytes=None if machine_limit is None else memory_of_this_machine(),
        close=predictor.close,
    )
    remember_failures(feasibility, stored)
    return feasibility


def num_at_once(plan: JobPlan, feasibility: Feasibility, *, fitting: int) -> int:
    """The number of trials at once: the job's setting, or else limited by the memory of this machine if they train on
    it.

    Args:
        fitting: trials that the cluster has room for.
    """
    resources = plan.specification.resources
    if resources.parallel_trials is not None or fitting == 1:
        return min(fitting, resources.parallel_trials or fitting)
    defaults = [plan.trial_config(side, space.defaults()) for side, space in plan.spaces.items()]
    together = feasibility.most_together(defaults, num_ranks=resources.workers_per_trial)
    if together is None or together >= fitting:
        return fitting
    logger.warning("%d trials at once and not %d: the machine's memory holds no more", together, fitting)
    return together


def remember_failures(feasibility: Feasibility, stored: Stored) -> None:
    """Adds the trials that ran out of memory in earlier runs and have not fitted since."""
    for trial in stored.trials:
        if trial.memory_failures and trial.state not in (TrialState.COMPLETED, TrialState.PRUNED):
            feasibility.ran_out(trial.number, TrialConfig.from_json(trial.config))
