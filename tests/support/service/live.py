"""The API on a real server, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVarTuple

from service.clock import Clock, utc_now
from service.domain import Phase
from service.server.app import create_app
from service.server.serve import Server
from service.settings import Settings
from service.specification.identity import StoredIdentity
from service.store.session import Database
from service.use_cases.run import finish_job
from service.use_cases.waiting import WorkerFault
from tests.support.service.scenarios import NOW, claimed_job, run_trial
from tests.support.waiting import PATIENCE_SECONDS

Ts = TypeVarTuple("Ts")


class _PromptLoop(asyncio.SelectorEventLoop):
    """An event loop that, once it is told to hurry, skips short sleeps.

    uvicorn checks ten times a second whether it should stop, and sleeps for a tenth of a second at least once while it
    stops: together longer than most tests take. Longer sleeps are limits, and are kept.
    """

    _SHORT_SECONDS = 0.1
    """As long as uvicorn sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_seconds = 0.0

    def time(self) -> float:
        return super().time() + self._ahead_seconds

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        is_skipped = self._ahead_seconds > 0 and delay <= self._SHORT_SECONDS
        return super().call_later(0 if is_skipped else delay, callback, *args, context=context)

    def hurry(self) -> None:
        """Skips short sleeps from now on, and the rest of one that has begun; may be called in any thread."""
        with suppress(RuntimeError):  # the loop has ended by itself
            self.call_soon_threadsafe(self._skip)

    def _skip(self) -> None:
        self._ahead_seconds = self._SHORT_SECONDS


@contextmanager
def running(
    database: Database,
    *,
    clock: Clock = utc_now,
    port: int = 0,
    data_are_here: bool = False,
    why_no_worker: Callable[[], WorkerFault | None] | None = None,
    **settings: object,
) -> Iterator[str]:
    """The address of a server on `database`; stopping it must not wait for clients that still listen to events."""
    values = {"data_dir": Path("unused"), **settings}
    own = Settings(**values)  # type: ignore[arg-type] # pydantic checks them
    app = create_app(own, database, clock, data_are_here=data_are_here, why_no_worker=why_no_worker)
    server = Server(app)
    with socket.create_server(("127.0.0.1", port)) as listener:
        # Like the service's own sockets: otherwise the body of an answer waits 40 ms until the client has confirmed its
        # head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = _PromptLoop()
        thread = threading.Thread(target=lambda: _run(server, listener, loop))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            loop.hurry()
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "the server did not stop"


def _run(server: Server, listener: socket.socket, loop: _PromptLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(server.serve(sockets=[listener]))


def finished_job(
    database: Database, *, now: datetime = NOW, identity: StoredIdentity | None = None, **fields: Any
) -> str:
    """The id of a job that succeeded: three search trials and one of the baseline.

    Args:
        identity: the identity of all of its trials; None: there is none, as in old jobs.
        fields: as `submit` takes them.
    """
    lease = claimed_job(database, **fields)
    for number, (loss, phase) in enumerate(
        [(0.5, Phase.SEARCH), (0.4, Phase.BASELINE), (0.2, Phase.SEARCH), (0.3, Phase.SEARCH)]
    ):
        run_trial(database, lease, number, loss, phase, identity=identity)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=now)
    return lease.job_id
