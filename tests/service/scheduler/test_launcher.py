"""Runs that a worker's launcher starts: what they are given, how they end, and what becomes of the launcher."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.scheduler.cluster import process_tree, worker_start
from service.scheduler.cluster.run_environment import DIRECTORY_VARIABLE
from service.scheduler.cluster.worker_start import CONTEXT, SOCKET_VARIABLE
from service.scheduler.launcher import MAX_FAILED, Launcher, RunProcess
from tests.support.elsewhere import python_elsewhere
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.processes

RUN = """
import json, os, pathlib, sys

def main(arguments):
    open_files = [file for file in pathlib.Path("/proc/self/fd").iterdir() if file.is_symlink()]
    print(json.dumps({
        "arguments": [list(arguments), sys.argv[1:]], "value": os.environ.get("VALUE"), "process": os.getpid(),
        "parent": os.getppid(), "session": os.getsid(0), "has": sorted({"torch", "ray"} & set(sys.modules)),
        "files": [os.readlink(file) for file in open_files], "template": os.environ.get("SHAMPOO_TEMPLATE_SOCKET"),
        "of_ray": os.environ.get("RAY_JOB_ID"), "threads": len(os.listdir("/proc/self/task")),
    }), flush=True)
    print("an error", file=sys.stderr, flush=True)
    if arguments[0] == "ask":
        os.environ["VALUE"] = "of the run"
        print(json.dumps(asked()), flush=True)
    sys.stdin.read()
    if arguments[0] == "raise":
        raise KeyError("of a run")
    sys.exit(0 if arguments[0] == "ask" else int(arguments[0]))

def asked():
    import tempfile
    from trainers.processes.starting import Streams, start
    from trainers.workloads.describe import environment_of_children
    with tempfile.TemporaryFile() as answer:
        streams = Streams(sys.stdin.fileno(), answer.fileno(), sys.stderr.fileno())
        process = start("a_question", ["a", "b"], streams, environment=environment_of_children())
        status = process.wait(100.0)
        process.end()
        answer.seek(0)
        return {"status": status, **json.load(answer)}
"""
"""A run: it tells of itself, waits for the end of its standard input, and has the exit status that it is told."""


QUESTION = """
import json, os, sys

print(json.dumps({
    "arguments": sys.argv[1:], "parent": os.getppid(), "value": os.environ.get("VALUE"), "session": os.getsid(0),
    "torch": "torch" in sys.modules, "files": [os.readlink(f"/proc/self/fd/{name}") for name in (0, 2)],
    "sockets": sum("socket:" in os.readlink(file.path) for file in os.scandir("/proc/self/fd") if file.is_symlink()),
}))
sys.exit(5)
"""
"""A process that a run asks: it tells of itself."""


class Started:
    """A run that was launched, with what it has been given."""

    def __init__(self, launcher: Launcher, directory: Path, status: int | str = 0) -> None:
        directory.mkdir()
        self.directory, self.log = directory, directory / "log"
        self._end, self.held = os.pipe()
        environment = {**os.environ, "VALUE": directory.name, DIRECTORY_VARIABLE: str(directory)}
        with self.log.open("ab") as output:
            self.process: RunProcess | None = launcher.launch(
                "a_run", [str(status)], environment=environment, stdin=self._end, output=output.fileno()
            )

    def told(self) -> dict[str, Any]:
        """Its report of itself."""
        wait_until(lambda: "an error" in self.log.read_text(), "the run's log")
        told: dict[str, Any] = json.loads(self.log.read_text().splitlines()[0])
        return told

    def close(self) -> None:
        """Ends its standard input."""
        for end in (self._end, self.held):
            with suppress(OSError):
                os.close(end)


@pytest.fixture(scope="module")
def _adopts_orphans() -> Iterator[None]:
    """As a worker does."""
    set_subreaper, libc = 36, ctypes.CDLL(None)
    libc.prctl(set_subreaper, 1, 0, 0, 0)
    yield
    libc.prctl(set_subreaper, 0, 0, 0, 0)


@pytest.fixture(scope="module")
def path_of_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables by which a launcher finds the run's module."""
    directory = tmp_path_factory.mktemp("modules")
    (directory / "a_run.py").write_text(RUN)
    (directory / "a_question.py").write_text(QUESTION)
    return {"PYTHONPATH": f"{directory}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


@pytest.fixture(scope="module")
def launcher(_adopts_orphans: None, path_of_runs: dict[str, str]) -> Iterator[Launcher]:
    """The launcher of a worker."""
    with Launcher(path_of_runs) as launcher:
        yield launcher


@pytest.fixture(params=[False, True], ids=["here", "elsewhere"])
def any_launcher(request: pytest.FixtureRequest, path_of_runs: dict[str, str]) -> Iterator[Launcher]:
    """That of a worker; and one whose Python was built for an older Linux, and has no descriptors of processes."""
    if not request.param:
        yield request.getfixturevalue("launcher")
        return
    with Launcher(python_elsewhere(path_of_runs)) as launcher:
        yield launcher


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts a run, whose standard input ends with the test."""
    with ExitStack() as stack:

        def start(launcher: Launcher, **options: Any) -> Started:
            run = Started(launcher, tmp_path / f"run{len(list(tmp_path.iterdir()))}", **options)
            stack.callback(run.close)
            return run

        yield start


def test_runs_are_forks_that_look_as_if_the_worker_had_started_them_with_templates_of_their_own(
    launcher: Launcher, started: Any
) -> None:
    for status in (0, 3):
        run = started(launcher, status=status)
        told = run.told()
        assert (told["arguments"], told["value"]) == ([[str(status)]] * 2, run.directory.name)
        assert (told["has"], told["threads"], told["of_ray"]) == (["ray", "torch"], 1, None)
        assert told["process"] == told["session"] == run.process.pid
        assert Path(told["template"]).parent == run.directory
        assert sum(file.startswith("socket:") for file in told["files"]) == 1  # to the template of its questions
        shown = psutil.Process(run.process.pid)
        assert f"{sys.executable} -m a_run {status}" in shown.cmdline()
        assert shown.environ()[DIRECTORY_VARIABLE].endswith("-launcher"), "by which those of a killed worker are found"
        templates = shown.children()
        assert len(templates) == 2
        with pytest.raises(subprocess.TimeoutExpired):
            run.process.wait(timeout=0.05)
        run.close()
        assert run.process.wait(timeout=PATIENCE_SECONDS) == status
        wait_until(partial(all_are_gone, templates), "the end of its templates")


def all_are_gone(processes: list[psutil.Process]) -> bool:
    return all(process_tree.any_is_gone([process]) for process in processes)


def test_the_processes_that_a_run_asks_are_forks_with_its_variables(launcher: Launcher, started: Any) -> None:
    run = started(launcher, status="ask")
    told = run.told()
    wait_until(lambda: run.log.read_text().count("\n") == 3, "the answer")
    answer = json.loads(run.log.read_text().splitlines()[-1])
    assert (answer["status"], answer["arguments"], answer["torch"]) == (5, ["a", "b"], True)
    assert answer["value"] == "of the run"
    assert answer["parent"] in {child.pid for child in psutil.Process(run.process.pid).children()}
    assert answer["session"] != told["session"]
    assert answer["sockets"] == 0  # neither of the run's nor of other questions
    assert answer["files"][1] == str(run.log)
    run.close()
    assert run.process.wait(timeout=PATIENCE_SECONDS) == 0


def test_a_run_that_is_killed_says_by_what_and_its_templates_end(launcher: Launcher, started: Any) -> None:
    run = started(launcher)
    run.told()
    templates = psutil.Process(run.process.pid).children()
    run.process.kill()
    assert run.process.wait(timeout=PATIENCE_SECONDS) == -signal.SIGKILL
    wait_until(partial(all_are_gone, templates), "the end of its templates")


def test_a_run_that_raises_shows_where_and_has_an_exit_status(launcher: Launcher, started: Any) -> None:
    run = started(launcher, status="raise")
    run.told()
    run.close()
    assert run.process.wait(timeout=PATIENCE_SECONDS) == 1
    assert run.log.read_text().endswith("KeyError: 'of a run'\n")


def test_workers_of_a_run_have_ray_and_end_with_their_raylet(
    any_launcher: Launcher, started: Any, tmp_path: Path
) -> None:
    script = tmp_path / "worker.py"
    script.write_text("import os, sys, time\nprint(os.getpid(), 'ray' in sys.modules, flush=True)\ntime.sleep(1000)\n")
    run = started(any_launcher)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as raylet:
        variables = {SOCKET_VARIABLE: run.told()["template"], "RAY_RAYLET_PID": str(raylet.pid)}

        def start(job: str) -> tuple[psutil.Process, str]:
            """A worker as Ray starts it, and whether it had Ray before it imported anything."""
            command = [sys.executable, worker_start.__file__, str(script), "--language=PYTHON", f"{CONTEXT}{{}}"]
            ray = {**os.environ, **variables, "RAY_JOB_ID": job}
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=ray, text=True) as asking:
                assert asking.stdout is not None
                process, has_ray = asking.stdout.readline().split()
                worker = psutil.Process(int(process))
                if worker.pid == asking.pid:
                    asking.kill()
            return worker, has_ray

        fork, has_ray = start("01000000")
        assert has_ray == "True"
        _, has_ray = start("02000000")  # of a second driver, which Ray's library in the template knows nothing of
        assert has_ray == "False"
        assert fork.is_running()
        raylet.kill()
    wait_until(lambda: process_tree.any_is_gone([fork]), "the end of the worker")
    run.close()
    assert run.process.wait(timeout=PATIENCE_SECONDS) == 0


def test_a_run_outlives_its_launcher_and_the_next_run_has_another(launcher: Launcher, started: Any) -> None:
    first = started(launcher, status=3)
    os.kill(first.told()["parent"], signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        first.process.wait(timeout=0.05)
    first.close()
    assert first.process.wait(timeout=PATIENCE_SECONDS) == 3
    second = started(launcher)
    assert Path(second.told()["template"]).parent == second.directory
    second.close()
    assert second.process.wait(timeout=PATIENCE_SECONDS) == 0


@pytest.mark.usefixtures("_adopts_orphans")
def test_where_ranks_are_not_forked_a_run_has_no_template_and_its_launcher_no_torch(
    started: Any, path_of_runs: dict[str, str]
) -> None:
    with Launcher(path_of_runs, forks_ranks=False) as launcher:
        run = started(launcher, status=3)
        told = run.told()
        assert (told["has"], told["threads"], told["template"], told["of_ray"]) == (["ray"], 1, None, None)
        shown = psutil.Process(run.process.pid)
        assert (shown.ppid(), shown.children()) == (launcher._process.pid, [])
        run.close()
        assert run.process.wait(timeout=PATIENCE_SECONDS) == 3


def test_a_launcher_that_cannot_fork_starts_nothing(
    started: Any, tmp_path: Path, path_of_runs: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    with_thread = "import threading, time\nthreading.Thread(target=time.sleep, args=[1000], daemon=True).start()\n"
    with Launcher(with_site(tmp_path, with_thread, path_of_runs), forks_ranks=False) as launcher:  # which imports less
        assert started(launcher).process is None
        assert started(launcher).process is None
    assert capfd.readouterr().err.count("an import has started a thread") == 1


def with_site(tmp_path: Path, code: str, path_of_runs: dict[str, str]) -> dict[str, str]:
    """Variables with which this code runs as a launcher begins."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{site}{os.pathsep}{path_of_runs['PYTHONPATH']}"}


@pytest.mark.usefixtures("_adopts_orphans")
def test_a_launcher_that_ended_by_an_error_of_its_own_starts_again_for_the_next_run(
    started: Any, tmp_path: Path, path_of_runs: dict[str, str]
) -> None:
    ends = "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: os._exit(3))\n"
    with Launcher(with_site(tmp_path, ends, path_of_runs), forks_ranks=False) as launcher:  # which imports less
        first = started(launcher)
        parent = first.told()["parent"]
        os.kill(parent, signal.SIGUSR1)
        wait_until(lambda: not psutil.pid_exists(parent) or launcher._process.poll() == 3, "the launcher's end")
        first.close()
        assert first.process.wait(timeout=PATIENCE_SECONDS) == 0
        second = started(launcher)
        assert second.process is not None
        assert second.told()["parent"] == launcher._process.pid != parent
        second.close()
        assert second.process.wait(timeout=PATIENCE_SECONDS) == 0


def test_launchers_that_fail_again_and_again_are_started_only_so_often(
    started: Any, tmp_path: Path, path_of_runs: dict[str, str]
) -> None:
    starts = tmp_path / "starts"
    fails = f"import os\nopen({str(starts)!r}, 'a').write('started\\n')\nos._exit(3)\n"
    with Launcher(with_site(tmp_path, fails, path_of_runs), forks_ranks=False) as launcher:
        assert [started(launcher).process for _ in range(MAX_FAILED + 2)] == [None] * (MAX_FAILED + 2)
    # The first one may have ended before a run asks for it.
    assert starts.read_text().count("started") in (MAX_FAILED, MAX_FAILED + 1)


def test_the_launcher_ends_with_its_worker() -> None:
    code = (
        "import sys, time; from service.scheduler.launcher import Launcher\n"
        "launcher = Launcher({}, forks_ranks=False); print(launcher._process.pid, flush=True)\n"  # which imports less
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        launcher = psutil.Process(int(worker.stdout.readline()))
        worker.kill()
    wait_until(lambda: process_tree.any_is_gone([launcher]), "the end of the launcher")
