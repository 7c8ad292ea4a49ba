"""Recommended configs at the command line: in any of their formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.nearest import did_you_mean
from service.cli.asking import (
    DEFAULT_URL,
    AsJson,
    JobId,
    Token,
    Url,
    client_at,
    inert_data,
    say,
    say_json,
    say_json_content,
    written_file,
)
from service.cli.writing import Overwrite, check_free
from service.domain import WeightsOf
from service.errors import ServiceError
from service.inert import inert

if TYPE_CHECKING:
    from service.api.schemas.recommendations import RecommendationRead
    from service.api.schemas.trials import TrialConfigRead
    from service.api.schemas.untuned import UntunedAnswerRead, UntunedConfigRead
    from service.evidence.formats.written import Written

OWN_FORMATS = ("python", "json", "yaml")
"""The formats that are made of an answer here; the service writes the others."""
DEFAULT_CONFIGS = 5
"""Number of configs that are asked for, where the model was never tuned."""

app = typer.Typer()


@app.command()
def recommend(
    name: Annotated[
        str | None, typer.Argument(help="Your own name of a model, or a workload's, e.g. digits-mlp.")
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            help="Config for the model with this fingerprint; or a FILE of `shampoo-tuner fingerprint`: configs for a "
            "model that was never tuned."
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="With a FILE: examples in a step, of all ranks.")
    ] = None,
    num_steps: Annotated[int | None, typer.Option(min=1, help="With a FILE: steps of the whole training.")] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="With a FILE: configs that are wanted. Default: 5.", show_default=False)
    ] = None,
    preconditioner: Annotated[
        str | None,
        typer.Option(
            help="With a FILE: the member of the family that is wanted: shampoo, soap, kl or spectral. Default: any.",
            show_default=False,
        ),
    ] = None,
    place: Annotated[
        int | None,
        typer.Option(min=1, help="With a FILE: the place in the list of the config that is printed. Default: 1."),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            help="Config of this job, instead of the best answer. With --fingerprint FILE: moved to that model, if "
            "the job tuned a smaller or shorter version of it."
        ),
    ] = None,
    trial: Annotated[
        int | None, typer.Option(min=0, help="With --job: the config of this trial instead, one of its front perhaps.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--format",
            help="python, json, yaml, torchrun (a command that trains it), or the words of another package: "
            "distributed-shampoo, heavyball, pytorch-optimizer, scalable-shampoo, torch-muon.",
        ),
    ] = "python",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Prints the best recommended config for a model or a workload, or that of one job, with its evidence."""
    from service.evidence.formats.written import Format

    if output not in list(Format):
        known = [each.value for each in Format]
        told = f"{output!r}; known: {', '.join(known)}{did_you_mean(output, known)}"
        raise typer.BadParameter(told, param_hint="--format")
    if trial is not None and output not in OWN_FORMATS:
        raise typer.BadParameter(f"must be python, json or yaml with --trial, got {output}", param_hint="--format")
    if trial is not None and job is None:
        raise typer.BadParameter("needs --job", param_hint="--trial")
    path = None if fingerprint is None else Path(fingerprint)
    proxy_job = job if path is not None and path.is_file() and trial is None else None
    if sum(asked is not None for asked in (name, fingerprint, job)) - (proxy_job is not None) != 1:
        raise typer.BadParameter("give either a name, or --fingerprint, or --job", param_hint="NAME")
    from service.cli.reading.recommended import asked_of_file, best_by_fingerprint, best_by_name, say_list

    if path is not None and path.is_file():
        if batch_size is None or num_steps is None:
            raise typer.BadParameter(
                "a file of a model needs --batch-size and --num-steps, too", param_hint="--fingerprint"
            )
        with client_at(url, token) as client:
            answer = asked_of_file(
                client,
                path,
                batch_size=batch_size,
                num_steps=num_steps,
                num_trials=DEFAULT_CONFIGS if trials is None else trials,
                preconditioner=preconditioner,
                proxy_job=proxy_job,
                formats=[] if output in OWN_FORMATS else [output],
            )
        if as_json:
            say_json(answer)
        else:
            say_list(answer)
            _say_one_of(answer, 1 if place is None else place, output)
        return
    of_file = {
        "--batch-size": batch_size,
        "--num-steps": num_steps,
        "--trials": trials,
        "--preconditioner": preconditioner,
        "--place": place,
    }
    if without_file := [option for option, given in of_file.items() if given is not None]:
        hint = "; one trial's config: --job JOB --trial NUMBER" if without_file == ["--trials"] else ""
        if path is not None:
            hint = f", and no file {str(path)!r} is here: `shampoo-tuner fingerprint MODEL > FILE` writes one"
        raise typer.BadParameter(f"needs --fingerprint FILE{hint}", param_hint=", ".join(without_file))
    with client_at(url, token) as client:
        if job is not None and trial is not None:
            _say_read(client.trial_config(job, trial), output, as_json=as_json)
            return
        if job is not None:
            found = client.recommendation(job)
        elif fingerprint is not None:
            found = best_by_fingerprint(client, fingerprint)
        else:
            found = best_by_name(client, name or "")
        if not as_json and output not in OWN_FORMATS:
            _say_written(client.written_recommendation(found.id, output))
            return
    _say_read(found, output, as_json=as_json)


@app.command()
def weights(
    job: JobId,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="The weights of the baseline's best config instead.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; JOB.safetensors if it is left out.")
    ] = None,
    overwrite: Overwrite = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Downloads the trained weights of a job's recommended config, of its best trial in the confirmation."""
    side = WeightsOf.BASELINE if baseline else WeightsOf.RECOMMENDED
    target = output or Path(f"{job}-baseline.safetensors" if baseline else f"{job}.safetensors")
    check_free(target, overwrites=overwrite)
    with client_at(url, token) as client:
        client.download_weights(job, target, side=side)
    if as_json:
        say_json_content({"job_id": job, **written_file(target), "side": side})
    else:
        say(f"written to {target}", err=True)


def _say_read(found: RecommendationRead | TrialConfigRead | UntunedConfigRead, output: str, *, as_json: bool) -> None:
    import json

    if as_json:
        say_json(found)
        return
    if output == "python":
        typer.echo(inert(found.python))
        return
    content = found.model_dump(mode="json", exclude={"python", "formats"})
    if output == "json":
        typer.echo(inert_data(lambda readable: json.dumps(content, indent=2, ensure_ascii=not readable)))
    else:
        import yaml

        typer.echo(
            inert_data(lambda readable: yaml.safe_dump(content, sort_keys=False, allow_unicode=readable)).rstrip()
        )


def _say_one_of(answer: UntunedAnswerRead, place: int, output: str) -> None:
    """Prints the config at a place of an answer, counted from 1. Raises: ServiceError."""
    if place > len(answer.items):
        raise ServiceError(f"--place {place}: the answer has {len(answer.items)} configs")
    one = answer.items[place - 1]
    if output in OWN_FORMATS:
        _say_read(one, output, as_json=False)
    else:
        _say_written(one.formats[0])


def _say_written(found: Written) -> None:
    """Prints a config in another format; what cannot be said in it goes to standard error.

    Raises:
        ServiceError: nothing of it can.
    """
    if found.text is None:
        raise ServiceError(f"the config cannot be written as {found.format}: {'; '.join(found.cannot_say)}")
    for sentence in found.cannot_say:
        say(f"cannot be said there: {sentence}", err=True)
    typer.echo(inert(found.text))
