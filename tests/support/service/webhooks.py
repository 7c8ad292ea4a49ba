"""Webhooks in tests: a server in a thread that receives them, and their messages, sent as a worker does."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from service.clock import Clock, utc_now
from service.store.session import Database
from service.webhooks.delivering import Sending
from tests.support import event_loop
from tests.support.waiting import PATIENCE_SECONDS


class Receiver:
    """A server that records the messages, and answers as it is told."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        self.location: str | None = None
        self.hangs = threading.Event()
        self.is_slow = False
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                if receiver.is_slow:
                    receiver.hangs.wait(PATIENCE_SECONDS)
                self.send_response(receiver.status)
                if receiver.location is not None:
                    self.send_header("Location", receiver.location)
                self.end_headers()
                self.wfile.write(b"thanks" * 1000)

            def log_message(self, *_of: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://localhost:{self._server.server_port}/hook?x=1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self.hangs.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def told(self) -> list[str]:
        """The states of jobs in the received messages."""
        return [json.loads(body)["data"]["state"] for _, body in self.requests]


def deliver(database: Database, *, allows_private: bool, clock: Clock = utc_now) -> int:
    """Sends the messages that are due, and records the answers; returns the number of messages."""

    async def send_all() -> int:
        with ThreadPoolExecutor(1) as threads:
            sending = Sending(database, threads, allows_private=allows_private, clock=clock)
            num_sent = 0
            while (num_begun := await sending.look()) or sending.is_busy:
                num_sent += num_begun
                await sending.wait()
            return num_sent

    return event_loop.run(send_all())
