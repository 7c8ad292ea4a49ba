"""A user's own sampler as the API knows it. It imports nobody's code for that: a process of its own does."""

from __future__ import annotations

import json
import sys

from service.errors import InvalidInput, WorkloadNotDescribed
from service.specification.job import SamplerChoice, SamplerReference
from trainers.config import InvalidConfig
from trainers.workloads.describe import DescriptionKilled, ask_process

CHECK_MODULE = "service.scheduler.policy.searching.sampling.user_sampler"
"""The module that the process runs: it needs Optuna, which the API does not."""


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
        answer = ask_process(
            [reference, json.dumps(choice.options)], what=f"{reference}: its import", module=CHECK_MODULE
        )
    except DescriptionKilled as error:
        raise WorkloadNotDescribed(error.message) from error
    except InvalidConfig as error:
        raise InvalidInput("sampler.name", error.message) from error
    if answer is not None:
        raise InvalidInput(answer["field"], answer["message"])
