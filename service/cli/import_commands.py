"""The command that has a job begin with what another study found: `import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.asking import AsJson, answer, written_file

app = typer.Typer()


@app.command("import")
def import_trials(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="A job's file.")],
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A .csv file; else Optuna's: the URL of a storage or a journal file.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The job's file with what was found, as JSON.")],
    value: Annotated[str, typer.Option(help="Of a CSV file: the column with the objective.")] = "value",
    study: Annotated[str | None, typer.Option(help="Of Optuna: the study. Default: the only one there is.")] = None,
    pin: Annotated[int, typer.Option(min=0, max=50, help="The best so many are trained first.")] = 5,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="PARAMETER=NAME", help="A parameter's name there. Repeat it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Writes a job's file that begins with the trials of an Optuna study, or of a CSV file, W&B's among them.

    The best ones become `pinned`: the job trains them itself. Those that say every parameter of the search space become
    `imported`: samplers that can learn from them. Neither counts as evidence.
    """
    import importlib
    import json
    from collections.abc import Iterator

    from search_spaces.nearest import did_you_mean
    from service.api.schemas.jobs import JobCreate
    from service.cli.job_file import read_job_file, read_values
    from service.cli.job_file_faults import own_faults_in
    from service.errors import InvalidInput, ServiceError
    from service.imports.found import FoundTrial, fitted, trials_of_csv
    from service.specification.planning import plan_job
    from trainers.installation.extras import needing

    content = read_job_file(job_file)
    with own_faults_in(job_file, content):
        plan = plan_job(JobCreate.model_validate(content).specification)
    space = plan.spaces["search"]
    renamed = {name: str(other) for name, other in read_values(rename or ()).items()}
    names = [parameter.name for parameter in space.parameters]
    for name in renamed:
        if name not in names:
            raise InvalidInput("--rename", f"{name!r} is no parameter of the search space{did_you_mean(name, names)}")
    found: Iterator[FoundTrial]
    if source.lower().endswith(".csv"):
        found = trials_of_csv(Path(source), value_column=value)
    else:
        # By its name: else every command, and with them the API, would seem to need Optuna.
        with needing("studies", subject="an import from Optuna"):
            study_of = importlib.import_module("service.imports.optuna_study")
        found = study_of.trials_of_optuna(source, study_name=study)
    result = fitted(found, space, plan.direction, num_pinned=pin, renamed=renamed)
    content["pinned"] = [*content.get("pinned", ()), *result.pinned]
    content["imported"] = [trial.model_dump(mode="json") for trial in result.trials]
    try:
        output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ServiceError(f"cannot write {output}: {error.strerror or error}") from error
    made = {
        **written_file(output),
        "num_found": result.num_found,
        "num_pinned": len(result.pinned),
        "num_imported": len(result.trials),
        "num_unfit": result.num_unfit,
    }
    answer(
        made,
        f"{output}: of {result.num_found} trials {len(result.pinned)} are pinned and {len(result.trials)} imported; "
        f"{result.num_unfit} do not fit the search space",
        as_json=as_json,
    )
