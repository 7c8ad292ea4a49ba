"""A user's own sampler as the API knows it. It imports nobody's code for that: a process of its own does."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from service.errors import InvalidInput, WorkloadNotDescribed
from service.specification.job import SamplerChoice, SamplerReference
from trainers.config import InvalidConfig
from trainers.workloads.describe import DescriptionKilled, told_by_process

CHECK_MODULE = "service.scheduler.policy.searching.sampling.user_sampler"
"""The module that the process runs: it needs Optuna, which the API does not."""


@dataclass(frozen=True, slots=True)
class SamplerFault:
    """The field of a job for which its sampler cannot be used, and why."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckedSampler:
    """The answer of the process that has imported a sampler and made it."""

    fault: SamplerFault | None
    """None: it can be used."""

    def to_json(self) -> dict[str, Any]:
        """The answer for another process."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The answer that `to_json` gave."""
        fault = content["fault"]
        return cls(None if fault is None else SamplerFault(**fault))


def check_sampler(choice: SamplerChoice) -> None:
    """Checks that a user's own sampler can be imported and made, in a process, for seconds.

    Raises:
        InvalidInput: it cannot, or is no sampler; names the field.
        WorkloadNotDescribed: the process was killed; the request may do later.
    """
    if not isinstance(choice.name, SamplerReference):
        return
    reference = choice.name.root
    if reference.partition(":")[0].partition(".")[0] in sys.stdlib_module_names:
        raise InvalidInput("sampler.name", f"{reference!r} is of Python's standard library, which has no samplers")
    try:
        checked = told_by_process(
            [reference, json.dumps(choice.options)],
            CheckedSampler.from_json,
            what=f"{reference}: its import",
            module=CHECK_MODULE,
        )
    except DescriptionKilled as error:
        raise WorkloadNotDescribed(error.message) from error
    except InvalidConfig as error:
        raise InvalidInput("sampler.name", error.message) from error
    if checked.fault is not None:
        raise InvalidInput(checked.fault.field, checked.fault.message)
