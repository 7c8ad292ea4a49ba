"""Processes forked from a warm one: as separate as those that start by themselves, and gone when nobody asks."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.specification.planning import plan_job
from service.use_cases.estimating.memory_estimates import predict_job
from tests.support.service.scenarios import specification
from tests.support.waiting import LONG_PATIENCE_SECONDS, wait_until
from trainers.processes.starting import TEMPLATE_MODULE, Started, Streams, kept_warm, start, warm_up
from trainers.workloads.describe import environment_of_children

pytestmark = pytest.mark.processes

TELLING = """
import json, os, sys
told = {{"arguments": sys.argv[1:], "parent": os.getppid(), "has_torch": "torch" in sys.modules, "text": "{text}"}}
print(json.dumps({{**told, "group": os.getpgid(0), "pid": os.getpid(), "value": os.environ.get("VALUE")}}))
assert sys.orig_argv[1:] == ["-m", __spec__.name, *sys.argv[1:]], sys.orig_argv
sys.exit(3)
"""
HANGING = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]).pid, flush=True)
time.sleep(1000)
"""
LEAVING = """
import os, subprocess, sys, time
sleeping = [sys.executable, "-c", "import time; time.sleep(1000)"]
told, tells = os.pipe()
if os.fork() == 0:  # as a daemon does, whose own child is in a third session
    os.setsid()
    print(os.getpid(), subprocess.Popen(sleeping, start_new_session=True).pid, flush=True)
    os.write(tells, b".")
    time.sleep(1000)
os.read(told, 1)
if "hangs" in sys.argv:
    time.sleep(1000)
"""

ENDING = """
import atexit, sys

class Told:
    def __del__(self):
        print("taken down", flush=True)

told = Told()
atexit.register(print, "handled")
sys.exit({status!r})
"""

# As asyncio from Python 3.12 on: here on every version.
CLEARED_IN_FORKS = "import os, signal; os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))"


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory from which the processes import."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module", autouse=True)
def _warm(modules: Path) -> Iterator[None]:
    """A warm process for all of these tests: it imports for seconds."""
    (modules / "sitecustomize.py").write_text(CLEARED_IN_FORKS)
    environment = environment_of_children()
    environment["PYTHONPATH"] = os.pathsep.join([str(modules), environment["PYTHONPATH"]])
    _of_others.update(_templates())
    with kept_warm(environment):
        warm_up()
        yield
    assert not _templates()


@contextmanager
def started(module: str, arguments: Sequence[str] = ()) -> Iterator[tuple[Started, Path]]:
    """The process, and the file that has its output."""
    with tempfile.NamedTemporaryFile() as output, Path(os.devnull).open("rb") as nothing:
        streams = Streams(nothing.fileno(), output.fileno(), sys.__stderr__.fileno())  # type: ignore[union-attr]  # open
        process = start(module, arguments, streams, environment=environment_of_children())
        try:
            yield process, Path(output.name)
        finally:
            process.end()


def told(module: str, *arguments: str) -> dict[str, Any]:
    with started(module, arguments) as (process, output):
        assert process.wait(LONG_PATIENCE_SECONDS) == 3
        found: dict[str, Any] = json.loads(output.read_text())
    return found


_of_others: set[psutil.Process] = set()
"""Warm processes that other tests have kept."""


def _templates() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if _is_template(child) and child not in _of_others]


def _is_template(process: psutil.Process) -> bool:
    try:
        return TEMPLATE_MODULE in process.cmdline()
    except psutil.NoSuchProcess:  # it has ended; a zombie has no command line, too
        return False


def test_a_fork_runs_a_module_as_a_process_of_its_own_and_reads_it_anew_each_time(modules: Path) -> None:
    (modules / "telling.py").write_text(TELLING.format(text="first"))
    one = told("telling", "--", "an argument")
    (modules / "telling.py").write_text(TELLING.format(text="and then another"))
    other = told("telling")

    (template,) = _templates()
    assert one["parent"] == other["parent"] == template.pid
    assert one["pid"] == one["group"] != other["pid"]
    assert (one["arguments"], one["has_torch"], one["text"]) == (["--", "an argument"], True, "first")
    assert (other["arguments"], other["text"]) == ([], "and then another")


def test_a_fork_has_the_variables_the_directory_and_the_import_path_of_the_one_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, on_path = tmp_path / "here", tmp_path / "on_path"
    for directory, text in ((here, "here"), (on_path, "on the path")):
        directory.mkdir()
        (directory / f"telling_{directory.name}.py").write_text(TELLING.format(text=text))
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(on_path)
    monkeypatch.setenv("VALUE", "of the one who asks")
    found = told("telling_here")
    assert (found["value"], found["text"]) == ("of the one who asks", "here")
    monkeypatch.delenv("VALUE")
    found = told("telling_on_path")
    assert (found["value"], found["text"]) == (None, "on the path")
    (template,) = _templates()
    assert found["parent"] == template.pid


@pytest.mark.parametrize(("status", "exit_status"), [(None, 0), (3, 3), ("a message", 1)])
def test_a_fork_calls_its_exit_handlers_and_does_not_take_down_what_it_has_imported(
    modules: Path, capfd: pytest.CaptureFixture[str], status: object, exit_status: int
) -> None:
    (modules / "ending.py").write_text(ENDING.format(status=status))
    with started("ending") as (process, output):
        assert process.wait(LONG_PATIENCE_SECONDS) == exit_status
        assert output.read_text() == "handled\n"
    assert capfd.readouterr().err == ("a message\n" if status == "a message" else "")


def test_a_fork_that_takes_too_long_is_ended_with_what_it_has_started(modules: Path) -> None:
    (modules / "hanging.py").write_text(HANGING)
    with started("hanging") as (process, output):
        wait_until(lambda: output.read_text().endswith("\n"), "the start of its child")
        child = psutil.Process(int(output.read_text()))
        with pytest.raises(TimeoutError):
            process.wait(0.01)
        process.end()
        wait_until(lambda: not _lives(child), "the end of the child")


def test_what_a_fork_has_started_in_sessions_of_their_own_ends_with_it_and_not_what_another_has(modules: Path) -> None:
    (modules / "leaving.py").write_text(LEAVING)

    def has_both(output: Path) -> bool:
        return len(output.read_text().split()) == 2

    with started("leaving", ["hangs"]) as (killed, of_killed), started("leaving", ["hangs"]) as (_, of_living):
        with started("leaving") as (ending, of_ending):
            wait_until(lambda: all(map(has_both, (of_killed, of_ending, of_living))), "the start of all daemons")
            ended, left, others = map(_processes, (of_killed, of_ending, of_living))
            assert ending.wait(LONG_PATIENCE_SECONDS) == 0
        killed.end()
        wait_until(lambda: not any(map(_lives, [*ended, *left])), "the end of what the two have started")
        assert [_lives(one) for one in others] == [True] * 2
    wait_until(lambda: not any(map(_lives, others)), "the end of what the last one has started")


def _processes(output: Path) -> list[psutil.Process]:
    """The processes that a fork tells of; without those that have ended with it."""
    found = []
    for pid in map(int, output.read_text().split()):
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_when_the_warm_process_is_killed_its_forks_are_and_the_next_question_starts_another(modules: Path) -> None:
    (modules / "hanging.py").write_text(HANGING)
    (modules / "telling.py").write_text(TELLING.format(text=""))
    with started("hanging") as (process, output):
        wait_until(lambda: output.read_text().endswith("\n"), "the start of its child")
        (template,) = _templates()
        (fork,) = template.children()
        template.kill()
        assert process.wait(LONG_PATIENCE_SECONDS) == -signal.SIGKILL
        wait_until(lambda: not fork.is_running(), "the end of the fork")
        psutil.Process(int(output.read_text())).kill()
    assert told("telling")["parent"] != template.pid


def test_an_estimate_in_a_fork_is_that_of_a_process_that_starts_by_itself() -> None:
    plan = plan_job(specification(workload={"name": "digits-mlp"}))
    found = predict_job(plan).memory
    assert found.problem is None
    assert found.spaces["search"].activation_bytes is not None
    assert found.spaces["search"].num_points > 1
