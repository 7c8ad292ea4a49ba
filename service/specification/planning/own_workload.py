"""The description of a job's workload: a built-in one, a user's own, or one that the job's clients train."""

from __future__ import annotations

from search_spaces.parameters import sectioned
from service.errors import InvalidInput, WorkloadNotDescribed
from service.specification.external.trials import EXTERNAL, describe_external
from service.specification.job import JobSpecification
from service.specification.length import parts_of_batch
from service.specification.phases import spaces_of
from service.specification.workloads import describe_workload
from trainers.config import InvalidConfig
from trainers.workload.description import WorkloadDescription
from trainers.workloads.describe import DescriptionKilled


def workload_of(specification: JobSpecification) -> WorkloadDescription:
    """The description of a job's workload: `described`, or what the job itself says of one that its clients train.

    Raises:
        InvalidInput, WorkloadNotDescribed: as `plan_job`.
    """
    name, external, training = specification.workload.name, specification.external, specification.training
    if name != EXTERNAL:
        return described(name)
    if external is None or not external.metrics:
        raise InvalidInput("external.metrics", f"is required with workload {EXTERNAL!r}: what its clients measure")
    if all(length is None for length in (training.num_steps, training.num_examples)):
        raise InvalidInput("training.num_steps", f"is required with workload {EXTERNAL!r}: its length is not known")
    named = {
        name
        for space in spaces_of(specification).values()
        for section, name in map(sectioned, [*(parameter.name for parameter in space.parameters), *space.fixed])
        if section == "workload"
    }
    options = {**dict.fromkeys(sorted(named)), **specification.workload.options}
    return describe_external(external.metrics, options, batch_size=parts_of_batch(specification))


def described(name: str) -> WorkloadDescription:
    """The description of a workload by its name; if it is not built in, a process tells it, which takes seconds.

    Raises:
        InvalidInput: there is none, or it does not describe itself.
        WorkloadNotDescribed: the process was killed; it may do later.
    """
    try:
        return describe_workload(name)
    except DescriptionKilled as error:
        raise WorkloadNotDescribed(error.message) from error
    except InvalidConfig as error:
        raise InvalidInput("workload.name", error.message) from error
