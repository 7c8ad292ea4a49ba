"""The connections of the HTTP server: how many there are, and how long one may take to say what it wants.

Uvicorn closes a connection that is silent between two requests. It waits for ever for one that has begun a request and
goes on a byte at a time, or not at all.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from service.api.problems import malformed_http
from service.hosts import address_of_peer
from service.server.body_limit import BODY_SECONDS

HEADER_SECONDS = 15.0
"""From the moment a request may begin, that is from the connection on or the answer before, to its last header."""
GRACE_SECONDS = 5.0
"""Beyond the time of a body, which is answered; then the connection is closed, as that of an answered request whose
body does not end."""
MOST_CONNECTIONS = 1000
SPARE_FILES = 100
"""File descriptors that are left for the database and processes."""


def max_connections() -> int:
    """The connections that are accepted at once, by what this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, soft - SPARE_FILES))


class PatientServerState(ServerState):
    """Uvicorn's state of a server, with whether it stops."""

    is_stopping = False


class PatientProtocol(H11Protocol):
    """Uvicorn's protocol with deadlines for what comes in, and problems instead of plain text."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._server_state = server_state
        self._awaited: tuple[object, object] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        super().connection_made(transport)
        if self.client is not None:  # by this spelling uvicorn knows the proxies whose `X-Forwarded-For` counts
            host, port = self.client
            self.client = (address_of_peer(host) or host, port)
        # Uvicorn closes what it has when it begins to stop; one that it was about to accept then, it would wait for.
        if self._is_stopping or (len(self.connections) > max_connections() and not self._make_room()):
            transport.abort()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP; where an answer has begun, the connection just ends."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = bytes(malformed_http().body)
            headers = [
                (b"content-type", b"application/problem+json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            for event in (h11.Response(status_code=400, headers=headers, reason=b"Bad Request"), h11.Data(data=body)):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _is_stopping(self) -> bool:
        return isinstance(self._server_state, PatientServerState) and self._server_state.is_stopping

    def _make_room(self) -> bool:
        """Closes the connection that has waited longest for a request; False: on each of them one goes on.

        Else whoever opens as many as are accepted, and says nothing, would keep everybody out.
        """
        waiting = [
            (one._deadline.when(), one)
            for one in self.connections
            if isinstance(one, PatientProtocol) and one._deadline is not None and one.conn.their_state is h11.IDLE
        ]
        if not waiting:
            return False
        _, longest = min(waiting, key=lambda found: found[0])
        longest._stop_watching()
        longest.transport.abort()
        self.connections.discard(longest)  # now, not in the loop's next turn: others may be accepted in this one
        return True

    def _watch(self) -> None:
        """Has the connection close at the deadline of what it is in the middle of saying."""
        state = self.conn.their_state
        awaited = (state, self.cycle) if state in (h11.IDLE, h11.SEND_BODY) else None
        if awaited == self._awaited:
            return
        self._stop_watching()
        self._awaited = awaited
        if awaited is not None and not self.transport.is_closing():
            seconds = HEADER_SECONDS if state is h11.IDLE else BODY_SECONDS + GRACE_SECONDS
            self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
