"""The memory that a job's trials need per rank, and its limit, before any of them is launched."""

from __future__ import annotations

import dataclasses
import json
import logging
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from service.domain import Phase, Side
from service.errors import InvalidInput
from service.evidence.in_words.wording import mebibytes
from service.specification.estimate import MemoryEstimate, SpaceMemory
from service.specification.phases import num_kept_weights
from service.specification.planning import JobPlan
from service.use_cases.estimating.machine_memory import (
    machine_limit_bytes,
    memory_of_this_machine,
    on_this_machine,
    shortage_here,
)
from service.use_cases.estimating.memory_predictor import (
    ConstructionFailed,
    MemoryPredictor,
    NotPredictable,
    OptimizerRefused,
    StepFailed,
    WorkloadRefused,
)
from service.use_cases.estimating.refused_values import build_defaults, is_known_to_build
from trainers.config import TrialConfig
from trainers.data.roots import DataRoots
from trainers.identity.values import ModelShape

logger = logging.getLogger(__name__)

NUM_SAMPLES = 200
"""Points of a search space whose memory is predicted."""
SAMPLED_AFTER_SECONDS = 1.1
"""Time from the start of an estimate until which points of all spaces are predicted; if it is not enough, there are
fewer points. With a step of each side an estimate takes less than 2 s."""
MIN_SAMPLE_SECONDS = 0.25
"""Time for the points if the first predictions took longer, because a process had to import torch, for example."""
POINT_SECONDS = 3.0
"""Time for a single point, on a busy machine: a process that is given up has no answer about activations either."""
STEP_SECONDS = 6.0
"""Time for the steps of all spaces in which activations are measured."""
START_SECONDS = 20.0
"""Time for a process to import torch and build the first model, data included. Clients over HTTP wait 30 s."""
PREDICTED_WITHIN_SECONDS = 15.0
"""Time for a single trial: with `STEP_SECONDS`, less than clients over HTTP wait."""
_OF_THE_OPTIMIZER = ("optimizer", "schedule", "averaging", "gradient_clip_norm")

MAX_ESTIMATES = 2
"""Estimates at once, in this process."""
_SLOTS = threading.BoundedSemaphore(MAX_ESTIMATES)


@dataclass(frozen=True, slots=True)
class PredictedJob:
    """All that a process which builds a job's model tells of it."""

    memory: MemoryEstimate
    shape: ModelShape | None = None
    """The shape of the model of the search's default trial; None: it cannot be told."""


def predict_job(
    plan: JobPlan,
    *,
    is_local: bool = True,
    data_are_here: bool = False,
    data_roots: DataRoots | None = None,
    start_seconds: float = START_SECONDS,
) -> PredictedJob:
    """Predicts the memory of a job's trials from seeded random points of its spaces, and tells the shape of its model.

    Args:
        is_local: whether trials run on this machine, with its GPU and its memory.
        data_are_here: whether trials find the same data as this process: then the workload refuses here what it would
            refuse there.
        data_roots: the directories that the workload may read; None: all that this process may.
        start_seconds: the time for the first predictions, which import torch and load the workload's data.

    Raises:
        InvalidInput: an optimizer is not for the workload's model, or refuses its default arguments, or refuses a
            choice of one with all others. If the data are here, also: the workload has no data, or too few for the job,
            or refuses its options.
    """
    memory_per_worker = plan.specification.resources.memory_per_worker
    gpus = plan.specification.resources.gpus_per_worker
    shortage = shortage_here(plan.specification.resources) if data_are_here else None
    asked = time.monotonic()
    try:
        with _slot(), MemoryPredictor(plan, data_roots=data_roots) as predictor:
            defaults = build_defaults(predictor, plan, start_seconds=start_seconds, data_are_here=data_are_here)
            machine_limit = machine_limit_bytes(plan.specification.resources) if is_local else None
            limit = memory_per_worker if machine_limit is None else machine_limit
            if gpus:
                limit = predictor.device_bytes if is_local else None
            deadline = max(asked + SAMPLED_AFTER_SECONDS, time.monotonic() + MIN_SAMPLE_SECONDS)
            spaces = {}
            for left, side in zip(range(len(defaults), 0, -1), defaults, strict=True):
                now = time.monotonic()
                points = _sample(predictor, plan, side, deadline=now + (deadline - now) / left)
                needed = [defaults[side], *points]
                spaces[side] = SpaceMemory(
                    default_bytes=defaults[side],
                    largest_bytes=max(needed),
                    share_infeasible=None if limit is None else sum(n > limit for n in needed) / len(needed),
                    num_points=len(needed),
                )
            shape = _shape(predictor, plan)
            spaces, unmeasured = _with_activations(predictor, plan, spaces)
            kept = num_kept_weights(plan.specification) * predictor.weights_bytes
    except NotPredictable as error:
        is_of_code = data_are_here and isinstance(error, ConstructionFailed)
        limit = None if gpus else memory_per_worker
        return PredictedJob(MemoryEstimate(limit, problem=str(error), construction_fails=is_of_code, shortage=shortage))
    estimate = MemoryEstimate(
        limit,
        spaces,
        activations_problem=None if unmeasured is None else str(unmeasured),
        step_fails=isinstance(unmeasured, StepFailed),
        kept_weights_bytes=kept,
        is_machine_limit=machine_limit is not None,
        shortage=_shortage(predictor, plan) if data_are_here else None,
    )
    return PredictedJob(on_this_machine(estimate, plan.specification.resources) if is_local else estimate, shape)


def _shape(predictor: MemoryPredictor, plan: JobPlan) -> ModelShape | None:
    config = plan.trial_config(Phase.SEARCH, plan.spaces[Phase.SEARCH].defaults())
    try:
        return predictor.shape(config, timeout_seconds=POINT_SECONDS)
    except NotPredictable as error:
        logger.info("the shape of the model of %s is not known: %s", plan.workload.name, error)
        return None


@dataclass(frozen=True, slots=True)
class PredictedMemory:
    """The predicted memory of a rank of one trial, from its config and not from its measurements."""

    kept_bytes: int | None = None
    """Weights, gradients, optimizer and averages; None: `problem` says why."""
    activation_bytes: int | None = None
    """Its activations in a step; None: `problem` says why."""
    problem: str | None = None


def predict_trial(plan: JobPlan, config: TrialConfig, *, data_roots: DataRoots | None = None) -> PredictedMemory:
    """Predicts the memory of one trial of a job, in a process that takes seconds: not inside a transaction."""
    kept = None
    try:
        with _slot(), MemoryPredictor(plan, data_roots=data_roots) as predictor:
            kept = predictor.predict(config, timeout_seconds=PREDICTED_WITHIN_SECONDS)
            activations = predictor.activations(config, timeout_seconds=STEP_SECONDS)
    except NotPredictable as error:
        return PredictedMemory(kept, problem=str(error))
    return PredictedMemory(kept, activations)


def check_workload(
    plan: JobPlan,
    *,
    is_local: bool = True,
    data_roots: DataRoots | None = None,
    start_seconds: float = START_SECONDS,
) -> MemoryEstimate | None:
    """Checks that a job's workload can be built with its options, if trials find the same data as this process, and its
    optimizers with their arguments. Checks also that this machine is not far too small for all trials of a side.

    Returns only the memory of the default trials without activations, or the reason why the workload cannot be built,
    or why no trial would start. None: nothing was built.

    It builds them in a process that takes seconds, so do not call it inside a transaction. It builds nothing if nothing
    can be refused, as for a built-in workload without any option and the shipped spaces. If the check is not possible,
    or not in time, the first trial shows any error.

    Args:
        is_local: whether trials run on this machine, with its memory.

    Raises:
        InvalidInput: as `predict_job`; or no trial of a side would be launched for lack of memory.
    """
    shortage = shortage_here(plan.specification.resources) if is_local else None
    if is_known_to_build(plan.specification) and plan.population is None:
        return None if shortage is None else MemoryEstimate(None, shortage=shortage)
    try:
        with _slot(), MemoryPredictor(plan, data_roots=data_roots) as predictor:
            defaults = build_defaults(predictor, plan, start_seconds=start_seconds, data_are_here=True)
            if is_local:
                _check_machine(predictor, plan, defaults)
    except NotPredictable as error:
        logger.info("workload %s was not tried before its job was queued: %s", plan.workload.name, error)
        return MemoryEstimate(
            None, problem=str(error), construction_fails=isinstance(error, ConstructionFailed), shortage=shortage
        )
    spaces = {
        side: SpaceMemory(default, default, share_infeasible=None, num_points=1) for side, default in defaults.items()
    }
    estimate = MemoryEstimate(None, spaces, shortage=_shortage(predictor, plan) if is_local else None)
    return on_this_machine(estimate, plan.specification.resources) if is_local else estimate


def _shortage(predictor: MemoryPredictor, plan: JobPlan) -> str | None:
    """`shortage_here`, once something was predicted."""
    return shortage_here(plan.specification.resources, has_gpu=predictor.device_bytes is not None)


def _check_machine(predictor: MemoryPredictor, plan: JobPlan, defaults: Mapping[Side, int]) -> None:
    """Checks that some trials of each side are launched on this machine.

    Raises:
        InvalidInput: none of a side's checked trials would be.
    """
    limit = machine_limit_bytes(plan.specification.resources)
    if limit is None:
        return
    for side, default in defaults.items():
        if default <= limit:
            continue
        points = _sample(predictor, plan, side, deadline=time.monotonic() + MIN_SAMPLE_SECONDS)
        least = min([default, *points])
        if least > limit:
            ranks = plan.specification.resources.workers_per_trial
            raise InvalidInput(
                "resources",
                f"no trial of the {side} would be launched: weights, gradients and optimizer need {mebibytes(least)} "
                f"or more on {'the only rank' if ranks == 1 else f'each of {ranks} ranks'}, and the machine has "
                f"{mebibytes(memory_of_this_machine())} in all; `beyond_memory: true` launches them all the same",
            )


def _with_activations(
    predictor: MemoryPredictor, plan: JobPlan, spaces: Mapping[Side, SpaceMemory]
) -> tuple[dict[Side, SpaceMemory], NotPredictable | None]:
    """Adds activations to the memory of the spaces, if they can be measured; returns also why the first could not
    be."""
    deadline = time.monotonic() + STEP_SECONDS
    known: dict[Side, SpaceMemory] = {}
    problem: NotPredictable | None = None
    measured: dict[str, int] = {}
    for side, space in spaces.items():
        config = plan.trial_config(side, plan.spaces[side].defaults())
        # They do not depend on the optimizer.
        key = json.dumps({name: value for name, value in config.to_json().items() if name not in _OF_THE_OPTIMIZER})
        try:
            if key not in measured:
                measured[key] = predictor.activations(config, timeout_seconds=deadline - time.monotonic())
        except NotPredictable as error:
            problem = problem or error
        known[side] = dataclasses.replace(space, activation_bytes=measured.get(key))
    return known, problem


@contextmanager
def _slot() -> Iterator[None]:
    """Bounds the processes that estimates start. Raises: NotPredictable: there are too many."""
    if not _SLOTS.acquire(blocking=False):
        raise NotPredictable(f"{MAX_ESTIMATES} others are being estimated: try again in half a minute")
    try:
        yield
    finally:
        _SLOTS.release()


def _sample(predictor: MemoryPredictor, plan: JobPlan, side: Side, *, deadline: float) -> list[int]:
    found: list[int] = []
    rng = random.Random(f"memory/{side}")
    for _ in range(NUM_SAMPLES):
        if time.monotonic() >= deadline:
            break
        try:
            config = plan.trial_config(side, plan.spaces[side].sample(rng))
        except ValueError:
            continue  # an invalid config needs nothing
        try:
            found.append(predictor.predict(config, timeout_seconds=POINT_SECONDS))
        except (WorkloadRefused, OptimizerRefused):
            continue
        except NotPredictable:
            break
    return found
