"""The connections of the HTTP server: how many there are, and how long one may take to say what it wants.

Uvicorn closes a connection that is silent between two requests. It waits for ever for a client that sends its request a
byte at a time, or stops in the middle of it, and for one that does not take its answer.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from http import HTTPStatus
from typing import Any

import h11
from starlette.responses import Response
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from service.api.problems import MEDIA_TYPE, headers_too_slow, malformed_http
from service.hosts import address_of_peer, holder_of
from service.server.body_limit import BODY_SECONDS, LARGER_BODIES

HEADER_SECONDS = 15.0
"""Longest time from the moment a request may begin, that is from the connection on or the answer before, to its last
header."""
GRACE_SECONDS = 5.0
"""Time beyond that of a body, which is answered; then the connection is closed, as that of an answered request whose
body does not end."""
UNREAD_SECONDS = 60.0
"""Time in which a client must take something of an answer that is waiting for it. The system takes more of an answer
only once a part of its own buffer is free, so who reads a few bytes now and then takes nothing. An answer as such has
no limit of time: one may be of gigabytes, on a slow line."""
MOST_CONNECTIONS = 1000
"""Most connections of a process, by judgement: twice the streams that it takes."""
FEW = 0.5
"""Share of the connections of whoever has most; by judgement: those of two that have about as many stay."""
SPARE_FILES = 100
"""File descriptors that are left for the database and processes."""

_logger = logging.getLogger("uvicorn.error.requests")
# Uvicorn warns of each request that is no HTTP, or asks for a WebSocket: whoever reaches the port could fill the log.
_logger.setLevel(logging.ERROR)


def max_connections() -> int:
    """The connections that are accepted at once, by what this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, soft - SPARE_FILES))


class PatientServerState(ServerState):
    """Uvicorn's state of a server, with whether it stops."""

    is_stopping = False


class OneLength(h11.Connection):
    """A connection on which no request tells the length of its body twice.

    Where both `Content-Length` and `Transfer-Encoding` are given, h11 goes by the latter, and reads on. A proxy in
    front that goes by the other takes what this service answers as a second request for a part of the first one's body,
    and so gives somebody an answer that is not theirs. HTTP has both refused, or the connection closed (RFC 9112,
    section 6.1).
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        return event


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
        self.logger = _logger
        self.conn = OneLength(h11.SERVER)
        self._server_state = server_state
        self._awaited: tuple[object, object] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._num_unread = 0
        self._holder: str | None = None
        """Of its address, once it is known."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        super().connection_made(transport)
        if self.client is not None:  # by this spelling uvicorn knows the proxies whose `X-Forwarded-For` counts
            host, port = self.client
            address = address_of_peer(host)
            self.client = (address or host, port)
            self._holder = host if address is None else holder_of(address)
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

    def pause_writing(self) -> None:
        """Called by the transport, as soon as much of an answer is waiting for the client."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_awaiting_reader()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()
        self._stop_awaiting_reader()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP; where an answer has begun, the connection just ends."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(malformed_http())
        self.transport.close()

    def _send(self, answer: Response) -> None:
        """Sends an answer to what is no request for the application."""
        body, reason = bytes(answer.body), HTTPStatus(answer.status_code).phrase.encode()
        headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=answer.status_code, headers=headers, reason=reason),
            h11.Data(data=body),
        ):
            self.transport.write(self.conn.send(event) or b"")

    @property
    def _is_stopping(self) -> bool:
        return isinstance(self._server_state, PatientServerState) and self._server_state.is_stopping

    def _make_room(self) -> bool:
        """Closes a connection on which nothing goes on, or else one of a crowd's; False: there is none such.

        Else whoever opens as many as are accepted, and says or reads nothing, would keep everybody out. It is one of
        whoever has most of them, this one counted, so that nobody can take the place of all others; else anybody's.
        Where each of them is being answered, whoever has most by far loses one to whoever has few.
        """
        all_of_them = [one for one in self.connections if isinstance(one, PatientProtocol)]
        counts = Counter(one._holder for one in all_of_them)
        most, others = max(counts.values()), [one for one in all_of_them if one is not self]
        crowd = [one for one in others if counts[one._holder] == most]
        if self._close_one_of(crowd) or self._close_one_of(others):
            return True
        if counts[self._holder] > most * FEW:
            return False
        self._close(crowd[0])
        return True

    def _close_one_of(self, others: list[PatientProtocol]) -> bool:
        """Closes the connection that has waited longest for a request, or else has been longest at its body, or else
        has longest not read its answer; False: there is none such."""
        idle = {one: one._deadline for one in others if one.conn.their_state is h11.IDLE}
        sending = {one: one._deadline for one in others if one.conn.their_state is h11.SEND_BODY}
        unread = {one: one._unread for one in others}
        for waiting in (idle, sending, unread):
            deadlines = {one: deadline.when() for one, deadline in waiting.items() if deadline is not None}
            if deadlines:
                self._close(min(deadlines, key=deadlines.__getitem__))
                return True
        return False

    def _close(self, other: PatientProtocol) -> None:
        other._stop_watching()
        other.transport.abort()
        self.connections.discard(other)  # now: others may be accepted in this turn of the loop

    def _watch(self) -> None:
        """Sets the deadline of what the client is sending, at which the connection closes."""
        state = self.conn.their_state
        awaited = (state, self.cycle) if state in (h11.IDLE, h11.SEND_BODY) else None
        if awaited == self._awaited:
            return
        self._stop_watching()
        self._awaited = awaited
        if awaited is not None and not self.transport.is_closing():
            if state is h11.IDLE:
                self._deadline = self.loop.call_later(HEADER_SECONDS, self._leave_headers)
            else:
                self._deadline = self.loop.call_later(self._body_seconds() + GRACE_SECONDS, self.transport.abort)

    def _leave_headers(self) -> None:
        """Ends a connection on which no request has come in time; if a part of one has, its client is told."""
        part, _ = self.conn.trailing_data
        if part and self.conn.our_state is h11.IDLE:
            self._send(headers_too_slow(HEADER_SECONDS))
            self.transport.close()
        else:
            self.transport.abort()

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _body_seconds(self) -> float:
        """The seconds that the body which is coming may take."""
        limit = LARGER_BODIES.get(self.scope["path"])
        return BODY_SECONDS if limit is None else limit.max_seconds

    def _await_reader(self) -> None:
        """Sets the deadline by which the client must read some of what is waiting, or the connection closes."""
        self._num_unread = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self._look_at_reader)

    def _look_at_reader(self) -> None:
        if self.transport.get_write_buffer_size() < self._num_unread:
            self._await_reader()
        else:
            self.transport.abort()

    def _stop_awaiting_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
