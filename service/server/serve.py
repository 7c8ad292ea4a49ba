"""Processes: the HTTP server in this one, and a worker beside it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from service.access.tokens import read_token_text, store_file_token
from service.api.events import EventFeed
from service.errors import ServiceError
from service.hosts import host_and_port
from service.server.app import create_app
from service.server.connections import PatientProtocol, PatientServerState
from service.server.worker_supervisor import WorkerSupervisor
from service.settings import ENV_PREFIX, Access, Settings
from service.store.migrate import current_revision, migrate, why_not_migrated
from service.store.repositories import TokenRepository
from service.store.session import DATABASE_ERRORS, Database, why_not_supported
from trainers.processes.starting import kept_warm, warm_up
from trainers.workloads.describe import environment_of_children

SHUTDOWN_SECONDS = 5
"""Requests still running after so long are cut off."""
WARM_BESIDE_WORKER_SECONDS = 6.0
"""The warm process starts so long after a worker beside the API, which imports Ray and torch before it can run a job:
by judgement."""

logger = logging.getLogger(__name__)


class CannotServe(ServiceError):
    """The service cannot start."""


def serve(settings: Settings, *, with_worker: bool, tell: Callable[[str], None]) -> None:
    """Runs the API, and a worker unless told otherwise, until SIGINT or SIGTERM.

    Args:
        with_worker: also migrates the database: this process is the whole service then.
        tell: is called with the service's address once it answers.

    Raises:
        CannotServe: the address is taken, the data directory cannot be written to, the database is out of reach, or
            other machines could ask and nobody has a token.
    """
    listener = _listen(settings.host, settings.port)
    with contextlib.closing(listener), contextlib.closing(open_database(settings)) as database:
        if with_worker:
            make_directories(settings, with_checkpoints=False)  # the worker sees to theirs
            migrate_database(database)
        if not_migrated := why_not_migrated(database):
            # Served all the same: whoever migrates may be about to. Until then nobody has a token.
            logger.warning(not_migrated)
        else:
            close_doors(settings, database)
        with kept_warm(environment_of_children()):
            asyncio.run(_run(settings, database, listener, with_worker=with_worker, tell=tell))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Now, not when the server starts: of two services only one may hold the address.
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        why = error.strerror or str(error)
        raise CannotServe(
            f"cannot listen on {host_and_port(host, port)}: {why}; --port and --host choose another address"
        ) from error
    return listener


def make_directories(settings: Settings, *, with_checkpoints: bool) -> None:
    """Makes the data directory, and that of checkpoints where it is a path.

    Raises:
        CannotServe: one of them cannot be made, or written to; on a full disk both can.
    """
    place = settings.checkpoint_place
    _make_directory("data", settings.data_dir, f"--data-dir or {ENV_PREFIX}DATA_DIR")
    if with_checkpoints and settings.checkpoint_directory is not None and isinstance(place, Path):
        _make_directory("checkpoint", place, f"{ENV_PREFIX}CHECKPOINT_DIRECTORY")


def _make_directory(kind: str, directory: Path, setting: str) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise CannotServe(f"cannot make the {kind} directory {directory}: {why}; {setting} names another") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(directory).f_flag & os.ST_RDONLY
        why = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
        raise CannotServe(f"cannot write to the {kind} directory {directory}: {why}; {setting} names another")


def open_database(settings: Settings) -> Database:
    """The database of the settings; nothing is asked of it yet.

    Raises:
        CannotServe: its URL is of no database that is supported.
    """
    url = settings.resolved_database_url
    if not_supported := why_not_supported(url):
        raise CannotServe(not_supported)
    return Database(url, num_connections=settings.database_connections)


def migrate_database(database: Database) -> str | None:
    """Brings the database to this version's schema, and makes an embedded one that is not there; the revision it is at
    then.

    Raises:
        CannotServe: the database is out of reach, or its file cannot be made.
        DatabaseIsNewer: it is of a newer version.
        LogWithoutDatabase: its file may only have been moved away.
    """
    try:
        with faults_told(database):
            migrate(database)
            return current_revision(database)
    except OSError as error:
        raise CannotServe(f"cannot make {error.filename}: {error.strerror or error}") from error


@contextlib.contextmanager
def faults_told(database: Database) -> Iterator[None]:
    """Wraps what a person has a database do.

    Raises:
        CannotServe: in place of an error of the database.
    """
    try:
        yield
    except DATABASE_ERRORS as error:
        why = str(getattr(error, "orig", error)).strip()
        raise CannotServe(f"cannot use the database {database.engine.url!r}: {why}") from error


def close_doors(settings: Settings, database: Database) -> None:
    """Registers the token of the settings' file, and checks that there is a token if one is required.

    Raises:
        CannotServe: the file holds no token, or nobody has one.
    """
    try:
        if settings.admin_token_file is not None:
            know_file_token(settings.admin_token_file, database)
        if settings.access is Access.OPEN or (settings.access is Access.AUTO and settings.only_this_machine_can_ask):
            return
        with database.reading() as session:
            if TokenRepository(session).exists():
                return
    except DATABASE_ERRORS:
        logger.warning("the database is unavailable: whether somebody has a token is not known yet")
        return
    why = (
        f"{ENV_PREFIX}ACCESS=tokens asks for tokens"
        if settings.only_this_machine_can_ask
        else "other machines can ask this service"
    )
    raise CannotServe(
        f"{why}, and nobody has a token: `shampoo-tuner token create NAME --scope admin` makes the first one, or "
        f"{ENV_PREFIX}ADMIN_TOKEN_FILE names a file with one ({ENV_PREFIX}ACCESS=open lets anybody in: only behind a "
        "proxy that asks who it is)"
    )


def know_file_token(path: Path, database: Database) -> None:
    """Registers the token of a file in the database.

    Raises:
        CannotServe: the file cannot be read, or holds no token.
    """
    try:
        text = read_token_text(path.read_text(encoding="ascii").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise CannotServe(f"{ENV_PREFIX}ADMIN_TOKEN_FILE: cannot read {path}: {error}") from error
    if text is None:
        raise CannotServe(
            f"{ENV_PREFIX}ADMIN_TOKEN_FILE: {path} holds no token; `shampoo-tuner token generate` prints one"
        )
    with database.writing() as session:
        if store_file_token(session, text, now=database.now()):
            logger.info("the token %s of %s has every scope", text.prefix, path)


class Server(uvicorn.Server):
    """Serves the application; leaves signals to its caller, and ends streams of events before it waits for requests.

    When it has stopped, no connection is left: a browser would send its next request on one that nobody reads, and wait
    for ever where another server has the address by then.
    """

    def __init__(self, app: FastAPI) -> None:
        settings: Settings = app.state.settings
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            http=PatientProtocol,
            # Where no proxy can stand in front, whoever asks would name an address, and thereby a limit, of its choice.
            proxy_headers=not settings.only_this_machine_can_ask,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        super().__init__(config)
        self._state = self.server_state = PatientServerState()
        self._feed: EventFeed = app.state.feed

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._feed.close()
        self._state.is_stopping = True
        await super().shutdown(sockets)
        for connection in list(self._state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # a transport closes its socket in the loop's next turn


async def _run(
    settings: Settings, database: Database, listener: socket.socket, *, with_worker: bool, tell: Callable[[str], None]
) -> None:
    trains_here = with_worker and settings.cluster_address is None
    supervisor = WorkerSupervisor(settings, database) if with_worker else None
    own_worker = None if supervisor is None else supervisor.why_there_is_none
    server = Server(create_app(settings, database, data_are_here=trains_here, why_no_worker=own_worker))

    def stop() -> None:
        if server.should_exit:
            server.force_exit = True  # asked twice
        server.should_exit = True
        if supervisor is not None:
            supervisor.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(server.serve(sockets=[listener]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        # What is there now stays. Collections that go through 100,000 objects of libraries each time took a third of a
        # chart's time, and held up every other request meanwhile.
        gc.freeze()
        host, port = listener.getsockname()[:2]
        if settings.is_bound_to_all_addresses:
            host = "::1" if ":" in host else "127.0.0.1"  # no client can ask for all of them
        tell(f"http://{host_and_port(host, port)}")
        warm_after = settings.warm_after_seconds
        if warm_after is None:
            warm_after = WARM_BESIDE_WORKER_SECONDS if with_worker else 0.0
        loop.call_later(warm_after, loop.run_in_executor, None, warm_up)
        if supervisor is not None:
            tasks.create_task(supervisor.run())
        elif not_migrated := await asyncio.to_thread(why_not_migrated, database):
            logger.warning(not_migrated)  # served all the same: whoever migrates may be about to


def stop_when_stdin_ends() -> None:
    """Sends this process SIGTERM when its standard input ends: the process that started it is gone."""

    def watch() -> None:
        # Not sys.stdin: its lock, held here, would abort the interpreter's exit.
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="stop-with-stdin", daemon=True).start()
