"""`optuna-dashboard` on the jobs of a service."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import optuna_dashboard

from service.errors import ServiceError
from service.hosts import host_and_port, is_allowed, read_authority
from service.optuna_storage.job_storage import JobStorage
from service.store.repositories import TokenRepository
from service.store.session import Database

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


class AddressTaken(ServiceError):
    """The dashboard cannot listen where it was asked to."""


class TokensAreAsked(ServiceError):
    """The service asks for tokens, which the dashboard cannot."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection: browsers open some that they never use, and a single thread would wait for them."""

    daemon_threads = True


class _ServerOfIPv6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    def log_message(self, _format: str, *arguments: object) -> None:
        """Leaves out requests: an open page asks every few seconds."""


def serve(
    database_url: str,
    *,
    host: str,
    port: int,
    answered_hosts: Collection[str],
    is_open: bool,
    tell: Callable[[str], None],
) -> None:
    """Serves the dashboard until the process is interrupted.

    Args:
        port: 0: any free one.
        answered_hosts: names by which it may be asked, as `Settings.answered_hosts` has them: a page of another site
            could read all jobs by a name of its own that leads here (DNS rebinding).
        is_open: whether anybody who reaches it may see all projects, also where the service asks for tokens.
        tell: is called with the address once it answers.

    Raises:
        TokensAreAsked: somebody has one, and it is not open.
        NoDatabase: there is none at the URL, or it is of another version.
        AddressTaken: nothing can listen there.
    """
    storage = JobStorage(database_url)
    try:
        if not is_open and _has_tokens(database_url):
            raise TokensAreAsked(
                "this service asks for tokens, and Optuna's dashboard asks nobody: all users of this machine would see "
                "all projects; SHAMPOO_TUNER_ACCESS=open allows it"
            )
        application = _answering_to(answered_hosts, optuna_dashboard.wsgi(storage))
        with _listening(host, port, application) as server:
            tell(f"http://{host_and_port(host, server.server_port)}")
            server.serve_forever()
    finally:
        storage.remove_session()


def _has_tokens(database_url: str) -> bool:
    with closing(Database(database_url)) as database, database.reading() as session:
        return TokenRepository(session).exists()


def _listening(host: str, port: int, application: WSGIApplication) -> WSGIServer:
    server_class = _ServerOfIPv6 if ":" in host else _Server
    try:
        return make_server(host, port, application, server_class=server_class, handler_class=_Handler)
    except OSError as error:
        why = error.strerror or str(error)
        raise AddressTaken(
            f"cannot listen on {host_and_port(host, port)}: {why}; --port and --host choose another address"
        ) from error


def _answering_to(hosts: Collection[str], application: WSGIApplication) -> WSGIApplication:
    """The application for requests to one of these hosts, and a refusal for all others."""

    def answer(environment: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = read_authority(environment.get("HTTP_HOST", ""))
        if asked is not None and is_allowed(asked.host, hosts):
            return application(environment, start_response)
        status = HTTPStatus.MISDIRECTED_REQUEST
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain")])
        return [b"this dashboard does not answer to that host; SHAMPOO_TUNER_ALLOWED_HOSTS adds one\n"]

    return answer
