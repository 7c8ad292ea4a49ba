"""`serve` as a person runs it: a process that starts, survives its worker, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_server

import httpx
import psutil
import pytest

from service.client import Client
from service.server.worker_supervisor import WORKER_STOP_SECONDS
from service.settings import Settings
from service.store.migrate import migrate
from service.store.session import Database
from service.store.sqlite_file import file_of
from tests.support.service.service_process import NO_CLUSTER
from tests.support.waiting import PATIENCE_SECONDS, started, wait_until
from trainers.processes.starting import TEMPLATE_MODULE

pytestmark = pytest.mark.services


@dataclass
class Service:
    process: subprocess.Popen[str]
    url: str

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        return [found for found in self.descendants() if "worker" in _arguments(found)]


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


@contextmanager
def serving(data_dir: Path, *arguments: str) -> Iterator[Service]:
    command = [sys.executable, "-m", "service", "serve", "--port", "0", "--data-dir", str(data_dir), *arguments]
    environment = {**os.environ, "RAY_ADDRESS": NO_CLUSTER}
    with started(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("shampoo-tuner is at http://127.0.0.1:"), line
        service = Service(process, line.split()[3])
        with Client(service.url) as client:
            wait_until(lambda: client.readiness().num_workers == 1, "the worker")
        yield service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path / "new" / "data") as service:
        yield service


def templates(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The process that an API forks for each dry run, where it has started."""
    return [child for child in psutil.Process(process.pid).children() if TEMPLATE_MODULE in _arguments(child)]


def _end_of_worker(service: Service) -> None:
    """Kills the worker, and waits for the next one."""
    # A process that it starts has its arguments for a moment.
    wait_until(lambda: len(service.workers()) == 1, "the worker alone")
    (first,) = service.workers()
    first.kill()
    wait_until(lambda: any(found.pid != first.pid for found in service.workers()), "another worker")
    assert (
        httpx.get(f"{service.url}/healthz", trust_env=False, timeout=PATIENCE_SECONDS, verify=False).status_code == 200
    )


def test_a_signal_stops_everything_within_seconds_even_with_an_open_stream_and_a_worker_that_was_started_again(
    service: Service,
) -> None:
    """SIGINT; with SIGTERM, which has the same handler, a test below ends the API."""
    _end_of_worker(service)
    wait_until(service.workers, "a worker that stays")
    descendants = service.descendants()
    with (
        httpx.Client(trust_env=False, timeout=PATIENCE_SECONDS, verify=False) as http,
        http.stream("GET", f"{service.url}/v1/events") as stream,
    ):
        chunks = stream.iter_bytes()
        next(chunks)
        began = time.monotonic()
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(PATIENCE_SECONDS) == 0
        # Half a second on a quiet machine; a worker that does not stop by itself costs as much as it may.
        assert time.monotonic() - began < WORKER_STOP_SECONDS
        assert list(chunks) == []  # its end, and no cut
    assert not any(found.is_running() for found in descendants)


def test_the_worker_goes_when_the_service_is_killed(service: Service) -> None:
    descendants = service.descendants()
    assert descendants, "it has started its worker"
    service.process.kill()
    wait_until(lambda: not any(found.is_running() for found in descendants), "the end of what it started")


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = subprocess.run(
            [sys.executable, "-m", "service", "serve", "--port", str(port), "--data-dir", str(tmp_path / "second")],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert refused.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "second").exists()


def test_the_api_alone_leaves_the_database_to_migrate_and_says_to_which_hosts_it_answers(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "SHAMPOO_TUNER_DATA_DIR": str(tmp_path),
        "SHAMPOO_TUNER_HOST": "0.0.0.0",
        "SHAMPOO_TUNER_PORT": "0",
        "SHAMPOO_TUNER_ALLOWED_HOSTS": "tuner.example.org",
    }
    with started([sys.executable, "-m", "service", "api"], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3]
        assert url.startswith("http://127.0.0.1:")
        assert "localhost, 127.0.0.1, ::1, tuner.example.org;" in process.stdout.readline()
        for host, status in (("tuner.example.org", 200), ("rebound.example", 421)):
            answer = httpx.get(
                f"{url}/healthz", headers={"Host": host}, trust_env=False, timeout=PATIENCE_SECONDS, verify=False
            )
            assert answer.status_code == status
        assert httpx.get(f"{url}/readyz", trust_env=False, timeout=PATIENCE_SECONDS, verify=False).status_code == 503
        database = Database(Settings(data_dir=tmp_path).resolved_database_url)
        migrate(database)
        database.close()
        ready = httpx.get(f"{url}/readyz", trust_env=False, timeout=PATIENCE_SECONDS, verify=False)
        assert (ready.status_code, ready.json()["num_workers"]) == (200, 0)
        assert templates(process) == []  # for which it has an hour
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.slow
def test_what_answers_dry_runs_starts_with_the_api_and_when_somebody_looks_at_what_jobs_are_made_of(
    migrated_sqlite_file: Path, tmp_path: Path
) -> None:
    file = file_of(Settings(data_dir=tmp_path).resolved_database_url)
    assert file is not None
    shutil.copyfile(migrated_sqlite_file, file)
    environment = {**os.environ, "SHAMPOO_TUNER_DATA_DIR": str(tmp_path), "SHAMPOO_TUNER_PORT": "0"}
    del environment["SHAMPOO_TUNER_WARM_AFTER_SECONDS"]
    with started([sys.executable, "-m", "service", "api"], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3]
        wait_until(lambda: templates(process), "what answers dry runs")
        for seen in ("/jobs/new", "/v1/search-spaces"):
            for template in templates(process):
                template.kill()  # it would import torch
            wait_until(lambda: not templates(process), "its end")
            assert (
                httpx.get(f"{url}/v1/jobs", trust_env=False, timeout=PATIENCE_SECONDS, verify=False).status_code == 200
            )
            assert templates(process) == []
            assert httpx.get(url + seen, trust_env=False, timeout=PATIENCE_SECONDS, verify=False).status_code == 200
            wait_until(lambda: templates(process), f"what answers dry runs, after a look at {seen}")
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
