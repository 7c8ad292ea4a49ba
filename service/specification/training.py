"""The training settings of a job: those that `trainers.config` declares, as a request has them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

from pydantic import (
    GetJsonSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from search_spaces import Assignment, SearchSpace, SpaceError
from search_spaces.nearest import did_you_mean
from search_spaces.optimizers import AVERAGING
from service.described_model import StrictModel, with_unknown_as_told
from service.errors import InvalidInput
from service.faults import one_of
from trainers.config import AveragingConfig, CompressionConfig, Count, InvalidConfig, Positive, TrainingSettings

_LENGTH = (
    "'num_steps', 'num_examples' or 'num_tokens' says how long a trial trains; an epoch is as many examples as you have"
)

SAID_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("epochs", "num_epochs", "max_epochs", "num_train_epochs"), _LENGTH),
    "workload_options": "'workload.options' of the job has them",
    "optimizer": "'search_space' of the job says it",
    "schedule": "the job's search space has its fields, as 'schedule.warmup_fraction'",
}
"""Names that are no training settings of a job, and which of its fields say what they mean: what other libraries call
the length, and the fields of a trial's config beside its training settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(TrainingSettings):
    """The training settings of all trials of a job; a value that a search space assigns takes their place."""

    num_steps: Count | None = None
    """Optimizer steps of a full trial; null: those of `num_examples` or `num_tokens`, or the workload's default."""
    num_examples: Count | None = None
    """Training examples of a full trial, instead of `num_steps`: a trial has as many steps as it takes batches of its
    size to reach about that number, at least one. Required if a search space has `training.batch_size`, so that trials
    with different batches see equally many. Null: see `num_steps` and `num_tokens`."""
    num_tokens: Count | None = None
    """The length in tokens: as many examples as make up about that many, at least one. For workloads whose options say
    how many tokens an example has: `stdlib-gpt`, `text-lm`, and `huggingface` on text with its `context_length`
    given."""
    evaluate_every_tokens: Count | None = None
    """Tokens between measurements, instead of `evaluate_every_examples`: as many examples as make up about that many.
    For the same workloads as `num_tokens`."""
    batch_size: Count | None = None
    """Examples per step over all ranks, unless a search space has `training.batch_size`; null: the workload's
    default."""
    report_timeout_seconds: Positive | None = 7200.0
    """Seconds without a measurement after which a trial fails, preparation of data and compilation included; null: no
    limit."""

    @field_validator("max_loss", mode="before")
    @classmethod
    def _null_is_the_default(cls, value: Any) -> Any:
        return TrainingSettings().max_loss if value is None else value  # as earlier jobs are stored

    def with_assigned(self, assignment: Assignment) -> Training:
        """The settings, with those of a search space in their place where it has them.

        Raises:
            InvalidConfig: the space's are impossible.
        """
        return dataclasses.replace(
            self,
            **assignment.training,
            compression=_with_assigned_compression(self.compression, assignment.compression),
            averaging=_with_assigned_averaging(self.averaging, assignment.averaging),
        )

    def contradictions(self) -> Iterator[InvalidConfig]:
        yield from TrainingSettings.contradictions(self)
        lengths = {name: getattr(self, name) for name in ("num_steps", "num_examples", "num_tokens")}
        said = [(name, value) for name, value in lengths.items() if value is not None]
        if len(said) > 1:
            told = f"says how long trials are, and so does training.{said[0][0]} = {said[0][1]}"
            yield InvalidConfig(said[1][0], told)
        if self.evaluate_every_tokens is not None and self.intervals:
            yield InvalidConfig(
                "evaluate_every_tokens",
                "says how often trials are measured, and so does another of the evaluate_every fields, got "
                f"{self.evaluate_every_tokens} beside {list(self.intervals)!r}",
            )

    def check_contradictions(self) -> None:
        """Checks that the settings go with each other.

        Raises:
            InvalidInput: names every field that does not.
        """
        found = [InvalidInput(f"training.{one.field}", one.message) for one in self.contradictions()]
        if found:
            raise one_of(found)

    def check_averaging(self) -> None:
        """Checks the averaging's arguments as a search space's values are; which of them a method takes, its trials
        tell.

        Raises:
            InvalidInput: names the first that is none or out of range.
        """
        for name, value in ({} if self.averaging is None else self.averaging.arguments).items():
            field = f"training.averaging.arguments.{name}"
            if name not in AVERAGING or name == "method":
                known = sorted(AVERAGING.keys() - {"method"})
                raise InvalidInput(
                    field,
                    f"unknown argument of weight averaging (known: {', '.join(known)}), got {value!r}"
                    f"{did_you_mean(name, known)}",
                )
            try:
                SearchSpace("adamw", fixed={f"averaging.{name}": value})  # type: ignore[dict-item]  # checked there
            except SpaceError as error:
                raise InvalidInput(field, error.message) from error


def _with_assigned_compression(
    given: CompressionConfig | None, assigned: Mapping[str, Any]
) -> CompressionConfig | None:
    return dataclasses.replace(given or CompressionConfig(), **assigned) if assigned else given


def _with_assigned_averaging(given: AveragingConfig | None, assigned: Mapping[str, Any]) -> AveragingConfig | None:
    if not assigned:
        return given
    method = assigned.get("method", None if given is None else given.method)
    if method is None:
        raise InvalidConfig("averaging.method", "is required, got None")
    arguments = {name: value for name, value in assigned.items() if name != "method"}
    return AveragingConfig(method, {**({} if given is None else given.arguments), **arguments})


@functools.cache
def _fields_of_parts() -> Mapping[str, Set[str]]:
    """The names in the settings that are objects, by the names of these settings."""
    return {
        name: {field.name for field in dataclasses.fields(kind)}
        for name, annotation in get_type_hints(Training).items()
        for kind in get_args(annotation)
        if dataclasses.is_dataclass(kind)
    }


def _as_told(value: Any) -> Any:
    """The settings without the unknown fields that nobody looks at, as `StrictModel` leaves them out."""
    value = with_unknown_as_told(value, {field.name for field in dataclasses.fields(Training)})
    if not isinstance(value, dict):
        return value
    parts = _fields_of_parts()
    return {name: with_unknown_as_told(one, parts[name]) if name in parts else one for name, one in value.items()}


def _naming_fields(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validates all fields, as a `StrictModel` does; errors of settings that do not go together are moved to the fields
    that they name."""
    try:
        return validate(_as_told(value))
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise ValidationError.from_exception_data(error.title, [_at_its_field(one) for one in details]) from error


def _at_its_field(details: ErrorDetails) -> InitErrorDetails:
    cause, path, given = details.get("ctx", {}).get("error"), details["loc"], details["input"]
    if not isinstance(cause, InvalidConfig):
        return InitErrorDetails(type=details["type"], loc=path, input=given, ctx=details.get("ctx", {}))
    field = cause.field.split(".")
    for name in field[len(path) :]:
        given = given.get(name) if isinstance(given, Mapping) else None
    told = PydanticCustomError("impossible_setting", "{message}", {"message": cause.message})
    return InitErrorDetails(type=told, loc=tuple(field), input=given)


class _OfTrials(StrictModel):
    settings: TrainingSettings


class _WithProseOfTrials:
    """Describes in JSON schema also the fields that trials have, too: of inherited ones pydantic reads no prose."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Any:
        result = handler(schema)
        fields = handler.resolve_ref_schema(result)["properties"]
        for name, field in _OfTrials.model_json_schema()["$defs"]["TrainingSettings"]["properties"].items():
            if "description" in field:
                fields[name]["description"] = field["description"]
        return result


RequestedTraining: TypeAlias = Annotated[Training, WrapValidator(_naming_fields), _WithProseOfTrials()]
"""The field of a request that holds them."""
