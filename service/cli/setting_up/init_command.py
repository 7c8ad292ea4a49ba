"""The command that writes a first job file: `init`."""

from __future__ import annotations

import json
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.asking import DEFAULT_URL, Token, Url, answer, client_at, say_json_content, written_file
from service.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo


COLUMNS = 100
"""Columns of a comment line in the file, by judgement: it fits most editors beside another file."""

app = typer.Typer()


@app.command()
def init(
    workload: Annotated[str, typer.Argument(help="A workload of the service, or your own class as module:Class.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A new file; else it is printed, e.g. for > job.yaml.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the job as JSON, which has no comments; or with -o, where it is.")
    ] = False,
) -> None:
    """Writes a job file for a workload, with all fields and what they mean; `submit` accepts it as it is."""
    from search_spaces.nearest import did_you_mean
    from trainers.workload.user_workload import is_reference

    if not is_reference(workload):
        with client_at(url, token) as client:
            names = [one.name for one in client.workloads()]
        if workload not in names:
            known = f"known: {', '.join(names)}, or your own as module:Class{did_you_mean(workload, names)}"
            raise ServiceError(f"no workload {workload!r}; {known}")
    text = job_file_for(workload)
    if output is None:
        if as_json:
            import yaml

            say_json_content(yaml.safe_load(text))
        else:
            typer.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ServiceError(f"cannot write {output}: {error.strerror or error}") from error
    words = f"`shampoo-tuner submit {output} --dry-run` says what it would cost at most"
    answer({"workload": workload, **written_file(output)}, words, as_json=as_json)


def job_file_for(workload: str) -> str:
    """The text of a job file: the workload and the number of trials are given, all else stands there as a comment with
    its default."""
    from service.api.schemas.jobs import JobCreate
    from service.specification.job import Budget

    lines = [
        "# A job. Lines that begin with # are comments: those of the form `#field: value` show defaults.",
        "# `shampoo-tuner submit FILE --dry-run` checks it; `--set FIELD=VALUE` changes a field for once.",
        "workload:",
        f"  name: {json.dumps(workload, ensure_ascii=False)}",
        "",
        "budget:",
        f"  num_trials: {Budget.model_fields['num_trials'].default}",
    ]
    for name, field in Budget.model_fields.items():
        if name != "num_trials":
            lines += _commented(name, field, indent="  ")
    for name, field in JobCreate.model_fields.items():
        if name in ("workload", "budget"):
            continue
        lines += ["", *_commented(name, field, indent="")]
    return "\n".join(lines) + "\n"


def _commented(name: str, field: FieldInfo, *, indent: str) -> Iterator[str]:
    """A field as comments: its description, its name and its default; of an object, its fields below it."""
    from pydantic import BaseModel

    for line in textwrap.wrap(field.description or "", COLUMNS - len(indent)):
        yield f"{indent}# {line}"
    default = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel):
        yield f"{indent}#{name}:"
        for inner, inner_field in type(default).model_fields.items():
            yield from _commented(inner, inner_field, indent=f"{indent}  ")
    elif is_dataclass(default):
        yield f"{indent}#{name}:"
        for one in fields(default):
            yield f"{indent}  #{one.name}: {_value(getattr(default, one.name))}"
    else:
        yield f"{indent}#{name}: {_value(default)}"


def _value(default: object) -> str:
    from pydantic_core import to_jsonable_python

    return json.dumps(to_jsonable_python(default), ensure_ascii=False)
