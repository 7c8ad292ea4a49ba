"""The length of a job's trials: steps, or what all have in common where their steps differ: training examples, or the
time that their steps take."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces import Categorical, Float, Parameter, Scalar, SearchSpace, SpaceError
from service.domain import Currency, PrunerName, Side
from service.errors import InvalidInput
from service.specification.job import JobSpecification
from service.specification.tokens import EVERY as EVERY_TOKENS
from service.specification.tokens import FIELD as NUM_TOKENS
from service.specification.tokens import IN_EXAMPLES, examples_of_tokens
from service.specification.trial_lengths.step_times import StepTimes, check_num_timed
from service.specification.trial_lengths.trial_length import JobLength, TrialLength
from trainers.workload.description import WorkloadDescription

BATCH_SIZE = "training.batch_size"
"""The parameter's name."""


@dataclass(frozen=True, slots=True)
class _Examples:
    """The training examples that a job asks for."""

    num: int
    field: str
    """Name of what says it in the request."""
    told: str
    """Field and value, and the examples if it counts tokens."""

    def require_at_most(self, most: int) -> None:
        """Raises: InvalidInput: they are more than the examples of a trial."""
        if self.num > most:
            raise InvalidInput(self.field, f"{self.told} exceeds the trial's {most} examples")


def searches_batch_size(spaces: Mapping[Side, SearchSpace]) -> bool:
    """True if the batch sizes of a job with these spaces may differ."""
    return any(_says_batch_size(space) for space in spaces.values())


def currency_of(specification: JobSpecification, spaces: Mapping[Side, SearchSpace]) -> Currency:
    """The currency in which the configs that a job's verdict compares have spent equally much."""
    if specification.currency is not None:
        return specification.currency
    if not searches_batch_size(spaces):
        return Currency.STEPS
    return Currency.EXAMPLES if specification.training.num_tokens is None else Currency.TOKENS


def takes_equal_seconds(specification: JobSpecification, spaces: Mapping[Side, SearchSpace]) -> bool:
    """True if all trials of a job are to take equally long, once the time of their steps is measured: its verdict is by
    seconds, and nothing else says how trials differ in their steps."""
    return (
        currency_of(specification, spaces) is Currency.SECONDS
        and specification.external is None
        and specification.pruner.name != "pbt"
        and not searches_batch_size(spaces)
    )


def compares_whole_trials(specification: JobSpecification, spaces: Mapping[Side, SearchSpace]) -> bool:
    """True if all trials of a job, trained to their ends, have spent equally much of what its verdict goes by."""
    match currency_of(specification, spaces):
        case Currency.SECONDS:
            return bool(specification.step_times)
        case Currency.STEPS:
            return not searches_batch_size(spaces)
        case Currency.EXAMPLES | Currency.TOKENS:
            return True


def batch_size_of(space: SearchSpace, parameters: Mapping[str, Scalar], *, default: int) -> int:
    """The batch size of a trial with these values; `default`: where the space says none."""
    found = parameters.get(BATCH_SIZE, space.fixed.get(BATCH_SIZE, default))
    assert isinstance(found, int)
    return found


def with_batch_size_of_search(
    spaces: Mapping[Side, SearchSpace], fields: Mapping[Side, str]
) -> dict[Side, SearchSpace]:
    """The spaces, the search's first; what it searches as batch size every baseline's that says none searches, too.

    Raises:
        InvalidInput: the search's depends on other parameters, which a baseline does not have.
    """
    search, *baselines = spaces
    found = dict(spaces)
    own = [parameter for parameter in spaces[search].parameters if parameter.name == BATCH_SIZE]
    wanting = [side for side in baselines if not _says_batch_size(spaces[side])]
    if not own or not wanting:
        return found
    if own[0].when:
        raise InvalidInput(
            f"{fields[search]}.parameters[{spaces[search].parameters.index(own[0])}].when",
            f"must be empty for {BATCH_SIZE}, which the baselines search as well, got {dict(own[0].when)!r}",
        )
    for side in wanting:
        try:
            found[side] = dataclasses.replace(spaces[side], parameters=(*spaces[side].parameters, own[0]))
        except SpaceError as error:
            raise InvalidInput(fields[side], f"cannot search {BATCH_SIZE} as the search does: {error}") from error
    return found


def job_length(
    specification: JobSpecification,
    workload: WorkloadDescription,
    spaces: Mapping[Side, SearchSpace],
    fields: Mapping[Side, str],
    *,
    pruner: PrunerName | None,
) -> JobLength:
    """The length of a job's trials.

    Args:
        fields: where each side's space stands in the request.
        pruner: the job's, if it is one by name.

    Raises:
        InvalidInput: names the first field that is impossible.
    """
    training, parts = specification.training, parts_of_batch(specification)
    batch_size = training.batch_size or workload.default_batch_size
    if batch_size % parts:
        raise InvalidInput("training.batch_size", f"{batch_size} is not divisible by {told_parts(specification)}")
    examples = _examples(specification, workload, spaces, fields)
    step_times = _step_times(specification, spaces)
    if searches_batch_size(spaces):
        return _by_examples(specification, workload, spaces, fields, examples, batch_size=batch_size, pruner=pruner)
    if examples is not None:
        _require_a_batch(examples.field, examples, batch_size)
        num_steps = TrialLength.of_examples(examples.num, batch_size).num_steps
    else:
        num_steps = training.num_steps or workload.default_num_steps
    every = _examples_between(specification, workload, spaces, fields)
    evaluate_every = training.evaluate_every
    if not training.intervals and every is None:
        evaluate_every = min(workload.default_evaluate_every, num_steps)
    if evaluate_every is not None and evaluate_every > num_steps:
        raise InvalidInput("training.evaluate_every", f"{evaluate_every} exceeds the trial's {num_steps} steps")
    if every is not None:
        every.require_at_most(num_steps * batch_size)
    return JobLength(
        num_steps,
        batch_size,
        None,
        evaluate_every,
        None if every is None else every.num,
        batch_size,
        step_times,
    )


def _step_times(specification: JobSpecification, spaces: Mapping[Side, SearchSpace]) -> StepTimes | None:
    """The measured times of a job whose trials take equally long; None: they do not, or nothing is measured yet."""
    if not takes_equal_seconds(specification, spaces):
        if specification.step_times:
            raise InvalidInput(
                "step_times",
                "have no effect: trials take equally long with currency = 'seconds', unless the batch size is "
                "searched, the pruner is 'pbt' or others train them",
            )
        return None
    check_num_timed(spaces, field="currency")
    return StepTimes(spaces, specification.step_times) if specification.step_times else None


def parts_of_batch(specification: JobSpecification) -> int:
    """The number of equal parts that each batch is trained in, over ranks and passes."""
    return specification.resources.workers_per_trial * specification.training.accumulation_steps


def told_parts(specification: JobSpecification) -> str:
    """The equal parts of each batch, for a person."""
    words = f"workers_per_trial = {specification.resources.workers_per_trial}"
    if specification.training.accumulation_steps > 1:
        words += f" times accumulation_steps = {specification.training.accumulation_steps}"
    return words


def _examples(
    specification: JobSpecification,
    workload: WorkloadDescription,
    spaces: Mapping[Side, SearchSpace],
    fields: Mapping[Side, str],
) -> _Examples | None:
    """The examples that every trial is to see; None: the steps are said, or the workload's default."""
    training = specification.training
    if training.num_tokens is not None:
        num = examples_of_tokens(training.num_tokens, specification, workload, spaces, fields)
        return _Examples(num, NUM_TOKENS, f"{NUM_TOKENS} = {training.num_tokens} ({num} examples)")
    if training.num_examples is not None:
        num = training.num_examples
        return _Examples(num, "training.num_examples", f"training.num_examples = {num}")
    return None


def _examples_between(
    specification: JobSpecification,
    workload: WorkloadDescription,
    spaces: Mapping[Side, SearchSpace],
    fields: Mapping[Side, str],
) -> _Examples | None:
    """The examples between measurements; None: others are counted, or it is the workload's default."""
    training = specification.training
    if (tokens := training.evaluate_every_tokens) is not None:
        num = examples_of_tokens(tokens, specification, workload, spaces, fields, asked=EVERY_TOKENS)
        return _Examples(num, EVERY_TOKENS, f"{EVERY_TOKENS} = {tokens} ({num} examples)")
    if (num_examples := training.evaluate_every_examples) is not None:
        field = IN_EXAMPLES[EVERY_TOKENS]
        return _Examples(num_examples, field, f"{field} = {num_examples}")
    return None


def _by_examples(
    specification: JobSpecification,
    workload: WorkloadDescription,
    spaces: Mapping[Side, SearchSpace],
    fields: Mapping[Side, str],
    examples: _Examples | None,
    *,
    batch_size: int,
    pruner: PrunerName | None,
) -> JobLength:
    """The length where trials differ in their batch size, and have their examples in common."""
    training = specification.training
    if examples is None:
        side = next(side for side, space in spaces.items() if _says_batch_size(space))
        raise InvalidInput(
            "training.num_examples",
            f"is required, or training.num_tokens, as {fields[side]} says {BATCH_SIZE}: trials with equal steps and "
            "other batches would not have seen equally many examples",
        )
    if training.batch_size is not None and all(_says_batch_size(space) for space in spaces.values()):
        raise InvalidInput("training.batch_size", f"{batch_size} has no effect: every search space says {BATCH_SIZE}")
    if training.evaluate_every is not None:
        raise InvalidInput(
            "training.evaluate_every",
            f"counts steps, and trials differ in those, as {BATCH_SIZE} is searched: give evaluate_every_examples or "
            f"evaluate_every_epochs, got {training.evaluate_every}",
        )
    if pruner == "pbt":
        raise InvalidInput(
            "pruner.name",
            f"'pbt' compares trials at equal steps, and they differ in those, as {BATCH_SIZE} is searched",
        )
    if specification.pruner.min_steps is not None:
        raise InvalidInput(
            "pruner.min_steps",
            f"counts steps, and trials differ in those, as {BATCH_SIZE} is searched, got "
            f"{specification.pruner.min_steps}",
        )
    smallest = min(
        min(_batch_sizes(specification, space, fields[side], examples), default=batch_size)
        for side, space in spaces.items()
    )
    between = _examples_between(specification, workload, spaces, fields)
    if between is not None:
        between.require_at_most(examples.num)
    every = None if between is None else between.num
    if not training.intervals and between is None:
        every = min(workload.default_evaluate_every * workload.default_batch_size, examples.num)
    longest = TrialLength.of_examples(examples.num, smallest).num_steps
    return JobLength(longest, batch_size, examples.num, None, every, smallest)


def _batch_sizes(specification: JobSpecification, space: SearchSpace, field: str, examples: _Examples) -> Sequence[int]:
    """The smallest and largest batch sizes that a space says, each checked; empty: it says none.

    Raises:
        InvalidInput: one of them cannot be; names the field in the space.
    """
    parts = parts_of_batch(specification)
    found: list[int] = []
    for where, values, is_range in _said(space):
        if is_range and parts > 1:
            raise InvalidInput(
                f"{field}.{where}",
                f"a range has sizes that are not divisible by {told_parts(specification)}: give them as choices",
            )
        for value in values:
            if value % parts:
                raise InvalidInput(f"{field}.{where}", f"{value} is not divisible by {told_parts(specification)}")
            _require_a_batch(f"{field}.{where}", examples, value)
        found.extend(values)
    return found


def _said(space: SearchSpace) -> list[tuple[str, list[int], bool]]:
    """The places where a space says the batch size. Each comes with its values, or the ends of its range, and whether
    it is a range."""
    found: list[tuple[str, list[int], bool]] = []
    for index, parameter in enumerate(space.parameters):
        if parameter.name == BATCH_SIZE:
            found.append((f"parameters[{index}]", _ends(parameter), not isinstance(parameter, Categorical)))
    if BATCH_SIZE in space.fixed:
        found.append((f"fixed.{BATCH_SIZE}", [batch_size_of(space, {}, default=0)], False))
    return found


def _ends(parameter: Parameter) -> list[int]:
    assert not isinstance(parameter, Float)  # a space takes none for an integer
    if isinstance(parameter, Categorical):
        return [choice for choice in parameter.choices if isinstance(choice, int)]
    return [parameter.low, parameter.high]


def _says_batch_size(space: SearchSpace) -> bool:
    return BATCH_SIZE in space.fixed or any(parameter.name == BATCH_SIZE for parameter in space.parameters)


def _require_a_batch(field: str, examples: _Examples, batch_size: int) -> None:
    if batch_size > examples.num:
        raise InvalidInput(field, f"a batch of {batch_size} exceeds {examples.told}")
