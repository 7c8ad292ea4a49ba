"""Connections that say nothing, or say it slowly, or nothing that is HTTP; and streams of events without end."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import httpx
import pytest

from service.api import events
from service.api.capacity import Turns
from service.clock import utc_now
from service.errors import ServiceBusy
from service.monitoring.metrics import Metrics
from service.server import app, body_limit, connections
from service.store.session import Database
from tests.support.service.live import running
from tests.support.service.scenarios import submit
from tests.support.waiting import PATIENCE_SECONDS, wait_until

POST = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
LARGE = b"GET /vendor/swagger-ui/swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""Asks for more, a few times over, than a system buffers for a connection."""
SHORT = 0.3


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short deadlines."""
    monkeypatch.setattr(connections, "HEADER_SECONDS", SHORT)
    monkeypatch.setattr(connections, "BODY_SECONDS", SHORT)
    monkeypatch.setattr(connections, "GRACE_SECONDS", SHORT)
    monkeypatch.setattr(app, "BODY_SECONDS", SHORT)


@pytest.fixture
def url(sqlite_database: Database) -> Iterator[str]:
    with running(sqlite_database) as url:
        yield url


def _connect(url: str, *, source: str = "127.0.0.1") -> socket.socket:
    parts = urlsplit(url)
    address = (str(parts.hostname), int(parts.port or 0))
    return socket.create_connection(address, timeout=PATIENCE_SECONDS, source_address=(source, 0))


def _rest(connection: socket.socket) -> bytes:
    """Reads what still comes until the service closes the connection."""
    found = b""
    with connection:
        try:
            while chunk := connection.recv(65536):
                found += chunk
        except ConnectionResetError:
            pass
    return found


def _problem(answer: bytes) -> tuple[bytes, dict[str, object]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert b"connection: close" in head.lower()
    return head.split(b"\r\n")[0], json.loads(body)


@pytest.mark.usefixtures("short")
def test_a_body_that_does_not_come_is_answered_408(url: str) -> None:
    connection = _connect(url)
    connection.sendall(POST + b"{")
    status, problem = _problem(_rest(connection))
    assert status == b"HTTP/1.1 408 Request Timeout"
    assert problem["type"] == "urn:shampoo-tuner:problem:body-too-slow"
    assert problem["detail"] == f"body: must come within {SHORT} s"


@pytest.mark.usefixtures("short")
def test_headers_that_do_not_end_are_answered_408(url: str) -> None:
    connection = _connect(url)
    connection.sendall(POST.removesuffix(b"\r\n"))
    status, problem = _problem(_rest(connection))
    assert status == b"HTTP/1.1 408 Request Timeout"
    assert problem["type"] == "urn:shampoo-tuner:problem:headers-too-slow"
    assert problem["detail"] == f"the headers must come within {SHORT} s"


@pytest.mark.slow
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\nHost: loc", POST.replace(b"/v1/jobs", b"/v1/jobs/x/pause") + b"{"]
)
def test_a_connection_that_says_nothing_to_its_end_is_closed(url: str, said: bytes) -> None:
    """Also if it goes on byte by byte, and if it was answered before its body came."""
    began = time.monotonic()
    connection = _connect(url)
    connection.sendall(said)
    connection.settimeout(SHORT / 10)
    while True:
        assert time.monotonic() - began < PATIENCE_SECONDS
        try:
            if not connection.recv(65536):
                break
        except TimeoutError:
            try:
                connection.sendall(b"x" if b"HTTP" in said else b"G")
            except OSError:
                break
        except ConnectionResetError:
            break
    connection.close()


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_an_answer_may_take_longer_than_a_request(url: str, sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    with httpx.stream("GET", f"{url}/v1/jobs/{job_id}/events", trust_env=False, verify=False) as stream:
        lines = stream.iter_lines()
        next(lines)
        time.sleep(4 * SHORT)
        assert httpx.post(f"{url}/v1/jobs/{job_id}/cancel", trust_env=False, verify=False).status_code == 200
        assert any("cancelled" in line for line in lines)


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        # A proxy that goes by the length takes the second request for the end of the first one.
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 46\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_problem_and_fills_no_log(url: str, said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    connection = _connect(url)
    connection.sendall(said)
    status, problem = _problem(_rest(connection))
    assert (status, problem["status"]) == (b"HTTP/1.1 400 Bad Request", 400)
    assert httpx.get(f"{url}/healthz", trust_env=False, verify=False).status_code == 200
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_connections_beyond_the_most_take_the_place_of_those_that_ask_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 2)
    asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        silent = _connect(url)
        stack.enter_context(_connect(url)).sendall(POST)  # its body is to come
        last = stack.enter_context(_connect(url))
        assert _rest(silent) == b""
        last.sendall(asked)
        assert last.recv(65536).startswith(b"HTTP/1.1 200")
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 100)
    assert httpx.get(f"{url}/healthz", trust_env=False, verify=False).status_code == 200


@pytest.mark.parametrize("said", [POST, LARGE * 8], ids=["a body does not come", "an answer is not read"])
def test_connections_beyond_the_most_take_the_place_of_those_that_get_nowhere(
    url: str, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    with ExitStack() as stack:
        stuck = [stack.enter_context(_connect(url)) for _ in range(3)]
        for connection in stuck:
            connection.sendall(said)
        time.sleep(1.0)  # until the service has read that
        for _ in range(2):
            asking = stack.enter_context(_connect(url))
            asking.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert asking.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_whoever_has_most_connections_gives_room_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One address that opens many does not close those of others, though these are older."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)
    asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        quiet = [stack.enter_context(_connect(url, source=f"127.0.0.{number}")) for number in (2, 3)]
        crowd = [stack.enter_context(_connect(url)) for _ in range(8)]
        assert [connection.recv(1) for connection in crowd[:6]] == [b""] * 6
        for connection in [*quiet, *crowd[6:]]:
            connection.sendall(asked)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_a_crowd_whose_requests_are_all_answered_loses_one_to_whoever_has_few(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 4)
    asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        crowd = [stack.enter_context(_connect(url)) for _ in range(4)]
        for connection in crowd:
            connection.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        one_more = stack.enter_context(_connect(url))
        assert _rest(one_more) == b""
        for number in (2, 3):
            other = stack.enter_context(_connect(url, source=f"127.0.0.{number}"))
            other.sendall(asked)
            assert other.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_a_client_that_reads_a_little_of_its_answer_again_and_again_is_left(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 2 * SHORT)
    whole = httpx.get(
        url + LARGE.split()[1].decode(), headers={"Accept-Encoding": "identity"}, trust_env=False, verify=False
    )
    stuck = _connect(url)
    stuck.sendall(LARGE * 8)
    deadline, num_read = time.monotonic() + 12 * SHORT, 0
    with suppress(ConnectionResetError):
        while time.monotonic() < deadline and (chunk := stuck.recv(256)):
            num_read += len(chunk)
            time.sleep(SHORT / 10)
    assert num_read + len(_rest(stuck)) < 8 * len(whole.content)


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answer_is_left(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS", SHORT)
    whole = httpx.get(
        url + LARGE.split()[1].decode(), headers={"Accept-Encoding": "identity"}, trust_env=False, verify=False
    )
    stuck = _connect(url)
    stuck.sendall(LARGE * 8)
    time.sleep(4 * SHORT)
    assert len(_rest(stuck)) < 8 * len(whole.content)


def test_whoever_leaves_within_a_body_is_no_fault_of_the_service(url: str, caplog: pytest.LogCaptureFixture) -> None:
    told = 'shampoo_tuner_http_answer_seconds_count{method="POST",route="/login",status="422"}'
    with _connect(url) as connection:
        connection.sendall(POST.replace(b"/v1/jobs", b"/login") + b"token=")
    metrics = f"{url}/metrics"
    wait_until(lambda: told in httpx.get(metrics, trust_env=False, verify=False).text, "the end", seconds=10.0)
    assert not caplog.records


@pytest.mark.usefixtures("short")
def test_code_may_take_longer_to_come_than_other_bodies(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = 4 * SHORT
    monkeypatch.setitem(body_limit.LARGER_BODIES, "/v1/code", body_limit.Limit(1000, patient))
    with running(sqlite_database, allow_code=True) as url:
        connection = _connect(url)
        connection.sendall(POST.replace(b"/v1/jobs", b"/v1/code") + b"{")
        status, problem = _problem(_rest(connection))
    assert (status, problem["detail"]) == (b"HTTP/1.1 408 Request Timeout", f"body: must come within {patient} s")


def test_whoever_connects_while_the_server_stops_is_not_left_waiting(sqlite_database: Database) -> None:
    """A browser would send its next request on such a connection, and nobody would read it."""
    connected: list[socket.socket] = []

    def connect_until_refused(url: str) -> None:
        with suppress(ConnectionError):
            while True:
                connected.append(_connect(url))
                if len(connected) > 50:
                    connected.pop(0).close()

    with ThreadPoolExecutor(1) as thread:
        with running(sqlite_database) as url:
            connecting = thread.submit(connect_until_refused, url)
            wait_until(lambda: connected, "a connection")
        connecting.result()
    for connection in connected:
        assert _rest(connection) == b""


def test_streams_are_counted_in_all_and_for_each_address(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_STREAMS_PER_ADDRESS", 2)
    with running(sqlite_database) as url, ExitStack() as stack:
        path = f"{url}/v1/events"
        for _ in range(2):
            stream = stack.enter_context(httpx.stream("GET", path, trust_env=False, verify=False))
            assert stream.status_code == 200
        refused = httpx.get(path, trust_env=False, verify=False)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert refused.json()["type"] == "urn:shampoo-tuner:problem:busy"
        assert "2 streams of events to one address" in refused.json()["detail"]
        stream.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with httpx.stream("GET", path, trust_env=False, verify=False) as again:
                if again.status_code == 200:
                    break
            assert time.monotonic() < deadline
    metrics = Metrics(sqlite_database, version="1", lease_seconds=30.0, clock=utc_now)
    feed = events.EventFeed(sqlite_database, Turns(1), metrics, utc_now, max_streams=2, max_streams_per_address=2)
    for address in ("a", "b"):
        feed.begin_stream(address)
    with pytest.raises(ServiceBusy, match="on 2 streams of events at once"):
        feed.begin_stream("c")
