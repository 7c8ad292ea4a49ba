"""Fields of a specification that must agree with each other, each of which is possible by itself.

Every check raises `InvalidInput`, which names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from pydantic import JsonValue

from service.errors import InvalidInput
from service.faults import MAX_LOOKED_AT, one_of
from service.specification.external.trials import EXTERNAL
from service.specification.job import JobSpecification
from service.specification.phases import pinned_of, spaces_of
from trainers.config import SUMMARY_PREFIXES
from trainers.workload.description import WorkloadDescription
from trainers.workloads import registry


def check_sides(specification: JobSpecification) -> None:
    """Checks the search spaces, and what they try first."""
    pinned_of(specification, spaces_of(specification))


def check_mode(specification: JobSpecification) -> None:
    """Checks that ranks have something to divide, where a mode divides it."""
    mode = specification.training.parallelism.mode
    if specification.resources.workers_per_trial == 1 and mode != "ddp":
        raise InvalidInput("training.parallelism.mode", f"{mode!r} has no effect with workers_per_trial = 1")


def check_code(specification: JobSpecification) -> None:
    """Checks that code which comes along is used."""
    if specification.code is None:
        return
    if specification.external is not None:
        raise InvalidInput("code", "has no effect: trials are trained by others, with code of their own")
    if not specification.names_code:
        raise InvalidInput("code", "has no effect: neither workload.name nor sampler.name is a module:Class")


def check_external(specification: JobSpecification) -> None:
    """Checks what the service cannot do to trials that others train."""
    if specification.external is None:
        return
    if specification.workload.name != EXTERNAL and specification.external.metrics:
        raise InvalidInput(
            "external.metrics", f"has no effect: the workload {specification.workload.name!r} says what is measured"
        )
    if specification.pruner.name == "pbt":
        raise InvalidInput("pruner.name", "'pbt' forks checkpoints, and those of external trials are their clients'")
    if specification.target is not None:
        raise InvalidInput("target", "has no effect on external trials, whose clients measure what they like")
    if specification.known_configs == "nearest":
        raise InvalidInput(
            "known_configs", "'nearest' goes by the model, and that of external trials is their clients'"
        )
    for index, choice in enumerate(specification.objectives):
        if choice.metric.startswith(SUMMARY_PREFIXES) and choice.metric not in specification.external.metrics:
            field = f"objectives[{index}].metric"
            raise InvalidInput(field, f"{choice.metric!r} is what the service's own training sums up of a curve")


def check_shards(specification: JobSpecification) -> None:
    """Checks that ranks divide into whole shards."""
    shard_size, workers = specification.training.parallelism.shard_size, specification.resources.workers_per_trial
    if shard_size is not None and workers % shard_size:
        raise InvalidInput(
            "training.parallelism.shard_size", f"{shard_size} does not divide workers_per_trial = {workers}"
        )


def check_options(workload: WorkloadDescription, options: Mapping[str, JsonValue]) -> None:
    """Checks the options that are given to a workload; those that it refuses are named."""
    refused = [
        InvalidInput(error.field.replace("workload_options", "workload.options"), error.message)
        for error in islice(registry.refused_options(workload, options), MAX_LOOKED_AT)
    ]
    if refused:
        raise one_of(refused)
