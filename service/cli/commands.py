"""`shampoo-tuner`: the service's processes, and its client. Commands import what they need, so that help is quick."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.nearest import did_you_mean
from service.cli.asking import (
    DEFAULT_URL,
    AsJson,
    JobId,
    Token,
    Url,
    answer,
    checking_job,
    client_at,
    may_be_submitted,
    page_of,
    say,
    say_json,
    say_json_line,
    say_json_list,
    say_prose,
    say_warnings,
    say_where,
)
from service.cli.code_commands import app as code_app
from service.cli.export_commands import app as export_app
from service.cli.external_commands import app as external_app
from service.cli.fingerprint_command import app as fingerprint_app
from service.cli.import_commands import app as import_app
from service.cli.operating.access_commands import app as access_app
from service.cli.operating.backup_commands import app as backup_app
from service.cli.operating.here import read_settings
from service.cli.operating.process_commands import app as process_app
from service.cli.reading.catalogue_commands import app as catalogue_app
from service.cli.reading.insights_command import app as insights_app
from service.cli.reading.recommendation_commands import app as recommendation_app
from service.cli.reading.reproduce_command import app as reproduce_app
from service.cli.reading.show_commands import app as show_app
from service.cli.setting_up.completion_command import PROGRAM
from service.cli.setting_up.completion_command import app as completion_app
from service.cli.setting_up.doctor_command import app as doctor_app
from service.cli.setting_up.help_texts import Commands, Panel, add_commands
from service.cli.setting_up.init_command import app as init_app
from service.cli.standard_output import writing_what_it_takes
from service.cli.steering_commands import app as steering_app
from service.cli.trial_commands import app as trial_app
from service.cli.webhook_commands import app as webhook_app
from service.cli.workload_commands import app as workload_app
from service.domain import Currency, JobState
from service.errors import ServiceError
from trainers.installation.command import INTERRUPTED
from trainers.installation.distribution import check_packages_here, version
from trainers.installation.extras import SERVICE_EXTRA, require

if TYPE_CHECKING:
    from service.api.schemas.jobs import JobRead
    from service.client import Client

SERVICE_GONE = 3
"""Exit status of those who watched a job, and know nothing of its end: the service did not answer any more."""
WATCH_OUTAGE_SECONDS = 600.0
"""Seconds that a service which is watched may be away: for a new version, on another machine."""


_LISTS = {"job-not-found": "jobs", "trial-not-found": "trials JOB"}
"""The command that lists what was looked for in vain, by what the service calls that."""


def _hint(error: ServiceError) -> str:
    """The command that lists what there is, in place of what there is not."""
    from service.client import ApiError

    listing = _LISTS.get(error.problem.type.rpartition(":")[2]) if isinstance(error, ApiError) else None
    return f"; `shampoo-tuner {listing}` lists those there are" if listing else ""


def _line_of(error: OSError) -> str:
    """A line that names the file, or else standard output, and what the system refused."""
    return f"shampoo-tuner: {error.filename or 'standard output'}: {error.strerror}"


class _Commands(Commands):
    def invoke(self, ctx: Any) -> Any:
        """Runs a command; an error meant for the user becomes a line on standard error for each of its faults, and exit
        status 1."""
        try:
            return super().invoke(ctx)
        except ServiceError as error:
            first, *others = error.faults
            say(
                f"shampoo-tuner: {len(others) + 1} faults:" if others else f"shampoo-tuner: {first}{_hint(error)}",
                err=True,
            )
            for fault in error.faults if others else ():
                say(f"  {fault}", err=True)
            raise typer.Exit(1) from error
        except OSError as error:
            if isinstance(error, BrokenPipeError) or error.errno is None:
                raise  # whoever reads a pipe has left; or it is no error of the system's
            say(_line_of(error), err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
job_app = typer.Typer()
demo_app = typer.Typer()


def _tell_version(wanted: bool) -> None:
    if wanted:
        say(version())
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Finds the Shampoo configuration that fits your model."""


@job_app.command()
def submit(
    job_file: Annotated[Path, typer.Argument(help="The job as YAML or JSON. -: from standard input.")],
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="E.g. budget.num_trials=8. Repeatable.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for the job.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="A retry with the same key submits no second job.")
    ] = None,
    code: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Send this directory, and import the job's module:Class from it.")
    ] = None,
    requirements: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --code: a requirements.txt of the packages that it needs.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job until it ends.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check it, and say what it would cost at most.")
    ] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Submits a job."""
    from service.cli.job_file import apply_settings, read_job_file, read_requirements, with_code
    from service.cli.job_file_faults import faults_in
    from service.specification.estimate_lines import estimate_lines

    read = read_job_file(job_file)
    content = apply_settings(read.content, setting or [])
    with client_at(url, token) as client, faults_in(read, setting or []):
        if code is not None:
            content = with_code(content, client.send_code(code).sha256)
        if requirements is not None:
            content = with_code(content, requirements=read_requirements(requirements))
        if dry_run:
            with checking_job():
                estimate = client.estimate(content)
            if as_json:
                say_json(estimate)
            else:
                for line in estimate_lines(estimate):
                    say_prose(line)
            if estimate.is_futile:
                raise typer.Exit(1)
            return
        with may_be_submitted():
            job = client.submit(content, name=name, idempotency_key=idempotency_key)
        say_warnings(job)
        if not watch:
            answer(job, job.id, as_json=as_json)
            if not as_json:
                say_where(job, url)
            return
        if not as_json:
            say(f"job {job.id}: {page_of(job.id, url)}")
        _watch(client, job.id, as_json=as_json)


@job_app.command()
def jobs(
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help=f"Only jobs in this state: {', '.join(JobState)}. Repeatable."),
    ] = None,
    workload: Annotated[str | None, typer.Option(help="Only jobs of this workload.")] = None,
    model: Annotated[str | None, typer.Option(help="Only jobs of the model with this name of yours.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only jobs with this tag, e.g. team=vision. Repeatable.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Only jobs with this in their name or notes.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Archived jobs, too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 20,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Lists jobs, newest first."""
    from functools import partial
    from itertools import islice

    from service.cli import terminal

    try:
        states = [JobState(given) for given in state or ()]
    except ValueError as error:
        given, known = ", ".join(state or ()), [each.value for each in JobState]
        told = f"{given!r}; known: {', '.join(known)}{did_you_mean(given, known)}"
        raise typer.BadParameter(told, param_hint="--state") from error
    with client_at(url, token) as client:
        asking = partial(client.jobs, states=states, workload=workload, model=model, tag=tag, text=text)
        asked = asking(archived="all" if archived else "false")
        found = list(islice(asked, limit))
        if as_json:
            say_json_list(found)
        elif found:
            console = terminal.new_console()
            terminal.show(console, terminal.jobs_table(found, width=console.width))
            if next(asked, None) is not None:
                say("there are older ones: --limit shows more", err=True)
        elif not archived and next(asking(archived="all"), None) is not None:
            say("no jobs but archived ones: --archived shows them", err=True)
        else:
            say("no jobs", err=True)


@job_app.command()
def watch(job: JobId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Follows a job until it ends; with --json, a line for each change.

    Waits for a service that is away, also at the start, for up to ten minutes, and says so on standard error.

    Exit status 0: it succeeded; 1: it failed or was cancelled; 3: the service did not answer for ten minutes, and the
    job may go on.
    """
    with client_at(url, token) as client:
        _watch(client, job, as_json=as_json)


@demo_app.command()
def demo(
    workload: Annotated[
        str, typer.Option(help="What to train; digits-convnet and digits-mlp are as quick.")
    ] = "digits-autoencoder",
    trials: Annotated[int, typer.Option(min=2, help="Trials, half of them the baseline's.")] = 20,
    seeds: Annotated[int, typer.Option(min=0, help="New seeds that decide between the best; 0: none do.")] = 8,
    currency: Annotated[
        Currency, typer.Option(help="Spent equally by the configs compared; seconds: all trials take equally long.")
    ] = Currency.STEPS,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the service running until Ctrl-C.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="A new directory for its data.")] = None,
) -> None:
    """Tunes a small model on real data, from an empty database to a config to paste."""
    from service.cli.operating.demo import run_demo
    from service.cli.terminal import new_console
    from service.private_files import keep_files_private

    require(SERVICE_EXTRA)
    check_packages_here()
    settings = read_settings(data_dir=data_dir)
    keep_files_private(settings)
    if seeds == 1:
        raise typer.BadParameter("1 seed says nothing about the spread: give 0, or 2 or more", param_hint="--seeds")
    succeeded = run_demo(
        workload=workload,
        num_trials=trials,
        num_seeds=seeds,
        currency=currency,
        keep=keep,
        directory=data_dir,
        settings=settings,
        console=new_console(),
    )
    if not succeeded:
        raise typer.Exit(1)


add_commands(app, job_app, Panel.FOLLOW)
add_commands(app, init_app, Panel.FOLLOW)
add_commands(app, show_app, Panel.FOLLOW)
add_commands(app, trial_app, Panel.FOLLOW)
add_commands(app, recommendation_app, Panel.ANSWER)
add_commands(app, reproduce_app, Panel.ANSWER)
add_commands(app, insights_app, Panel.ANSWER)
add_commands(app, export_app, Panel.ANSWER)
add_commands(app, steering_app, Panel.STEER)
add_commands(app, fingerprint_app, Panel.MODELS)
add_commands(app, catalogue_app, Panel.MODELS)
add_commands(app, code_app, Panel.MODELS, name="code")
add_commands(app, external_app, Panel.MODELS)
add_commands(app, import_app, Panel.MODELS)
add_commands(app, workload_app, Panel.MODELS, name="workload")
add_commands(app, demo_app, Panel.SERVICE)
add_commands(app, process_app, Panel.SERVICE)
add_commands(app, backup_app, Panel.SERVICE)
add_commands(app, doctor_app, Panel.SERVICE)
add_commands(app, completion_app, Panel.SERVICE)
add_commands(app, webhook_app, Panel.SERVICE, name="webhook")
add_commands(app, access_app, Panel.SERVICE)


def _watch(client: Client, job_id: str, *, as_json: bool) -> None:
    from service.cli.reading import watching
    from service.cli.terminal import new_console
    from service.client import ServiceUnreachable

    try:
        if as_json:
            ended = watching.follow(
                client,
                job_id,
                lambda job, _pace: say_json_line(job),
                outage_seconds=WATCH_OUTAGE_SECONDS,
            )
            if ended.state is not JobState.SUCCEEDED:
                raise typer.Exit(1)
            return
        ended = watching.watch(client, job_id, new_console(), outage_seconds=WATCH_OUTAGE_SECONDS)
        _say_how_it_ended(client, ended)
    except ServiceUnreachable as error:
        say(f"shampoo-tuner: {error}; job {job_id} may go on: `shampoo-tuner watch {job_id}` shows it again", err=True)
        raise typer.Exit(SERVICE_GONE) from error
    except KeyboardInterrupt:
        typer.echo(err=True)
        say(
            f"job {job_id} goes on; `shampoo-tuner watch {job_id}` shows it again, "
            f"`shampoo-tuner cancel {job_id}` ends it",
            err=True,
        )
        raise


def _say_how_it_ended(client: Client, job: JobRead) -> None:
    from service.evidence.in_words.words import evidence_lines

    if job.state is not JobState.SUCCEEDED:
        raise ServiceError(f"job {job.id} {job.state}{f': {job.failure}' if job.failure else ''}")
    recommendation = client.recommendation(job.id)
    for line in evidence_lines(recommendation.evidence):
        say_prose(line)
    say(f"`shampoo-tuner recommend --job {job.id}` prints the config.")


def main() -> None:
    """Runs the console script."""
    # Whoever starts it may ignore this signal, and processes inherit that: none would hear how others end.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with writing_what_it_takes():
        try:
            app(prog_name=PROGRAM)
        except OSError as error:  # of help and the version, which are printed before any command is run
            if error.errno is None:
                raise
            say(_line_of(error), err=True)
            sys.exit(1)
