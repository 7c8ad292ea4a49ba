"""Standard output of other encodings than UTF-8, in which names that others gave cannot be written; ignored signals."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from service.store.session import Database
from tests.service.cli.conftest import JOB
from tests.support.service.commands import run
from tests.support.service.live import finished_job
from tests.support.waiting import PATIENCE_SECONDS, started, wait_until

NAME = "日本 é ✓"


def printed(encoding: str, *arguments: str) -> str:
    """The output of a command, with exit status 0 and no complaint."""
    shown = subprocess.run(
        [sys.executable, "-m", "service", *arguments],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert (shown.returncode, shown.stderr) == (0, b"")
    return shown.stdout.decode("utf-8" if encoding == "ascii" else encoding)


@pytest.mark.processes
@pytest.mark.usefixtures("url")
def test_what_has_no_place_in_an_encoding_is_an_escape(sqlite_database: Database, tmp_path: Path) -> None:
    job_id = finished_job(sqlite_database)
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({**yaml.safe_load(JOB), "name": NAME}))
    assert run("submit", str(job)).exit_code == 0
    assert r"\u65e5\u672c é \u2713" in printed("latin-1", "jobs")
    assert json.loads(printed("latin-1", "jobs", "--json"))["items"][0]["name"] == NAME
    # ASCII is what an unset locale is taken for. Words of the product itself have others, too, as ± and ×.
    assert NAME in printed("ascii", "jobs")
    assert "×" in printed("ascii", "show", job_id)
    assert "succeeded" in printed("ascii", "watch", job_id)


def _said(command: str, to: str) -> tuple[int, str]:
    """The exit status of a command whose output a shell sends somewhere, and what it says on standard error."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m service {command} {to}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return done.returncode, done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("command", ["--version", "--help", "completion bash"])
def test_what_cannot_be_printed_is_an_error_in_one_line(command: str) -> None:
    for to, why in ((">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")):
        assert _said(command, to) == (1, f"shampoo-tuner: standard output: {why}\n"), to


@pytest.mark.processes
@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("command", ["jobs --json", "export JOB -o -", "report JOB -o -"])
def test_an_answer_that_is_lost_is_an_error_in_one_line(command: str, sqlite_database: Database) -> None:
    said = _said(command.replace("JOB", finished_job(sqlite_database)), ">/dev/full")
    assert said == (1, "shampoo-tuner: standard output: No space left on device\n")


def _is_served(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", verify=False).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.processes
def test_a_service_that_cannot_print_its_address_serves_all_the_same(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Path("/dev/full").open("w") as full, (tmp_path / "log").open("w") as log:
        served = subprocess.Popen(
            [sys.executable, "-m", "service", "api", "--data-dir", str(tmp_path), "--port", str(port)],
            stdout=full,
            stderr=log,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: served.poll() is not None or _is_served(url), "the API answers")
            served.send_signal(signal.SIGTERM)
            assert served.wait(PATIENCE_SECONDS) == 0, (tmp_path / "log").read_text()
        finally:
            served.kill()
            served.wait()


@pytest.mark.processes
@pytest.mark.parametrize("command", ["submit", "clone"])
def test_who_interrupts_a_submission_is_told_that_the_service_may_have_the_job(command: str, job_file: str) -> None:
    with socket.socket() as silent:  # takes requests and answers none, as a service that is building a large workload
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        given = {"submit": job_file, "clone": "job_1"}[command]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with started([sys.executable, "-m", "service", command, given, "--url", url], **pipes) as process:
            silent.settimeout(PATIENCE_SECONDS)
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(4).startswith(b"POST")
                process.send_signal(signal.SIGINT)
                told, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, told) == (130, "")
    assert errors == "\nthe service may have the job all the same, and run it: `shampoo-tuner jobs` tells\n"


def on_a_terminal(*arguments: str) -> tuple[str, str]:
    """The text that a command writes to a terminal which is its standard output, and to its standard error."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "service", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        os.close(its)
        _, errors = command.communicate(timeout=PATIENCE_SECONDS)
        output = os.read(ours, 100_000).decode()
        os.close(ours)
    assert command.returncode == 0, errors
    return output, errors


@pytest.mark.processes
def test_a_job_that_is_submitted_in_a_terminal_is_told_with_its_page_and_the_command_that_follows_it(
    url: str, job_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, errors = on_a_terminal("submit", job_file)
    job_id = output.strip()
    assert errors == f"its page: {url}/jobs/{job_id}; `shampoo-tuner watch {job_id}` follows it\n"
    monkeypatch.delenv("SHAMPOO_TUNER_URL")
    output, errors = on_a_terminal("clone", job_id, "--url", url)
    cloned = output.strip()
    assert errors == f"its page: {url}/jobs/{cloned}; `shampoo-tuner watch {cloned} --url {url}` follows it\n"
    _, errors = on_a_terminal("submit", job_file, "--url", url, "--json")
    assert errors == ""


@pytest.mark.usefixtures("url")
def test_a_script_that_submits_a_job_reads_its_id_alone(job_file: str) -> None:
    submitted = run("submit", job_file)
    assert (submitted.stdout.startswith("job_"), submitted.stdout.count("\n"), submitted.stderr) == (True, 1, "")


@pytest.mark.processes
def test_ends_of_processes_are_heard_of_whoever_starts_a_command() -> None:
    code = """
import atexit, signal, sys
from service.cli.commands import main
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as a process inherits it
atexit.register(lambda: print(signal.getsignal(signal.SIGCHLD).name))
sys.argv = ["shampoo-tuner", "--version"]
main()
"""
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.endswith("\nSIG_DFL\n")


@pytest.mark.processes
def test_a_service_starts_with_its_standard_error_closed(tmp_path: Path) -> None:
    closing = ["sh", "-c", 'exec "$@" 2>&-', "sh"]
    command = [sys.executable, "-m", "service", "api", "--data-dir", str(tmp_path), "--port", "0"]
    with started([*closing, *command], stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        assert "is at http://127.0.0.1:" in service.stdout.readline()
