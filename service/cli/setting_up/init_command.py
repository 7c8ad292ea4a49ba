"""The command that writes a first job file: `init`."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.asking import DEFAULT_URL, Token, Url, answer, client_at, say, say_json_content, written_file
from service.cli.writing import Overwrite, write_whole
from service.errors import ServiceError
from service.inert import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

    from service.api.schemas.catalogue import WorkloadOptionRead
    from trainers.workload.description import WorkloadOption


COLUMNS = 100
"""Columns of a comment line in the file, by judgement: it fits most editors beside another file."""

app = typer.Typer()


@app.command()
def init(
    workload: Annotated[str, typer.Argument(help="A workload of the service, or your own class as module:Class.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file; else it is printed, e.g. for > job.yaml.")
    ] = None,
    overwrite: Overwrite = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the job as JSON, which has no comments; or with -o, where it is.")
    ] = False,
) -> None:
    """Writes a job file for a workload, with all fields and what they mean.

    `submit` accepts it as it is, once the options stand there that the workload requires.
    """
    from search_spaces.nearest import did_you_mean
    from trainers.workload.user_workload import is_reference

    options: Mapping[str, WorkloadOption | WorkloadOptionRead]
    if is_reference(workload):
        options = _options_here(workload)
    else:
        with client_at(url, token) as client:
            known = {one.name: one.options for one in client.workloads()}
        if workload not in known:
            told = f"known: {', '.join(known)}, or your own as module:Class{did_you_mean(workload, known)}"
            raise ServiceError(f"no workload {workload!r}; {told}")
        options = known[workload]
    text = job_file_for(workload, options)
    if output is None:
        if as_json:
            import yaml

            say_json_content(yaml.safe_load(text))
        else:
            typer.echo(text, nl=False)
        return
    try:
        write_whole(output, [text.encode()], overwrites=overwrite)
    except OSError as error:
        raise ServiceError(f"cannot write {output}: {error.strerror or error}") from error
    words = f"`shampoo-tuner submit {output} --dry-run` says what it would cost at most"
    answer({"workload": workload, **written_file(output)}, words, as_json=as_json)


def _options_here(reference: str) -> Mapping[str, WorkloadOption]:
    """The options of a class that the current directory has; of any other none are known."""
    from trainers.config import InvalidConfig
    from trainers.workloads.describe import ask

    try:
        return ask(reference).options
    except InvalidConfig as error:
        say(f"the options of {reference} are not in it, as it is not to be had here: {error.message}", err=True)
        return {}


def job_file_for(workload: str, options: Mapping[str, WorkloadOption | WorkloadOptionRead]) -> str:
    """The text of a job file: the workload, the options that it requires and the number of trials are given, all else
    stands there as a comment with its default."""
    from service.api.schemas.jobs import JobCreate
    from service.specification.job import Budget

    schema = JobCreate.model_json_schema()
    budget = _Prose.of("Budget", schema)
    lines = [
        "# A job. Lines that begin with # are comments: those of the form `#field: value` show defaults.",
        "# `shampoo-tuner submit FILE --dry-run` checks it; `--set FIELD=VALUE` changes a field for once.",
        "workload:",
        f"  name: {json.dumps(workload, ensure_ascii=False)}",
        *_option_lines(options),
        "",
        "budget:",
        f"  num_trials: {Budget.model_fields['num_trials'].default}",
    ]
    for name, field in Budget.model_fields.items():
        if name != "num_trials":
            lines += _commented(name, field, budget, indent="  ")
    job = _Prose(schema["properties"], schema["$defs"])
    for name, field in JobCreate.model_fields.items():
        if name in ("workload", "budget"):
            continue
        lines += ["", *_commented(name, field, job, indent="")]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Prose:
    """The descriptions of an object's fields, from its JSON schema: models have none of their own."""

    properties: Mapping[str, Mapping[str, Any]]
    kinds: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, kind: str, schema: Mapping[str, Any]) -> _Prose:
        return cls(schema["$defs"][kind]["properties"], schema["$defs"])

    def about(self, field: str) -> str:
        return str(self.properties[field]["description"])

    def within(self, kind: type) -> _Prose:
        return _Prose(self.kinds[kind.__name__]["properties"], self.kinds)


def _option_lines(options: Mapping[str, WorkloadOption | WorkloadOptionRead]) -> Iterator[str]:
    """The options of a workload: those that it requires, without a value, and the others as comments."""
    required = {name: option for name, option in options.items() if option.required}
    if options:
        yield "  options:" if required else "  # options:"
    for name, option in required.items():
        yield f"    {name}: null  # required: {one_line(option.description)}"
    for name, option in options.items():
        if name not in required:
            yield f"    # {name}: {_value(option.default)}  # {one_line(option.description)}"


def _commented(name: str, field: FieldInfo, prose: _Prose, *, indent: str) -> Iterator[str]:
    """A field as comments: its description, its name and its default; of an object, its fields below it."""
    from pydantic import BaseModel

    yield from _wrapped(prose.about(name), indent)
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel):
        yield f"{indent}#{name}:"
        for inner, inner_field in type(default).model_fields.items():
            yield from _commented(inner, inner_field, prose.within(type(default)), indent=f"{indent}  ")
    elif is_dataclass(default) and not isinstance(default, type):
        yield f"{indent}#{name}:"
        for one in fields(default):
            yield from _wrapped(prose.within(type(default)).about(one.name), f"{indent}  ")
            yield f"{indent}  #{one.name}: {_value(getattr(default, one.name))}"
    else:
        yield f"{indent}#{name}: {_value(default)}"


def _wrapped(description: str, indent: str) -> Iterator[str]:
    for line in textwrap.wrap(description, COLUMNS - len(indent)):
        yield f"{indent}# {line}"


def _value(default: object) -> str:
    from pydantic_core import to_jsonable_python

    return json.dumps(to_jsonable_python(default), ensure_ascii=False)
