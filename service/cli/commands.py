"""`shampoo-tuner`: the service's processes, and its client. Commands import what they need, so that help is quick."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from service.cli.workload_commands import app as workload_app
from service.errors import ServiceError
from service.inert import inert, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from service.api.schemas.jobs import JobRead, RecommendationRead, TrialConfigRead
    from service.client import Client
    from service.settings import Settings

INTERRUPTED = 130

_NEGATIVE_NUMBER = re.compile(r"-\d+")


class BadSetting(ServiceError):
    """An environment variable or an option has an impossible value."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Runs a command; an error meant for the user becomes one line on standard error, and exit status 1."""
        try:
            return super().invoke(ctx)
        except ServiceError as error:
            _say(f"shampoo-tuner: {error}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error


class _TakesNegativeNumbers(TyperCommand):
    """A command whose arguments may be negative numbers, which are no options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Where one of `args` is a negative number, what looks like an option and is none is an argument."""
        ctx.ignore_unknown_options = any(_NEGATIVE_NUMBER.fullmatch(given) for given in args)
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Commands,
    help="Finds the Shampoo configuration that fits your model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(workload_app, name="workload")

Host = Annotated[str | None, typer.Option(help="Address to listen on; 127.0.0.1 if not given.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="8730 if not given; 0: any free port.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Holds the embedded database, checkpoints, logs; by default in your home."),
]
DatabaseUrl = Annotated[str | None, typer.Option(help="sqlite:///... or postgresql+psycopg://...; else embedded.")]
Url = Annotated[str, typer.Option(envvar="SHAMPOO_TUNER_URL", help="The service's address.")]
StopWithStdin = Annotated[
    bool, typer.Option("--stop-with-stdin", hidden=True, help="Stop when whoever started this is gone.")
]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id.")]
TrialNumber = Annotated[int, typer.Argument(metavar="TRIAL", min=0, help="The trial's number.")]
DEFAULT_URL = "http://127.0.0.1:8730"


@app.command()
def serve(
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    stop_with_stdin: StopWithStdin = False,
) -> None:
    """Runs everything: API, dashboard and one worker; migrates the database. Ctrl-C stops it."""
    if stop_with_stdin:
        from service.server.serve import stop_when_stdin_ends

        stop_when_stdin_ends()
    _serve(_settings(host=host, port=port, data_dir=data_dir, database_url=database_url), with_worker=True)


@app.command()
def api(host: Host = None, port: Port = None, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Runs the API and the dashboard alone, on a database that `migrate` has prepared."""
    _serve(_settings(host=host, port=port, data_dir=data_dir, database_url=database_url), with_worker=False)


@app.command()
def worker(
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    stop_with_stdin: StopWithStdin = False,
) -> None:
    """Runs jobs until it is stopped."""
    import contextlib
    import importlib
    import os

    from service.server.serve import CannotServe, open_database, stop_when_stdin_ends, why_not_migrated

    settings = _settings(data_dir=data_dir, database_url=database_url)
    if stop_with_stdin:
        stop_when_stdin_ends()
    with contextlib.closing(open_database(settings)) as database:
        if not_migrated := why_not_migrated(database):
            raise CannotServe(not_migrated)
    os.environ.update(settings.to_environment())
    # By name: an import statement would tie this module, which the slim image has too, to Ray and torch.
    importlib.import_module("service.scheduler.worker").main()


@app.command()
def migrate(data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Creates or upgrades the database's tables."""
    import contextlib

    from service.server.serve import migrate_database, open_database

    settings = _settings(data_dir=data_dir, database_url=database_url)
    with contextlib.closing(open_database(settings)) as database:
        revision = migrate_database(database)
        _say(f"{database.engine.url!r} is at revision {revision}")


@app.command()
def submit(
    job_file: Annotated[Path, typer.Argument(help="The job as YAML or JSON.")],
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="E.g. budget.num_trials=8. Repeatable.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call the job.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="Sent again, it makes no second job.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the job until it ends.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check it, and say what it would cost at most.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Submits a job."""
    from service.cli import terminal
    from service.cli.job_file import apply_settings, read_job_file

    content = apply_settings(read_job_file(job_file), setting or [])
    with _client(url) as client:
        if dry_run:
            for line in terminal.estimate_lines(client.estimate(content)):
                _say(line)
            return
        job = client.submit(content, name=name, idempotency_key=idempotency_key)
        if not watch:
            _say(job.id)
            return
        _say(f"job {job.id}: {url.rstrip('/')}/jobs/{job.id}")
        _watch(client, job.id)


@app.command()
def jobs(
    state: Annotated[list[str] | None, typer.Option(help="Only jobs in this state. Repeatable.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only jobs of this workload.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many.")] = 20,
    url: Url = DEFAULT_URL,
) -> None:
    """Lists jobs, newest first."""
    from itertools import islice

    from service.cli import terminal
    from service.domain import JobState

    try:
        states = [JobState(given) for given in state or ()]
    except ValueError as error:
        raise typer.BadParameter(f"{error}; known: {', '.join(JobState)}", param_hint="--state") from error
    with _client(url) as client:
        found = list(islice(client.jobs(states=states, workload=workload), limit))
    if found:
        console = _console()
        console.print(terminal.jobs_table(found, width=console.width))
    else:
        _say("no jobs", err=True)


@app.command()
def watch(job: JobId, url: Url = DEFAULT_URL) -> None:
    """Follows a job until it ends. Exit status 0: it succeeded."""
    with _client(url) as client:
        _watch(client, job)


@app.command()
def cancel(job: JobId, url: Url = DEFAULT_URL) -> None:
    """Cancels a job."""
    with _client(url) as client:
        _say(f"job {client.cancel(job).id} is cancelled")


@app.command()
def pause(job: JobId, url: Url = DEFAULT_URL) -> None:
    """Pauses a job; its trials keep their checkpoints."""
    with _client(url) as client:
        paused = client.pause(job)
        _say(f"job {paused.id} {'is paused' if paused.state == 'paused' else 'pauses: its run ends'}")


@app.command()
def resume(job: JobId, url: Url = DEFAULT_URL) -> None:
    """Goes on with a paused job, or a finished one whose budget is not spent."""
    with _client(url) as client:
        _say(f"job {client.resume(job).id} goes on")


@app.command()
def budget(
    job: JobId,
    setting: Annotated[list[str], typer.Argument(metavar="FIELD=VALUE...", help="E.g. num_trials=40.")],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with it if the job has finished or is paused.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Changes a job's budget, also while it runs; null: no limit."""
    from service.cli.job_file import apply_settings

    changes = apply_settings({}, setting)
    with _client(url) as client:
        changed = client.change(job, budget=changes)
        if resume:
            changed = client.resume(job)
        limits = changed.specification.budget.model_dump(exclude_none=True)
        said = (f"{name} {value}" for name, value in limits.items() if value)  # 0: no extra trials
        _say(f"job {changed.id} is {changed.state}: {', '.join(said)}")


@app.command(cls=_TakesNegativeNumbers)
def priority(
    job: JobId,
    value: Annotated[int, typer.Argument(metavar="PRIORITY", min=-1000, max=1000, help="Higher goes first.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Changes how soon a job's turn comes, in the queue and on a cluster that jobs share."""
    with _client(url) as client:
        changed = client.change(job, priority=value)
        _say(f"job {changed.id} is {changed.state} with priority {changed.priority}")


@app.command(cls=_TakesNegativeNumbers)
def stop(job: JobId, trial: TrialNumber, url: Url = DEFAULT_URL) -> None:
    """Cancels one trial of a job, at its next measurement; the job goes on."""
    with _client(url) as client:
        stopped = client.stop_trial(job, trial)
        how = "is cancelled" if stopped.state == "cancelled" else "ends at its next measurement"
        _say(f"trial {trial} of job {job} {how}")


@app.command(cls=_TakesNegativeNumbers)
def retry(job: JobId, trial: TrialNumber, url: Url = DEFAULT_URL) -> None:
    """Tries a pruned, failed or cancelled trial again, with the same config; a finished job thereby goes on."""
    with _client(url) as client:
        client.retry_trial(job, trial)
        _say(f"trial {trial} of job {job} is queued")


@app.command("try")
def try_(
    job: JobId,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="A parameter's value, e.g. lr=0.01; else its default. Repeatable."
        ),
    ] = None,
    phase: Annotated[str, typer.Option(help="search or baseline.")] = "search",
    idempotency_key: Annotated[str | None, typer.Option(help="Sent again, it proposes no second trial.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Has a config of your own tried next, beside the job's other trials; a finished job thereby goes on."""
    from service.cli.job_file import read_values
    from service.domain import Phase

    if phase not in (Phase.SEARCH, Phase.BASELINE):
        raise typer.BadParameter(f"{phase!r}; known: search, baseline", param_hint="--phase")
    parameters = read_values(setting or [])
    with _client(url) as client:
        trial = client.propose_trial(job, parameters, phase=Phase(phase), idempotency_key=idempotency_key)
        _say(f"trial {trial.number} of job {job} is queued")


@app.command()
def recommend(
    workload: Annotated[str | None, typer.Argument(help="Its name, e.g. digits-mlp.")] = None,
    job: Annotated[str | None, typer.Option(help="That of this job, instead of a workload's newest.")] = None,
    trial: Annotated[
        int | None, typer.Option(min=0, help="With --job: the config of this trial instead, one of its front perhaps.")
    ] = None,
    output: Annotated[str, typer.Option("--format", help="python, json or yaml.")] = "python",
    url: Url = DEFAULT_URL,
) -> None:
    """Prints the newest recommended config of a workload, or that of one job, with its evidence."""
    import json

    if output not in ("python", "json", "yaml"):
        raise typer.BadParameter(f"{output!r}; known: python, json, yaml", param_hint="--format")
    if trial is not None and job is None:
        raise typer.BadParameter("needs --job", param_hint="--trial")
    found: RecommendationRead | TrialConfigRead
    with _client(url) as client:
        if job is not None and workload is None:
            found = client.recommendation(job) if trial is None else client.trial_config(job, trial)
        elif workload is not None and job is None:
            found = _newest(client, workload)
        else:
            raise typer.BadParameter("give either a workload or --job", param_hint="WORKLOAD")
    if output == "python":
        typer.echo(inert(found.python))
        return
    content = found.model_dump(mode="json", exclude={"python"})
    if output == "json":
        typer.echo(_inert_data(lambda readable: json.dumps(content, indent=2, ensure_ascii=not readable)))
    else:
        import yaml

        typer.echo(
            _inert_data(lambda readable: yaml.safe_dump(content, sort_keys=False, allow_unicode=readable)).rstrip()
        )


@app.command()
def demo(
    workload: Annotated[
        str, typer.Option(help="What to train; digits-convnet and digits-mlp are as quick.")
    ] = "digits-autoencoder",
    trials: Annotated[int, typer.Option(min=2, help="Trials, the baseline's included.")] = 32,
    seeds: Annotated[int, typer.Option(min=0, help="New seeds that decide between the best; 0: one seed tells.")] = 3,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the service running until Ctrl-C.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="A new directory for its data.")] = None,
) -> None:
    """Tunes a small model on real data, from an empty database to a config to paste."""
    from service.cli.demo import run_demo

    if seeds == 1:
        raise typer.BadParameter("1 says nothing about the spread; 2 or more, or 0", param_hint="--seeds")
    succeeded = run_demo(
        workload=workload,
        num_trials=trials,
        num_seeds=seeds,
        keep=keep,
        directory=data_dir,
        settings=_settings(),
        console=_console(),
    )
    if not succeeded:
        raise typer.Exit(1)


def _settings(**options: object) -> Settings:
    from pydantic import ValidationError

    from service.settings import ENV_PREFIX, Settings
    from trainers.storage import masked

    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        got = masked(repr(first["input"]))  # a URI may hold a secret
        raise BadSetting(f"{field} ({ENV_PREFIX}{field.upper()}): {first['msg']}, got {got}") from None


def _serve(settings: Settings, *, with_worker: bool) -> None:
    import logging

    from service.hosts import ANY_HOST
    from service.server.serve import serve
    from service.settings import ENV_PREFIX

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of each look at the schema's revision

    def tell(address: str) -> None:
        _say(f"shampoo-tuner is at {address} (data in {settings.data_dir}; Ctrl-C stops it)")
        if settings.is_bound_to_all_addresses:
            hosts = "any host" if ANY_HOST in settings.allowed_hosts else ", ".join(settings.answered_hosts)
            _say(f"It answers requests to {hosts}; {ENV_PREFIX}ALLOWED_HOSTS adds others.")

    serve(settings, with_worker=with_worker, tell=tell)


def _client(url: str) -> Client:
    from service.client import Client

    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} must begin with http:// or https://", param_hint="--url")
    try:
        return Client(url)
    except ValueError as error:
        raise typer.BadParameter(f"{url!r}: {error}", param_hint="--url") from error


def _newest(client: Client, workload: str) -> RecommendationRead:
    for found in client.recommendations(workload):
        return found
    known = sorted(registered.name for registered in client.workloads())
    if workload not in known and ":" not in workload:  # one named module:Class is registered nowhere
        raise ServiceError(f"unknown workload {workload!r} (known: {', '.join(known)})")
    raise ServiceError(f"there is no recommendation for {workload!r} yet: no job with it has succeeded")


def _say(text: str, *, err: bool = False) -> None:
    """Prints one line; the terminal obeys nothing in it."""
    typer.echo(one_line(text), err=err)


def _inert_data(dump: Callable[[bool], str]) -> str:
    """Data as text that reads back the same. Where a character must be an escape, all that are not ASCII are, in the
    format's own way.

    Args:
        dump: gives the text; with False, in ASCII.
    """
    text = dump(True)
    return text if inert(text) == text else dump(False).replace("\x7f", "\\u007f")  # which is ASCII, too


def _console() -> Console:
    from rich.console import Console

    # Rich takes 80 columns where there is no terminal, and would cut ids.
    console = Console()
    return console if console.is_terminal else Console(width=200)


def _watch(client: Client, job_id: str) -> None:
    from service.cli import terminal
    from service.domain import JobState
    from service.evidence.words import evidence_lines

    try:
        job: JobRead = terminal.watch(client, job_id, _console())
    except KeyboardInterrupt:
        typer.echo(err=True)
        _say(
            f"job {job_id} goes on; `shampoo-tuner watch {job_id}` shows it again, "
            f"`shampoo-tuner cancel {job_id}` ends it",
            err=True,
        )
        raise
    if job.state is not JobState.SUCCEEDED:
        raise ServiceError(f"job {job.id} {job.state}{f': {job.failure}' if job.failure else ''}")
    recommendation = client.recommendation(job.id)
    for line in evidence_lines(recommendation.evidence):
        _say(line)
    _say(f"`shampoo-tuner recommend --job {job.id}` prints the config.")


def main() -> None:
    """The console script."""
    app(prog_name="shampoo-tuner")
