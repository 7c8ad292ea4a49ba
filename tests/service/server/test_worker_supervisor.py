"""The worker beside the API: what is told of one that does not come, and that nobody waits for one that was killed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from service.clock import utc_now
from service.server import worker_supervisor
from service.server.worker_supervisor import LOG_PLACE, WorkerSupervisor
from service.settings import Settings
from service.store.models import Worker
from service.store.repositories import WorkerRepository
from service.store.session import Database
from service.use_cases.waiting import WorkerFault
from tests.support import event_loop
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.processes

KILLED = """
import os, signal, socket, sys
from service.clock import utc_now
from service.store.session import Database
from service.use_cases.leases import register_worker
with Database(sys.argv[1]).writing() as session:
    register_worker(session, host=socket.gethostname(), pid=os.getpid(), now=utc_now())
print("no room for Ray's objects", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _supervised(database: Database, *command: str, until: Callable[[WorkerSupervisor], object]) -> WorkerFault | None:
    """The words that are told of workers that a command is, once a condition holds."""

    async def supervise() -> WorkerFault | None:
        supervisor = WorkerSupervisor(Settings(data_dir=Path("unused")), database, (sys.executable, "-c", *command))
        running = asyncio.create_task(supervisor.run())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not until(supervisor):
            assert time.monotonic() < deadline
            assert not running.done()
            await asyncio.sleep(0.01)
        told = supervisor.why_there_is_none()
        supervisor.stop()
        await running
        return told

    return event_loop.run(supervise())


def _told(supervisor: WorkerSupervisor, words: str) -> bool:
    fault = supervisor.why_there_is_none()
    return fault is not None and words in fault.told(with_log=True)


def test_a_worker_that_was_killed_is_not_alive_any_more_and_its_last_words_are_told(
    sqlite_database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    def has_ended(_supervisor: WorkerSupervisor) -> bool:
        with sqlite_database.reading() as session:
            return any(session.scalars(select(Worker.ended_at)))

    began = utc_now()
    url = sqlite_database.engine.url.render_as_string(hide_password=False)
    told = _supervised(sqlite_database, KILLED, url, until=has_ended)
    assert told is not None
    ended, place = "the service starts its worker again, which ended by SIGKILL", f"; {LOG_PLACE}"
    assert told.told(with_log=True) == f"{ended} (last in its log: no room for Ray's objects){place}"
    assert told.told(with_log=False) == f"{ended}{place}"
    assert "no room for Ray's objects\n" in capfd.readouterr().err
    with sqlite_database.reading() as session:
        assert WorkerRepository(session).alive_since(began) == 0


def test_a_worker_that_never_comes_is_counted_and_of_a_line_for_programs_the_message_is_told(
    sqlite_database: Database,
) -> None:
    fails = 'import sys; sys.exit(\'{"event": "no checkpoints can be kept", "level": "error"}\')'
    told = _supervised(sqlite_database, fails, until=lambda found: _told(found, "2 times"))
    assert told is not None
    ended = "which ended 2 times in a row, at last with exit status 1 (last in its log: no checkpoints can be kept)"
    assert told.told(with_log=True).startswith(f"the service starts its worker again, {ended}")


def test_a_worker_that_takes_long_to_come_is_told_of_after_a_while(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = "import sys; print('imports Ray', flush=True); sys.stdin.read()"
    usual = _supervised(sqlite_database, says, until=lambda supervisor: supervisor.process is not None)
    assert usual is None
    monkeypatch.setattr(worker_supervisor, "SLOW_START_SECONDS", 0.0)
    told = _supervised(sqlite_database, says, until=lambda found: _told(found, "imports Ray"))
    assert told is not None
    assert told.told(with_log=True) == (
        f"the service's worker starts, but takes long (last in its log: imports Ray); {LOG_PLACE}"
    )
