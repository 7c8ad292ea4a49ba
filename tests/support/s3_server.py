"""An S3 server in a process of its own, which fails on demand: `python -m tests.support.s3_server` prints its port.

moto keeps the objects in memory; requests come over HTTP as to any S3. Credentials are not checked.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

from trainers.storage import StoreUri, place_of

BUCKET = "tuning"
SECRET = "not-to-be-seen"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",  # otherwise pyarrow asks about the machine that it is on
}
"""Credentials for the processes of tests, so that none could ever reach a real bucket."""

_FAULTS = "/-/faults"
_HOLD_SECONDS = 60.0


@dataclass
class S3Server:
    """A running server with the bucket `tuning`."""

    process: subprocess.Popen[str]
    port: int

    def uri(self, path: str = "", *, bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{path}?scheme=http&endpoint_override=127.0.0.1:{self.port}&region=us-east-1"

    def fail(self, requests: str, *, times: int, status: int = 503, code: str = "ServiceUnavailable") -> None:
        """Answers the next requests whose `METHOD /path` matches the expression with an error."""
        self._set_faults({"requests": requests, "times": times, "status": status, "code": code, "holds": False})

    def hold(self, requests: str) -> None:
        """Leaves the next such request without an answer."""
        self._set_faults({"requests": requests, "times": 1, "status": 503, "code": "ServiceUnavailable", "holds": True})

    def heal(self) -> None:
        """Fails no more."""
        self._set_faults(None)

    def num_failed(self) -> int:
        """How many requests have failed, or are held, since faults were last set."""
        with urlopen(f"http://127.0.0.1:{self.port}{_FAULTS}") as response:
            return int(json.load(response))

    def _set_faults(self, faults: dict[str, Any] | None) -> None:
        with urlopen(Request(f"http://127.0.0.1:{self.port}{_FAULTS}", json.dumps(faults).encode())) as response:
            response.read()


def in_a_store(uri: str) -> StoreUri:
    """The place of a URI that is known to be in a store."""
    place = place_of(uri)
    assert isinstance(place, StoreUri)
    return place


@contextmanager
def running() -> Iterator[S3Server]:
    """A server that runs during the context."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.s3_server"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        yield S3Server(process, int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class _Faulty:
    """A WSGI application in front of another one, which answers some requests instead."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._faults: dict[str, Any] | None = None
        self._num_failed = 0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == _FAULTS:
            if method == "POST":
                content = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
                with self._lock:
                    self._faults, self._num_failed = json.loads(content), 0
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._num_failed).encode()]
        with self._lock:
            faults = self._faults
            if faults is None or not faults["times"] or not re.search(faults["requests"], f"{method} {path}"):
                faults = None
            else:
                faults["times"] -= 1
                self._num_failed += 1
        if faults is None:
            return self._application(environ, start_response)
        if faults["holds"]:
            threading.Event().wait(_HOLD_SECONDS)
        start_response(f"{faults['status']} Fault", [("Content-Type", "application/xml")])
        return [f"<Error><Code>{faults['code']}</Code><Message>as the test wants it</Message></Error>".encode()]


def _serve() -> None:
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, _Faulty(DomainDispatcherApplication(create_backend_app)), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key=SECRET,
    ).create_bucket(Bucket=BUCKET)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    _serve()
