"""The command that has a job begin with what another study found: `import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.asking import AsJson, answer, written_file
from service.cli.writing import Overwrite, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from service.imports.found import Imported, LeftOut

app = typer.Typer()


@app.command("import")
def import_trials(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="A job's file. -: from standard input.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM", help="A .csv file; else Optuna's: a database's URL, a SQLite file or a journal file."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The job's file with what was found, as JSON.")],
    value: Annotated[str, typer.Option(help="Column of a CSV file with the objective.")] = "value",
    study: Annotated[str | None, typer.Option(help="Study of Optuna's. Default: the only one there is.")] = None,
    pin: Annotated[int, typer.Option(min=0, max=50, help="Number of the best trials that the job trains first.")] = 5,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="PARAMETER=NAME", help="A parameter's name there. Repeat it.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Writes a job file that starts from the trials of an Optuna study or of a CSV file, such as W&B's.

    The best ones become `pinned`: the job trains them itself. Those with a value for every parameter of the search
    space become `imported`, which some samplers learn from, if the job has one objective. Neither counts as evidence.

    Only completed trials are taken: those whose `state` says so in a CSV file that has such a column. Rows with another
    `optimizer` than the job's, and those of the `phase` confirmation, are left out, too.
    """
    import importlib
    import json

    from search_spaces.nearest import did_you_mean
    from service.api.schemas.jobs import JobCreate
    from service.cli.job_file import read_job_file, read_values
    from service.cli.job_file_faults import own_faults_in
    from service.errors import InvalidInput, ServiceError
    from service.imports.found import check_direction, fitted, names_there
    from service.imports.table import trials_of_csv
    from service.specification.planning import plan_job
    from trainers.installation.extras import needing

    read = read_job_file(job_file)
    content = read.content
    with own_faults_in(read):
        plan = plan_job(JobCreate.model_validate(content).specification)
    space = plan.spaces["search"]
    renamed = {name: str(other) for name, other in read_values(rename or ()).items()}
    names = [parameter.name for parameter in space.parameters]
    for name in renamed:
        if name not in names:
            raise InvalidInput("--rename", f"{name!r} is no parameter of the search space{did_you_mean(name, names)}")
    if source.lower().endswith(".csv"):
        of_parameters = {name for own in names_there(space, renamed).values() for name in own}
        found = trials_of_csv(Path(source), value_column=value, optimizer=space.optimizer, of_parameters=of_parameters)
    else:
        # By its name: else every command, and with them the API, would seem to need Optuna.
        with needing("studies", subject="an import from Optuna"):
            study_of = importlib.import_module("service.imports.optuna_study")
        found = study_of.trials_of_optuna(source, study_name=study)
    check_direction(found, plan.objectives[0], plan.workload.metrics)
    result = fitted(found.trials, space, plan.direction, num_pinned=pin, renamed=renamed)
    content["pinned"] = [*content.get("pinned", ()), *result.pinned]
    # A sampler of several objectives learns from values of all of them, and a trial that was found has one.
    trials = result.trials if len(plan.objectives) == 1 else ()
    content["imported"] = [trial.model_dump(mode="json") for trial in trials]
    try:
        write_whole(output, [json.dumps(content, indent=2).encode(), b"\n"], overwrites=overwrite)
    except OSError as error:
        raise ServiceError(f"cannot write {output}: {error.strerror or error}") from error
    made = {
        **written_file(output),
        "num_found": len(found.trials),
        "num_pinned": len(result.pinned),
        "num_imported": len(trials),
        "num_unfit": result.num_unfit,
        "left_out": dict(found.left_out),
    }
    answer(
        made,
        f"{output}: of {len(found.trials)} trials {len(result.pinned)} are pinned and {len(trials)} imported; "
        f"{result.num_unfit} do not fit the search space{_left_out(found.left_out, space.optimizer)}"
        f"{_why_none(result)}",
        as_json=as_json,
    )


def _why_none(result: Imported) -> str:
    """The words for why samplers learn from none of the trials, where that is so for want of parameters."""
    if result.trials or not result.pinned or not result.unsaid:
        return ""
    return f"; imported are those that say all parameters, and none says {', '.join(result.unsaid)}"


def _left_out(numbers: Mapping[LeftOut, int], optimizer: str) -> str:
    """The words for what was left out, by the reason."""
    from service.imports.found import LeftOut

    words = {
        LeftOut.OTHER_OPTIMIZER: f"whose optimizer is not {optimizer}",
        LeftOut.CONFIRMATION: "of a confirmation",
        LeftOut.FORKED: "forked from others",
        LeftOut.NOT_COMPLETED: "that did not complete",
        LeftOut.NO_VALUE: "without a usable value",
    }
    told = [f"{numbers[why]} {words[why]}" for why in LeftOut if numbers.get(why)]
    return f"; left out: {', '.join(told)}" if told else ""
