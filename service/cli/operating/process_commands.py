"""Commands that run the service's processes: API, worker, Optuna's dashboard, migrations of the database."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.asking import AsJson, answer, say
from service.cli.operating.here import BadSetting, DatabaseUrl, DataDir, read_settings
from trainers.installation.distribution import check_packages_here
from trainers.installation.extras import SERVICE_EXTRA, needing, require

if TYPE_CHECKING:
    from service.settings import Settings

STUDIES_EXTRA = "studies"

app = typer.Typer()

Host = Annotated[str | None, typer.Option(help="Address to listen on; 127.0.0.1 if not given.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="8730 if not given; 0: any free port.")]
AllowCode = Annotated[
    bool | None,
    typer.Option("--allow-code", help="Let jobs name workloads and samplers as module:Class, which is then imported."),
]
StopWithStdin = Annotated[
    bool, typer.Option("--stop-with-stdin", hidden=True, help="Stop when whoever started this is gone.")
]


@app.command()
def serve(
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    allow_code: AllowCode = None,
    stop_with_stdin: StopWithStdin = False,
) -> None:
    """Runs everything: API, dashboard and one worker; migrates the database. Ctrl-C stops it."""
    require(SERVICE_EXTRA)
    if stop_with_stdin:
        from service.server.serve import stop_when_stdin_ends

        stop_when_stdin_ends()
    settings = read_settings(host=host, port=port, data_dir=data_dir, database_url=database_url, allow_code=allow_code)
    _serve(settings, with_worker=True)


@app.command()
def api(
    host: Host = None,
    port: Port = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    allow_code: AllowCode = None,
) -> None:
    """Runs the API and the dashboard alone, on a database that `migrate` has prepared."""
    settings = read_settings(host=host, port=port, data_dir=data_dir, database_url=database_url, allow_code=allow_code)
    _serve(settings, with_worker=False)


@app.command()
def worker(
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    allow_code: AllowCode = None,
    stop_with_stdin: StopWithStdin = False,
) -> None:
    """Runs jobs until it is stopped."""
    import contextlib
    import importlib
    import os

    from service.private_files import keep_files_private
    from service.server.serve import CannotServe, make_directories, open_database, stop_when_stdin_ends
    from service.store.migrate import why_not_migrated

    require(SERVICE_EXTRA)
    check_packages_here()
    settings = read_settings(data_dir=data_dir, database_url=database_url, allow_code=allow_code)
    if stop_with_stdin:
        stop_when_stdin_ends()
    with contextlib.closing(open_database(settings)) as database:
        if not_migrated := why_not_migrated(database):
            raise CannotServe(not_migrated)
    make_directories(settings, with_checkpoints=True)
    os.environ.update(settings.to_environment())
    keep_files_private(settings)
    # By name: an import statement would tie this module, which the slim image has too, to Ray and torch.
    importlib.import_module("service.scheduler.worker").main()


@app.command("optuna-dashboard")
def optuna_dashboard(
    host: Host = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8080,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Shows all jobs in Optuna's own dashboard, read-only and live. Ctrl-C stops it."""
    import importlib

    settings = read_settings(host=host, data_dir=data_dir, database_url=database_url)
    if not settings.only_this_machine_can_ask and settings.access != "open":
        raise BadSetting(
            f"Optuna's dashboard asks nobody for a token: only this machine may reach it, not {settings.host}; "
            "SHAMPOO_TUNER_ACCESS=open allows it behind a proxy that asks who it is"
        )
    # By name, as the worker: the slim image does without Optuna.
    with needing(STUDIES_EXTRA):
        dashboard = importlib.import_module("service.optuna_storage.dashboard")
    dashboard.serve(
        settings.resolved_database_url,
        host=settings.host,
        port=port,
        answered_hosts=settings.answered_hosts,
        is_open=settings.access == "open",
        tell=lambda address: say(f"optuna-dashboard is at {address} (Ctrl-C stops it)"),
    )


@app.command()
def migrate(data_dir: DataDir = None, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Creates or upgrades the database's tables."""
    import contextlib

    from service.private_files import keep_files_private
    from service.server.serve import know_file_token, migrate_database, open_database

    settings = read_settings(data_dir=data_dir, database_url=database_url)
    keep_files_private(settings)
    with contextlib.closing(open_database(settings)) as database:
        revision = migrate_database(database)
        if settings.admin_token_file is not None:
            know_file_token(settings.admin_token_file, database)
        shown = repr(database.engine.url)  # without its password
        answer({"database_url": shown, "revision": revision}, f"{shown} is at revision {revision}", as_json=as_json)


def places_in_words(settings: Settings) -> str:
    """The places of a service's database, checkpoints and logs. The address of a database elsewhere may have a
    password, so it says only that the settings name one."""
    here = settings.data_dir.absolute()
    own, others = ["logs"], []
    if settings.checkpoint_directory is None:
        own.insert(0, "checkpoints")
    else:
        others.append(f"checkpoints in {settings.checkpoint_place}")
    if settings.database_url is None and settings.database_url_file is None:
        own.insert(0, "database")
    else:
        others.insert(0, "the database that its settings name")
    listed = f"{', '.join(own[:-1])} and {own[-1]}" if len(own) > 1 else own[0]
    return "; ".join([f"{listed} in {here}", *others])


def _serve(settings: Settings, *, with_worker: bool) -> None:
    import gc

    check_packages_here()

    gc.disable()  # what is imported stays: looking through it for garbage, again and again, takes a fifth of the start
    from service.hosts import ANY_HOST
    from service.monitoring.logs import set_up_logs
    from service.private_files import keep_files_private
    from service.server.serve import serve
    from service.settings import ENV_PREFIX

    gc.freeze()
    gc.enable()
    set_up_logs(settings.log_format)
    keep_files_private(settings)

    def tell(address: str) -> None:
        with suppress(OSError):  # standard output is closed, or a file on a full disk: that is no reason not to serve
            say(f"shampoo-tuner is at {address} ({places_in_words(settings)}; Ctrl-C stops it)")
            if settings.is_bound_to_all_addresses:
                hosts = "any host" if ANY_HOST in settings.allowed_hosts else ", ".join(settings.answered_hosts)
                say(f"It answers requests to {hosts}; {ENV_PREFIX}ALLOWED_HOSTS adds others.")

    serve(settings, with_worker=with_worker, tell=tell)
