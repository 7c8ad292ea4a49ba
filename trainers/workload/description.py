"""The description of a workload, which is known without building it, and the metrics that the loop adds: no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, TypeAlias, get_args

from trainers.config import SUMMARY_PREFIXES, Json

Direction: TypeAlias = Literal["minimize", "maximize"]
OptionRole: TypeAlias = Literal["model", "shape", "data", "path", "path_or_word", "reading", "cache"]
"""Meaning of an option: the `model` or its loss; only its `shape`, which the parameters show by themselves; which
`data` are read, and what is made of them; the `path` of files, which stand for themselves wherever they lie, or a word
in place of one (`path_or_word`); or only how the data are read (`reading`), e.g. by how many processes, and in which
directory something is kept for the next time (`cache`). Two jobs train the same model on the same data if all but the
last two agree (`trainers.identity`). Where a service says which directories trials may read, it looks at all values of
`path`, `path_or_word` and `cache`."""
ValueKind: TypeAlias = Literal["whole number", "number", "text", "true or false", "null", "list", "object"]
"""Kinds of values in JSON, as people call them."""
_SummaryKind: TypeAlias = Literal["best", "mean_of_last"]

MAX_METRIC_NAME = 100
"""Characters of a metric's name."""


def is_metric_name(name: object) -> bool:
    """True if a metric can have this name: 1 to `MAX_METRIC_NAME` characters, none a control character or half of a
    surrogate pair, as databases and JSON keep no such text."""
    return (
        isinstance(name, str) and re.fullmatch(rf"[^\x00-\x1f\ud800-\udfff]{{1,{MAX_METRIC_NAME}}}", name) is not None
    )


def _kind_of(value: Json) -> ValueKind:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int():
            return "whole number"
        case float():
            return "number"
        case str():
            return "text"
        case Mapping():
            return "object"
        case _:
            return "list"


@dataclass(frozen=True, slots=True)
class WorkloadOption:
    """One argument of a workload's constructor."""

    default: Json
    """None where `required`."""
    description: str
    required: bool = False
    """True if the user must give it, e.g. the path of the data."""
    role: OptionRole = "model"
    words: tuple[str, ...] = ()
    """Words that a `path_or_word` may be."""
    choices: tuple[str, ...] = ()
    """The texts that it takes; empty: it takes others, too, or no texts."""
    kinds: tuple[ValueKind, ...] = ()
    """The kinds of values that it takes; empty: not known."""
    maximum: int | None = None
    """The largest number that it takes; None: it has no bound of its own."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The option that `dataclasses.asdict` and JSON made into `data`."""
        return cls(
            **{
                **data,
                "words": tuple(data["words"]),
                "choices": tuple(data.get("choices", ())),
                "kinds": tuple(data.get("kinds", ())),
            }
        )

    def takes(self, value: Json) -> bool:
        """True if a value is of a kind that it takes, as far as that is known. A whole number is a number, too."""
        kind = _kind_of(value)
        return not self.kinds or kind in self.kinds or (kind == "whole number" and "number" in self.kinds)

    def exceeded_by(self, value: Json) -> bool:
        """True if a value is a number above the maximum."""
        return (
            self.maximum is not None
            and isinstance(value, int | float)
            and not isinstance(value, bool)
            and value > self.maximum
        )

    def paths_in(self, value: Json) -> Sequence[str]:
        """The paths on the machine of a rank that a value of the option names, also in lists and objects."""
        if isinstance(value, Mapping):
            return [path for inner in value.values() for path in self.paths_in(inner)]
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [path for inner in value for path in self.paths_in(inner)]
        is_path = self.role in ("path", "cache") or (self.role == "path_or_word" and value not in self.words)
        return [value] if is_path and isinstance(value, str) and value else []


@dataclass(frozen=True, slots=True)
class ParameterRule:
    """A condition on a parameter of a model: all that it gives must hold, and it gives something."""

    name_parts: tuple[str, ...] = ()
    """One of the parts of the parameter's name, between its dots, is one of these."""
    module_types: tuple[str, ...] = ()
    """It belongs to a module of one of these classes of `torch.nn`, or of one derived from it."""
    of_output_embeddings: bool = False
    """It belongs to the module that the model's method `get_output_embeddings` gives, as those of `transformers` do."""
    min_dims: int | None = None
    """It has at least as many dimensions."""
    max_dims: int | None = None
    """It has at most as many dimensions."""

    def __post_init__(self) -> None:
        dims = (self.min_dims, self.max_dims)
        if not (self.name_parts or self.module_types or self.of_output_embeddings) and dims == (None, None):
            raise ValueError("a rule on parameters needs a condition")
        # They become names in Python that is pasted.
        wrong = [name for name in self.module_types if not name.isidentifier()]
        if wrong or not all(limit is None or isinstance(limit, int) for limit in dims):
            raise ValueError(f"a rule on parameters takes names of classes and numbers of dimensions, got {self}")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The rule that `dataclasses.asdict` and JSON made into `data`."""
        return cls(**{**data, "name_parts": tuple(data["name_parts"]), "module_types": tuple(data["module_types"])})


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters that trials of a workload give settings of their own (`HasParameterGroups`).

    `trainers.workload.parameter_groups` makes groups of a model's parameters from the rules, and a recommendation's
    Python has code that does the same.
    """

    parameters: str
    """The parameters, in words."""
    settings: Mapping[str, Json] | None = None
    """Arguments of the optimizer that they get in place of its own, as far as it has them; None: its class knows."""
    unless: str | None = None
    """The option of the workload that, where it is true, takes these settings away."""
    any_of: tuple[ParameterRule, ...] = ()
    """A parameter is in the first group of which a rule holds; empty: the workload's class knows which are."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The group that `dataclasses.asdict` and JSON made into `data`; one without rules is older than these."""
        return cls(**{**data, "any_of": tuple(map(ParameterRule.from_json, data.get("any_of", ())))})

    def settings_with(self, options: Mapping[str, Any]) -> Mapping[str, Json] | None:
        """The settings in a trial of a workload with these options; None: its class knows."""
        return {} if self.unless is not None and options.get(self.unless) else self.settings


@dataclass(frozen=True, slots=True)
class TokensPerExample:
    """The number of tokens in an example of a workload, as far as its options say it (`HasTokens`)."""

    option: str | None = None
    """The option that says it wherever it is given."""
    size_option: str | None = None
    """The option that else decides, e.g. the size of the model; None: what the model itself takes."""
    of_sizes: Mapping[str, int] = field(default_factory=dict)
    """The number for each value of `size_option`."""

    def with_options(self, options: Mapping[str, Any]) -> int | None:
        """The number with these options, the defaults among them; None: they do not say it."""
        given = None if self.option is None else options.get(self.option)
        if given is None:
            return None if self.size_option is None else self.of_sizes.get(str(options.get(self.size_option)))
        return given if isinstance(given, int) and not isinstance(given, bool) and given > 0 else None

    def deciding(self, options: Mapping[str, Any]) -> list[str]:
        """The names of the options that decide, where these are given."""
        if self.option is not None and options.get(self.option) is not None:
            return [self.option]
        return [name for name in (self.option, self.size_option) if name is not None]


@dataclass(frozen=True, slots=True)
class WorkloadDescription:
    """A workload as it is listed and checked, known without building it."""

    name: str
    title: str
    implementation: str
    """`module:Class`; the class is called with the workload's options as keyword arguments."""
    metrics: Mapping[str, Direction]
    """The workload's own metrics, `train_loss` and what it counts included, with the direction in which each is better.
    A measurement holds more: see `LOOP_METRICS`."""
    default_objective: str
    default_num_steps: int
    default_evaluate_every: int
    default_batch_size: int
    extra: str | None = None
    """Extra of shampoo-tuner with the libraries that the workload's modules import; None: it needs torch alone."""
    options: Mapping[str, WorkloadOption] = field(default_factory=dict)
    parameter_groups: Sequence[ParameterGroup] = ()
    """Groups by the class's method of this name. Whoever pastes a config that was found with them gets them, too."""
    tokens_per_example: TokensPerExample | None = None
    """Value of the class's property of this name; None: only the built workload knows, or its examples have none."""

    def to_json(self) -> dict[str, Any]:
        """The description, as `from_json` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The description that `to_json` gave."""
        tokens = data["tokens_per_example"]
        return cls(
            **{
                **data,
                "options": {name: WorkloadOption.from_json(option) for name, option in data["options"].items()},
                "parameter_groups": tuple(map(ParameterGroup.from_json, data["parameter_groups"])),
                "tokens_per_example": None if tokens is None else TokensPerExample(**tokens),
            }
        )


LOOP_METRICS: Mapping[str, Direction] = {
    "train_loss": "minimize",
    "step_seconds": "minimize",
    "examples_per_second": "maximize",
    "tokens_per_second": "maximize",
    "optimizer_share": "minimize",
    "optimizer_state_bytes": "minimize",
    "peak_memory_bytes": "minimize",
    "steps_to_target": "minimize",
    "seconds_to_target": "minimize",
    "target_reached": "maximize",
}
"""The metrics of the loop beside a workload's own, with the direction in which each is better.

Times are means over the steps since the measurement before, without evaluation; bytes are those of the rank that needs
most. `optimizer_share` is the optimizer's part of a step, `tokens_per_second` is there for workloads on sequences, and
the last three if the trial has a target (`trainers.curve`).
"""
TARGET_METRICS = ("steps_to_target", "seconds_to_target", "target_reached")
"""Metrics that only a trial with a target measures."""


def split_summary(name: str) -> tuple[Literal["best", "mean_of_last"], str]:
    """The kind of a summary and the metric it is of.

    Raises:
        ValueError: the name is none of a summary.
    """
    for prefix, kind in zip(SUMMARY_PREFIXES, get_args(_SummaryKind), strict=True):
        if name.startswith(prefix) and len(name) > len(prefix):
            return kind, name.removeprefix(prefix)
    raise ValueError(f"{name!r} does not begin with {' or '.join(SUMMARY_PREFIXES)}")
