"""Stand-ins for a raylet's agents, by the script that Ray runs, without Ray."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.scheduler.cluster import agent_start
from service.scheduler.cluster.agent_start import DASHBOARD_PORTS, ENDS_WITH_PIPE, ENVIRONMENTS_AGENT, ENVIRONMENTS_PORT
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.processes

AGENT = """
import os, pathlib, socket, sys, time
options = dict(option.removeprefix("--").split("=", 1) for option in sys.argv[1:] if "=" in option)
with socket.socket() as listener:
    listener.bind((options["node-ip-address"], 0))
    told = pathlib.Path(options["session-dir"]) / f"runtime_env_agent_port_{options['node-id']}"
    unfinished = told.with_name("unfinished")
    unfinished.write_text(str(listener.getsockname()[1]))
    unfinished.replace(told)
    time.sleep(float(os.environ.get("LISTENS_AFTER", 0)))
    listener.listen()
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"answer to " + connection.makefile("rb").read())
"""
"""An agent of runtime environments: it tells its port as Ray's does, before it listens, and answers."""


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Any]:
    """Starts a stand-in as a raylet does, with the agent's script in a folder that is named for it."""
    session = tmp_path / "session"
    session.mkdir()
    with ExitStack() as stack:

        def start(folder: str, **environment: str) -> subprocess.Popen[bytes]:
            script = tmp_path / folder / "agent.py"
            script.parent.mkdir()
            script.write_text(AGENT)
            options = [f"--session-dir={session}", "--node-id=abc", "--node-ip-address=127.0.0.1", "--head"]
            started = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", agent_start.__file__, str(script), *options],
                    stdin=subprocess.PIPE,
                    env={**os.environ, **environment},
                )
            )
            stack.callback(started.kill)
            return started

        yield start


def _port(session: Path, name: str) -> int:
    file = session / f"{name}_abc"
    wait_until(file.exists, f"the port {name}")
    return int(file.read_text())


def _ask(port: int, question: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(question)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()


def test_the_dashboards_agent_serves_nothing_and_ends_with_its_raylet(stand_in: Any, tmp_path: Path) -> None:
    started = stand_in("dashboard", **{ENDS_WITH_PIPE: "1"})
    assert [_port(tmp_path / "session", name) for name in DASHBOARD_PORTS] == [-1, -1, -1]
    assert started.poll() is None
    started.stdin.close()
    assert started.wait(PATIENCE_SECONDS) == 0


def test_the_agent_of_environments_starts_when_it_is_asked(stand_in: Any, tmp_path: Path) -> None:
    started = stand_in(ENVIRONMENTS_AGENT, **{ENDS_WITH_PIPE: "1", "LISTENS_AFTER": "0.5"})
    port = _port(tmp_path / "session", ENVIRONMENTS_PORT)
    itself = psutil.Process(started.pid)
    assert itself.children() == []
    assert [_ask(port, question) for question in (b"one", b"two")] == [b"answer to one", b"answer to two"]
    [agent] = itself.children()
    assert _port(tmp_path / "session", ENVIRONMENTS_PORT) == port
    started.stdin.close()
    assert started.wait(PATIENCE_SECONDS) == 0
    agent.kill()


def test_without_a_pipe_that_ends_with_the_raylet_there_is_the_agent_itself(stand_in: Any, tmp_path: Path) -> None:
    stand_in(ENVIRONMENTS_AGENT)
    port = _port(tmp_path / "session", ENVIRONMENTS_PORT)
    wait_until(lambda: agent_start._listens("127.0.0.1", port), "the agent")
    assert _ask(port, b"one") == b"answer to one"
