"""The sampler and the pruner of a job: the defaults of each other, and which go together."""

from __future__ import annotations

from typing import Literal, TypeAlias

from service.domain import PrunerName, SamplerName
from service.errors import InvalidInput
from service.specification.job import JobSpecification, SamplerReference

SamplerOfJob: TypeAlias = Literal["auto"] | SamplerName | SamplerReference


def search_method(specification: JobSpecification) -> tuple[SamplerOfJob, Literal["auto"] | PrunerName]:
    """The sampler and the pruner of a job.

    Raises:
        InvalidInput: they do not go together, or with the objectives; names the field.
    """
    given = specification.pruner.name
    if specification.sampler.options and not isinstance(specification.sampler.name, SamplerReference):
        raise InvalidInput("sampler.options", "has no effect: only a sampler of your own, as module:Class, takes any")
    if len(specification.objectives) > 1:
        return _search_for_front(specification)
    sampler = specification.sampler.name or ("auto" if given in (None, "none") else "tpe")
    if sampler in ("nsga2", "nsga3"):
        raise InvalidInput("sampler.name", f"{sampler!r} is for several objectives, and the job has one")
    if sampler != "auto":
        return sampler, given or "asha"
    if given not in (None, "none"):
        raise InvalidInput(
            "pruner.name", f"{given!r} does not go with the sampler 'auto', which pauses trials itself (or 'none')"
        )
    if specification.pruner.reduction_factor is not None:
        raise InvalidInput("pruner.reduction_factor", "has no effect with the sampler 'auto'")
    return sampler, given or "auto"


def _search_for_front(specification: JobSpecification) -> tuple[SamplerName | SamplerReference, PrunerName]:
    """Sampler and pruner of a job with several objectives. In budgets of up to 50 trials TPE finds more of the front
    than the genetic ones do."""
    sampler, pruner = specification.sampler.name or "tpe", specification.pruner.name
    if sampler == "auto" or sampler in ("gp", "cmaes"):
        raise InvalidInput(
            "sampler.name",
            f"{sampler!r} knows one objective, and the job has several: "
            "choose 'tpe', 'nsga2', 'nsga3', 'quasi', 'random', 'grid' or one of your own",
        )
    if pruner not in (None, "none"):
        raise InvalidInput(
            "pruner.name",
            f"{pruner!r} judges trials by one objective, and the job has several: one that falls behind in the first "
            "may be the best in another: choose 'none'",
        )
    return sampler, "none"
