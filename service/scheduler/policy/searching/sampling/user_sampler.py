"""A sampler of a user's own, named `module:Class`: any `optuna.samplers.BaseSampler`.

    python -m service.scheduler.policy.searching.sampling.user_sampler my_samplers:Mine '{"depth": 3}'

prints as JSON the field that is wrong and why, or null; so the API learns it without importing anyone's code.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.samplers import BaseSampler

from service.errors import InvalidInput
from trainers.config import InvalidConfig
from trainers.workload.user_workload import explain, import_class


def import_sampler(reference: str) -> type[BaseSampler]:
    """The class that `module:Class` names. This runs the module's code.

    Raises:
        InvalidInput: it cannot be imported, or is no sampler of Optuna's; names the field.
    """
    try:
        found = import_class(reference)
    except InvalidConfig as error:
        raise InvalidInput("sampler.name", error.message) from error
    if not issubclass(found, BaseSampler):
        raise InvalidInput("sampler.name", f"{reference} is no optuna.samplers.BaseSampler")
    return found


def make_user_sampler(kind: type[BaseSampler], options: Mapping[str, Any], *, seed: int) -> BaseSampler:
    """The sampler with these arguments, and with the seed where it takes one and they give none.

    Raises:
        InvalidInput: it cannot be made; names the field.
    """
    try:
        takes_seed = "seed" in inspect.signature(kind).parameters
        return kind(**{**({"seed": seed} if takes_seed else {}), **options})
    except Exception as error:  # the boundary to a user's own code
        raise InvalidInput("sampler.options", f"{kind.__name__} cannot be made: {explain(error)}") from error


def main(arguments: Sequence[str]) -> int:
    """Runs the command; 0 if the sampler can be used."""
    reference, options = arguments
    # What an imported module prints must not get between the answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    problem = None
    try:
        make_user_sampler(import_sampler(reference), json.loads(options), seed=0)
    except InvalidInput as error:
        problem = {"field": error.field, "message": error.message}
    answers.write(json.dumps(problem) + "\n")
    answers.close()
    return 0 if problem is None else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
