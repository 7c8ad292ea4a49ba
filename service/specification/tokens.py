"""The examples that make up a number of tokens, for workloads whose options say how many an example has."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces import SearchSpace
from service.domain import Side
from service.errors import InvalidInput
from service.specification.job import JobSpecification
from trainers.workload.description import WorkloadDescription

FIELD = "training.num_tokens"
EVERY = "training.evaluate_every_tokens"
IN_EXAMPLES = {FIELD: "training.num_examples", EVERY: "training.evaluate_every_examples"}
"""The field that says the same in examples."""


def examples_of_tokens(
    num_tokens: int,
    specification: JobSpecification,
    workload: WorkloadDescription,
    spaces: Mapping[Side, SearchSpace],
    fields: Mapping[Side, str],
    *,
    asked: str = FIELD,
) -> int:
    """The whole number, at least 1, of training examples that is nearest to so many tokens.

    Args:
        fields: where each side's space stands in the request.
        asked: the field that asks for them.

    Raises:
        InvalidInput: nothing says how many tokens an example has, or the trials differ in that.
    """
    options = {
        **{name: option.default for name, option in workload.options.items()},
        **specification.workload.options,
    }
    known = workload.tokens_per_example
    if known is None:
        raise InvalidInput(
            asked,
            f"workload {workload.name!r} does not say how many tokens an example has: give {IN_EXAMPLES[asked]}, got "
            f"{num_tokens}",
        )
    deciding = known.deciding(options)
    per_example = known.with_options(options)
    if per_example is None:
        told = ", ".join(f"workload.options.{name} = {options.get(name)!r}" for name in deciding)
        raise InvalidInput(asked, f"needs to know how many tokens an example has, which {told} does not say")
    for side, space in spaces.items():
        for name in deciding:
            parameter = f"workload.{name}"
            if parameter in space.fixed or any(own.name == parameter for own in space.parameters):
                raise InvalidInput(
                    fields[side],
                    f"says {parameter}, and with it how many tokens an example has, which {asked} = {num_tokens} needs "
                    f"to be the same in all trials: give {IN_EXAMPLES[asked]}",
                )
    return max(1, round(num_tokens / per_example))
