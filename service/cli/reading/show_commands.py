"""Commands that show a job and its trials: `show`, `trials`, `trial`."""

from __future__ import annotations

from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.asking import (
    DEFAULT_URL,
    AsJson,
    JobId,
    Token,
    TrialNumber,
    Url,
    client_at,
    say,
    say_json,
    say_json_list,
    say_prose,
)
from service.domain import Phase, TrialState

if TYPE_CHECKING:
    from service.api.schemas.jobs import JobRead
    from service.api.schemas.trials import TrialRead
    from service.client import Client

app = typer.Typer()


@app.command()
def show(job: JobId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Shows a job: its state, progress, budget, verdict, the best config so far, and what to mend."""
    from service.cli import terminal

    with client_at(url, token) as client:
        found = client.job(job)
        if as_json:
            say_json(found)
            return
        console = terminal.new_console()
        terminal.show(console, terminal.progress_panel(found))
        is_recommended = _say_best(client, found)
        _say_health(client, found)
        at = f"{url.rstrip('/')}/jobs/{found.id}"
        say("")
        say(f"page     {at}")
        say(f"trials   shampoo-tuner trials {found.id}")
        if found.progress.trials.get(TrialState.FAILED):
            say(f"failed   shampoo-tuner trials {found.id} --state failed")
            say(f"why      shampoo-tuner trial {found.id} NUMBER")
        if is_recommended:
            say(f"config   shampoo-tuner recommend --job {found.id}")
        if not found.state.is_final:
            say(f"follow   shampoo-tuner watch {found.id}")


@app.command()
def trials(
    job: JobId,
    state: Annotated[
        list[TrialState] | None,
        typer.Option(metavar="STATE", help=f"Only trials in this state: {', '.join(TrialState)}. Repeatable."),
    ] = None,
    phase: Annotated[
        Phase | None, typer.Option(metavar="PHASE", help=f"Only trials of this phase: {', '.join(Phase)}.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only trials with this value, e.g. lr=1e-4..1e-2. Repeatable."),
    ] = None,
    value: Annotated[
        str | None, typer.Option(metavar="RANGE", help="Only trials with such a value of the objective, e.g. ..0.3")
    ] = None,
    order_by: Annotated[
        str,
        typer.Option(
            help="`value`: the best first; `number`, `state`, `phase`, `step`, `seconds`, or a parameter: "
            "`parameter.lr`; with a minus before it, descending."
        ),
    ] = "number",
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many. Default: all.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Lists a job's trials."""
    from service.cli import terminal
    from service.cli.reading.trials_table import trials_table

    with client_at(url, token) as client:
        objective = client.job(job).objectives[0]
        order = "-value" if order_by == "value" and objective.direction == "maximize" else order_by
        asked = client.trials(
            job, states=state or (), phase=phase, parameters=parameter or (), value=value, order_by=order
        )
        found = list(islice(asked, limit))
    if as_json:
        say_json_list(found)
    elif found:
        console = terminal.new_console()
        terminal.show(console, trials_table(found, metric=objective.metric, width=console.width))
    else:
        say("no trials", err=True)


@app.command()
def trial(job: JobId, trial: TrialNumber, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Shows one trial: its state, what it measured, its parameters, its curve."""
    from service.cli import terminal
    from service.cli.reading.trials_table import sparkline, trial_state
    from service.evidence.in_words.wording import duration, measured_words, number

    with client_at(url, token) as client:
        found = client.trial(job, trial)
        if as_json:
            say_json(found)
            return
        of_job = client.job(job)
        metric = of_job.objectives[0].metric
        # A trial without measurements knows no metric.
        measured = client.measurements(job, trial, metric=[metric], max_points=200) if found.step else ()
        curve = [float("nan") if (value := one.metrics.get(metric)) is None else value for one in measured]
    rows = [
        ("trial", f"{found.number} of job {job}"),
        ("state", trial_state(found)),
        *(("" if place else "why", sentence) for place, sentence in enumerate(_account(of_job, found))),
        *([("detail", found.detail)] if found.detail else []),
        ("phase", f"{found.phase}{', proposed' if found.proposed else ''}"),
        ("steps", f"{found.step}/{found.num_steps}"),
        ("time", duration(found.seconds) if found.seconds else "none yet"),
    ]
    if found.confirms is not None:
        rows.append(("repeats", f"trial {found.confirms}, with a new seed"))
    if found.forked_from is not None:
        rows.append(("fork of", f"trial {found.forked_from} at step {found.forked_at_step}"))
    if found.runs > 1:
        rows.append(("started", f"{found.runs} times"))
    if found.note:
        rows.append(("note", found.note))
    measured_last = [(name, measured_words(name, value)) for name, value in found.metrics.items()]
    rows += [row for row in measured_last if row[0] == metric]
    if curve:
        rows.append((f"{metric}, curve", sparkline(curve)))
    rows += [
        (name, number(value) if isinstance(value, float) else str(value)) for name, value in found.parameters.items()
    ]
    rows += [row for row in measured_last if row[0] != metric]
    console = terminal.new_console()
    terminal.show(console, terminal.facts(rows))
    for line in found.last_lines:
        say(f"| {line}")
    say("")
    say(f"config   shampoo-tuner recommend --job {job} --trial {trial}")
    say(f"output   shampoo-tuner logs {job} {trial}")


def _say_health(client: Client, job: JobRead) -> None:
    """Prints what is found about the job, each with what to do."""
    for card in client.health(job.id):
        say("")
        say_prose(f"{card.severity.capitalize()}: {card.sentence}")
        say_prose(card.advice)


def _account(job: JobRead, trial: TrialRead) -> list[str]:
    """Tells what became of a trial, why, and what to do."""
    from service.evidence.in_words.trial_words import account_of, facts_of

    account = account_of(facts_of(trial, job.state))
    return [f"{account.headline}.", *account.why, *account.advice]


def _say_best(client: Client, job: JobRead) -> bool:
    """Prints the verdict once there is one, and the parameters of the best trial. True: a config is recommended."""
    from service.cli.reading.trials_table import parameters_words
    from service.client import ApiError
    from service.evidence.in_words.words import evidence_lines

    try:
        lines = evidence_lines(client.recommendation(job.id).evidence)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        lines = []
    if lines:
        say("")
        for line in lines:
            say_prose(line)
    if job.progress.best is not None:
        best = client.trial(job.id, job.progress.best.number)
        say("")
        so_far = "" if job.state.is_final else " so far"
        say_prose(f"best{so_far}, trial {best.number}: {parameters_words(best)}")
    return bool(lines)
