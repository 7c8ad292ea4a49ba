"""The form of a new job: which fields of a job's schema stand where. Whatever a job can say has a place in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from pydantic import JsonValue

from service.api.schemas.jobs import JobCreate
from service.dashboard.new_job.fields import ROW, FormField, FormSchema, Schema

NOT_ASKED = frozenset({"/budget/extra_search_trials", f"/baselines/{ROW}/extra_trials"})
"""Fields of a job that grow with trials which users propose to it: a new one has none."""


@dataclass(frozen=True, slots=True)
class PartState:
    """One of the ways to answer whether a job has a part."""

    label: str
    value: JsonValue
    """The value in the document; an object is filled by the fields of the part."""


@dataclass(frozen=True, slots=True)
class FormPart:
    """An object of the document that need not be there, with fields of its own."""

    pointer: str
    label: str
    help: str
    states: Sequence[PartState]
    """The first one is the default."""
    fields: Sequence[FormField]

    @property
    def id(self) -> str:
        return "part" + self.pointer.replace("/", "-")


@dataclass(frozen=True, slots=True)
class FormRows:
    """A list of objects, each with the same fields."""

    pointer: str
    label: str
    help: str
    one: str
    """The noun for one row."""
    default: Sequence[JsonValue]
    max_rows: int
    fields: Sequence[FormField]
    """Fields of a row; `ROW` in their pointers is its index."""

    @property
    def id(self) -> str:
        return "rows" + self.pointer.replace("/", "-")


FormItem: TypeAlias = FormField | FormPart | FormRows


@dataclass(frozen=True, slots=True)
class FormSection:
    """Fields under one title."""

    title: str
    items: Sequence[FormItem]
    is_closed: bool = False
    """True if it is for who wants to know more: it is opened first."""
    hint: str = ""
    """The subject of the part, shown beside its title."""

    @property
    def id(self) -> str:
        return "section-" + self.title.lower().replace(" ", "-").replace(",", "")


@cache
def _schema() -> Schema:
    return JobCreate.model_json_schema()


@cache
def job_form() -> Sequence[FormSection]:
    """The sections of the form, but for the choice of the workload, its options, and the search space."""
    schema = FormSchema(_schema())
    field = schema.field

    def fields(prefix: str, *without: str, **labels: str) -> list[FormField]:
        """All fields of an object, but for those that begin as `without` says."""
        names = [
            pointer.removeprefix(f"{prefix}/") for pointer in schema.pointers() if pointer.startswith(f"{prefix}/")
        ]
        return [
            field(f"{prefix}/{name}", label=labels.get(name))
            for name in names
            if f"{prefix}/{name}" not in NOT_ASKED and not name.startswith(without)
        ]

    def part(pointer: str, label: str, *states: PartState) -> FormPart:
        return FormPart(pointer, label, schema.help(pointer), states, fields(pointer))

    def rows(pointer: str, label: str, one: str, default: Sequence[JsonValue] = ()) -> FormRows:
        found = fields(f"{pointer}/{ROW}")
        return FormRows(pointer, label, schema.help(pointer), one, default, schema.max_items(pointer), found)

    baselines = rows("/baselines", "Baselines", "baseline", [{"search_space": "adamw"}])
    spaces = [replace(own, kind="space") if own.pointer.endswith("/search_space") else own for own in baselines.fields]
    return (
        FormSection(
            "Budget",
            [
                field("/budget/num_trials", label="Trials"),
                field("/budget/wall_clock_seconds", label="Running time in seconds", when_empty="no limit"),
                field("/budget/device_hours", label="Device-hours", when_empty="no limit"),
                field("/budget/cost", label="Cost", when_empty="no limit"),
            ],
        ),
        FormSection("Name and tags", [field("/name"), field("/model", label="Model, as you call it"), field("/tags")]),
        FormSection(
            "Baselines",
            [replace(baselines, fields=spaces)],
            is_closed=True,
            hint="what the search is compared with: AdamW, unless you say otherwise",
        ),
        FormSection(
            "Training",
            [
                field("/training/num_steps", when_empty="the workload's"),
                field("/training/batch_size", when_empty="the workload's"),
                *fields("/training", "num_steps", "batch_size", "compression", "averaging", "parallelism"),
                field("/training/parallelism/mode", label="Parallelism"),
                field("/training/parallelism/shard_size", label="Ranks that share a copy of the model"),
                part("/training/compression", "Compression of gradients", PartState("none", None), PartState("on", {})),
                part("/training/averaging", "Averaging of weights", PartState("none", None), PartState("on", {})),
            ],
            is_closed=True,
            hint="steps, batch size, precision, measurements",
        ),
        FormSection(
            "Resources",
            fields(
                "/resources",
                workers_per_trial="Ranks of a trial",
                cpus_per_worker="CPUs of a rank",
                gpus_per_worker="GPUs of a rank",
                memory_per_worker="Memory of a rank in bytes",
                beyond_memory="Launch what the machine is too small for",
                parallel_trials="Trials at once",
            ),
            is_closed=True,
            hint="ranks, CPUs, GPUs, memory, trials at once",
        ),
        FormSection(
            "Objectives",
            [
                rows("/objectives", "Objectives", "objective"),
                part("/target", "Target", PartState("none", None), PartState("a value to reach", {})),
                rows("/constraints", "Constraints", "constraint"),
            ],
            is_closed=True,
            hint="what counts as better, a target, bounds that trials must keep",
        ),
        FormSection(
            "How it searches",
            [
                field("/sampler/name", label="Sampler", when_empty="chosen by the service"),
                field("/pruner/name", label="Pruner", when_empty="chosen by the service"),
                field("/budget/patience", when_empty="no limit"),
                replace(field("/pinned", label="Tried first"), default=[]),
                field("/known_configs", label="Configs of models like this one"),
                *fields("/sampler", "name", options="Arguments of a sampler of your own", seed="Seed of the search"),
                *fields("/pruner", "name"),
                replace(field("/imported", label="Imported trials"), default=[]),
            ],
            is_closed=True,
            hint="sampler, pruner, patience, what is tried first",
        ),
        FormSection(
            "Confirmation",
            [
                part(
                    "/confirmation",
                    "Train the best configs again with new seeds",
                    PartState("as many as is usual", "auto"),
                    PartState("no: the answer stays provisional", None),
                    PartState("as said here", {}),
                ),
                field("/currency", label="Compared at equal", when_empty="chosen by the service"),
                replace(field("/step_times", label="Times of a step"), default=[]),
                field("/keep_weights", label="Keep the winners' trained weights"),
            ],
            is_closed=True,
            hint="how sure the answer will be",
        ),
        FormSection(
            "Notes, priority and trackers",
            [replace(field("/notes"), kind="long_text"), field("/priority"), field("/trackers")],
            is_closed=True,
        ),
        FormSection(
            "Code and trials of your own",
            [
                part("/code", "Code that was sent along", PartState("none", None), PartState("this", {})),
                part(
                    "/external",
                    "Who trains the trials",
                    PartState("the service", None),
                    PartState("programs of your own", {}),
                ),
            ],
            is_closed=True,
            hint="code that was sent with the API, trials that your own programs train",
        ),
    )


def first_workload() -> str:
    """The workload that the form begins with: the example of a job's schema, which needs no data of anybody's."""
    name: str = _schema()["$defs"]["WorkloadChoice"]["properties"]["name"]["examples"][0]
    return name


def search_space() -> FormField:
    """The field of the search space."""
    found = FormSchema(_schema()).field("/search_space", label="Search space")
    return replace(found, kind="space")


@cache
def job_defaults() -> dict[str, JsonValue]:
    """The defaults of a job whose document says nothing, but for the workload."""
    values: dict[str, JsonValue] = JobCreate.model_validate({"workload": {"name": "any"}}).model_dump(mode="json")
    del values["workload"]
    return values


def without_code(sections: Sequence[FormSection]) -> list[FormSection]:
    """The sections without what names code that the service would import."""
    return [
        replace(
            section,
            items=[
                replace(item, takes_more=False) if isinstance(item, FormField) else item
                for item in section.items
                if item.pointer != "/code"
            ],
        )
        for section in sections
    ]
