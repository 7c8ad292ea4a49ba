"""The commands that write a job as a file or a directory: `export`, `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from service.cli.asking import DEFAULT_URL, AsJson, JobId, Token, Url, answer, client_at, written_file
from service.cli.standard_output import write_bytes
from service.cli.writing import Overwrite, cleaning_up, naming, write_whole
from service.evidence.in_words.wording import counted

STDOUT = Path("-")

app = typer.Typer()


@app.command()
def export(
    job: JobId,
    output_format: Annotated[
        Literal["csv", "jsonl", "parquet", "mlflow", "tensorboard"],
        typer.Option(
            "--format", help="A table as csv, jsonl or parquet; or a directory for `mlflow` or `tensorboard`."
        ),
    ] = "csv",
    table: Annotated[
        Literal["trials", "measurements"], typer.Option(help="Rows of a table: trials or measurements.")
    ] = "trials",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file, or the directory. Default: named for the job, here; -: stdout."),
    ] = None,
    overwrite: Overwrite = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Writes a job to a file or a directory that other programs open.

    mlflow: open it with `mlflow ui --backend-store-uri sqlite:///DIRECTORY/mlflow.db`. tensorboard: open it with
    `tensorboard --logdir DIRECTORY`. Both need the extra `trackers`. In CSV, text that a spreadsheet would take for a
    formula has an apostrophe before it.
    """
    _check_free_for_json(output, as_json=as_json)
    if overwrite and (output == STDOUT or output_format in ("mlflow", "tensorboard")):
        raise typer.BadParameter(
            "has no effect but on a file: a directory takes each job once", param_hint="--overwrite"
        )
    with client_at(url, token) as client:
        if output_format == "mlflow" or output_format == "tensorboard":  # `in` would not narrow the type
            from service.client.export import export_directory

            directory = output or Path(f"{job}-{output_format}")
            with cleaning_up(), naming(directory):
                num_trials = export_directory(client, job, output_format, directory)
            made = {"job_id": job, "path": str(directory), "num_trials": num_trials}
            answer(made, f"{counted(num_trials, 'trial')} of job {job} are in {directory}", as_json=as_json)
            return
        pieces = client.export(job, table=table, table_format=output_format)
        if output == STDOUT:
            write_bytes(pieces)
            return
        path = output or Path(f"{job}-{table}.{output_format}")
        write_whole(path, pieces, overwrites=overwrite)
        answer(
            {"job_id": job, **written_file(path), "table": table},
            f"the {table} of job {job} are in {path}",
            as_json=as_json,
        )


@app.command()
def report(
    job: JobId,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file. Default: JOB-report.html, here; -: stdout.")
    ] = None,
    overwrite: Overwrite = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Writes the report of a job: one HTML file that needs nothing else, for a pull request or a paper."""
    _check_free_for_json(output, as_json=as_json)
    with client_at(url, token) as client:
        client.job(job)  # which says that there is none as a program can tell it
        content = client.report(job)
    if output == STDOUT:
        write_bytes([content])
        return
    path = output or Path(f"{job}-report.html")
    write_whole(path, [content], overwrites=overwrite)
    answer({"job_id": job, **written_file(path)}, f"the report of job {job} is in {path}", as_json=as_json)


def _check_free_for_json(output: Path | None, *, as_json: bool) -> None:
    """Raises: typer.BadParameter: the file and the JSON would both go to standard output."""
    if as_json and output == STDOUT:
        raise typer.BadParameter("- and --json would both print to standard output: give a file", param_hint="--output")
