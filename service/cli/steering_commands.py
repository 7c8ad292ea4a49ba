"""Commands that steer a job and its trials: cancel, pause, resume, budget, priority, notes, note, stop, retry, try;
and that keep, clone or delete it."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import typer

from service.cli.asking import (
    DEFAULT_URL,
    AsJson,
    JobId,
    Token,
    TrialNumber,
    Url,
    answer,
    client_at,
    may_be_submitted,
    say,
    say_json,
    say_warnings,
    say_where,
)
from service.cli.setting_up.help_texts import Command
from service.inert import inert

SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="The same as an option. Repeatable.")
]
_NEGATIVE_NUMBER = re.compile(r"-\d+")

app = typer.Typer()


class _TakesNegativeNumbers(Command):
    """A command whose arguments may be negative numbers, which are no options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses `args`; if one is a negative number, what looks like an option but is none is an argument."""
        ctx.ignore_unknown_options = any(_NEGATIVE_NUMBER.fullmatch(given) for given in args)
        return super().parse_args(ctx, args)


@app.command()
def cancel(job: JobId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Cancels a job."""
    with client_at(url, token) as client:
        ended = client.cancel(job)
        how = "is cancelled" if ended.state == "cancelled" else "has succeeded, as before"
        answer(ended, f"job {ended.id} {how}", as_json=as_json)


@app.command()
def delete(job: JobId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Deletes a job that has ended, with all that belongs to it, for good."""
    with client_at(url, token) as client:
        client.delete(job)
        answer({"id": job}, f"job {job} is deleted", as_json=as_json)


@app.command()
def archive(job: JobId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Hides a job from lists; `jobs --archived` shows it."""
    with client_at(url, token) as client:
        archived = client.archive(job)
        answer(archived, f"job {archived.id} is archived", as_json=as_json)


@app.command()
def unarchive(job: JobId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Shows an archived job in lists again."""
    with client_at(url, token) as client:
        listed = client.unarchive(job)
        answer(listed, f"job {listed.id} is listed again", as_json=as_json)


@app.command()
def clone(
    job: JobId,
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIELD=VALUE", help="E.g. budget.num_trials=8.", show_default=False),
    ] = None,
    setting: SetOption = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Submits a copy of a job with some fields changed; null restores a field's default."""
    from service.cli.job_file import apply_settings

    with client_at(url, token) as client:
        changes = apply_settings({}, [*(given or []), *(setting or [])])
        with may_be_submitted():
            made = client.clone(job, changes)
        say_warnings(made)
        answer(made, made.id, as_json=as_json)
        if not as_json:
            say_where(made, url)


@app.command()
def notes(
    job: JobId,
    text: Annotated[
        str | None, typer.Argument(help="The new text; -: from standard input. Without it, the notes are shown.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Shows your notes about a job, or writes them."""
    with client_at(url, token) as client:
        if text is None:
            found = client.job(job)
            if as_json:
                say_json(found)
            elif found.notes:
                typer.echo(inert(found.notes).rstrip("\n"))
            else:
                say("no notes", err=True)
            return
        changed = client.change(job, notes=sys.stdin.read() if text == "-" else text)
        answer(changed, f"job {changed.id} has {'notes' if changed.notes else 'no notes'}", as_json=as_json)


@app.command(cls=_TakesNegativeNumbers)
def note(
    job: JobId,
    trial: TrialNumber,
    text: Annotated[
        str | None, typer.Argument(help="The new text; -: from standard input. Without it, the note is shown.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Shows your note about a trial, or writes it."""
    with client_at(url, token) as client:
        if text is None:
            found = client.trial(job, trial)
            if as_json:
                say_json(found)
            elif found.note:
                typer.echo(inert(found.note).rstrip("\n"))
            else:
                say("no note", err=True)
            return
        changed = client.change_trial(job, trial, note=sys.stdin.read() if text == "-" else text)
        answer(changed, f"trial {trial} of job {job} has {'a note' if changed.note else 'no note'}", as_json=as_json)


@app.command()
def pause(job: JobId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Pauses a job; its trials keep their checkpoints."""
    with client_at(url, token) as client:
        paused = client.pause(job)
        how = "is paused" if paused.state == "paused" else "pauses: its run ends"
        answer(paused, f"job {paused.id} {how}", as_json=as_json)


@app.command()
def resume(job: JobId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Resumes a paused job, or a finished one whose budget is not spent."""
    with client_at(url, token) as client:
        resumed = client.resume(job)
        answer(resumed, f"job {resumed.id} goes on", as_json=as_json)


@app.command()
def budget(
    job: JobId,
    given: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIELD=VALUE", help="E.g. num_trials=40.", show_default=False),
    ] = None,
    setting: SetOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the job if it has finished or is paused.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Changes a job's budget, also while it runs; null: no limit."""
    from service.cli.job_file import apply_settings

    settings = [*(given or []), *(setting or [])]
    if not settings:
        raise typer.BadParameter("is missing, e.g. num_trials=40", param_hint="FIELD=VALUE")
    changes = apply_settings({}, settings)
    with client_at(url, token) as client:
        changed = client.change(job, budget=changes)
        if resume:
            changed = client.resume(job)
        limits = changed.specification.budget.model_dump(exclude_none=True)
        said = (f"{name} {value}" for name, value in limits.items() if value)  # 0: no extra trials
        answer(changed, f"job {changed.id} is {changed.state}: {', '.join(said)}", as_json=as_json)


@app.command(cls=_TakesNegativeNumbers)
def priority(
    job: JobId,
    value: Annotated[int, typer.Argument(metavar="PRIORITY", min=-1000, max=1000, help="Higher goes first.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Changes the priority of a job, in the queue and on a cluster that jobs share."""
    with client_at(url, token) as client:
        changed = client.change(job, priority=value)
        words = f"job {changed.id} is {changed.state} with priority {changed.priority}"
        answer(changed, words, as_json=as_json)


@app.command(cls=_TakesNegativeNumbers)
def stop(job: JobId, trial: TrialNumber, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Cancels one trial of a job, at its next measurement; the job goes on."""
    with client_at(url, token) as client:
        stopped = client.stop_trial(job, trial)
        how = "is cancelled" if stopped.state == "cancelled" else "ends at its next measurement"
        answer(stopped, f"trial {trial} of job {job} {how}", as_json=as_json)


@app.command(cls=_TakesNegativeNumbers)
def retry(job: JobId, trial: TrialNumber, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Tries a pruned, failed or cancelled trial again, with the same config; reopens a finished job."""
    with client_at(url, token) as client:
        answer(client.retry_trial(job, trial), f"trial {trial} of job {job} is queued", as_json=as_json)


@app.command("try")
def try_(
    job: JobId,
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE", help="A parameter's value, e.g. lr=0.01; else its default.", show_default=False
        ),
    ] = None,
    setting: SetOption = None,
    phase: Annotated[str, typer.Option(help="search or baseline.")] = "search",
    optimizer: Annotated[str | None, typer.Option(help="The baseline's optimizer, where the job has several.")] = None,
    beyond_bounds: Annotated[
        bool, typer.Option("--beyond-bounds", help="Numbers may lie beyond the ranges of the search space.")
    ] = False,
    idempotency_key: Annotated[
        str | None, typer.Option(help="A retry with the same key proposes no second trial.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Tries a config of your own next, in addition to the job's budget; reopens a finished job."""
    from service.cli.job_file import read_values
    from service.domain import Phase

    if phase not in (Phase.SEARCH, Phase.BASELINE):
        raise typer.BadParameter(f"must be search or baseline, got {phase!r}", param_hint="--phase")
    parameters = read_values([*(given or []), *(setting or [])])
    with client_at(url, token) as client:
        trial = client.propose_trial(
            job,
            parameters,
            phase=Phase(phase),
            optimizer=optimizer,
            beyond_bounds=beyond_bounds,
            idempotency_key=idempotency_key,
        )
        answer(trial, f"trial {trial.number} of job {job} is queued", as_json=as_json)
