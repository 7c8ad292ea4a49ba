"""Fields for the options of workloads, made of their descriptions. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.dashboard.new_job.fields import FormField, Kind, in_words
from trainers.workload.description import LOOP_METRICS, WorkloadDescription, WorkloadOption

OPTIONS = "/workload/options"


@dataclass(frozen=True, slots=True)
class WorkloadForm:
    """A workload as the form offers it."""

    name: str
    title: str
    defaults: str
    """Length, batch and objective where a job says none, in words."""
    required: Sequence[FormField]
    others: Sequence[FormField]
    metrics: Sequence[str]
    """The metrics that trials measure, its default objective first."""


def workload_form(description: WorkloadDescription) -> WorkloadForm:
    """The fields of a workload's options, those that a job must give first."""
    fields = {name: _option_field(name, option) for name, option in description.options.items()}
    objective = description.default_objective
    own = [objective, *(metric for metric in description.metrics if metric != objective)]
    return WorkloadForm(
        name=description.name,
        title=description.title,
        defaults=f"By default {description.default_num_steps} steps of {description.default_batch_size} examples, "
        f"measured every {description.default_evaluate_every}; the objective is to "
        f"{description.metrics[objective]} {objective}.",
        required=[field for field in fields.values() if field.required],
        others=[field for field in fields.values() if not field.required],
        metrics=[*own, *(metric for metric in LOOP_METRICS if metric not in own)],
    )


def _option_field(name: str, option: WorkloadOption) -> FormField:
    text = option.description
    return FormField(
        pointer=f"{OPTIONS}/{name.replace('~', '~0').replace('/', '~1')}",
        label=in_words(name),
        help=f"{text[:1].upper()}{text[1:]}.",
        kind=_kind(option),
        default=option.default,
        required=option.required,
        choices=option.choices,
        when_empty="" if option.required or option.default is not None else "as described below",
    )


def _kind(option: WorkloadOption) -> Kind:
    if option.choices:
        return "choice"
    match option.default:
        case bool():
            return "flag"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "text"
        case _:
            return "text" if option.role in ("path", "path_or_word", "cache") else "value"
