"""Workers that are forked from a template process, by the script that Ray runs, without Ray."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.scheduler.cluster import worker_exits, worker_start
from service.scheduler.cluster.worker_start import SOCKET_VARIABLE
from service.scheduler.cluster.worker_template import SOCKET_NAME, WorkerTemplate
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.processes

NUM_STARTS = int(os.environ.get("TEMPLATE_STARTS", "20"))
NUM_AT_ONCE = 10
WORKER = """
import json, os, sys, threading
has_torch, had_threads = "torch" in sys.modules, len(os.listdir("/proc/self/task"))
import torch
torch.set_num_threads(2)
weight = torch.randn(64, 20_000, requires_grad=True)  # large enough for a parallel region
weight.square().sum().backward()
print(json.dumps({
    "has_torch": has_torch, "had_threads": had_threads, "has_ray": "ray" in sys.modules, "group": os.getpgid(0),
    "process": os.getpid(), "parent": os.getppid(), "name": __name__, "arguments": sys.argv, "path": sys.path[0],
    "value": os.environ.get("VALUE"), "gradient": torch.equal(weight.grad, 2 * weight),
}), flush=True)
print("an error", file=sys.stderr, flush=True)
"""
LIGHT_WORKER = """
import json, os, sys
print(json.dumps({
    "has_torch": "torch" in sys.modules, "process": os.getpid(), "arguments": sys.argv,
    "value": os.environ.get("VALUE"),
}), flush=True)
print("an error", file=sys.stderr, flush=True)
"""
"""Tells who started it, and leaves out what torch computes: in an interpreter of its own, torch alone decides that."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A worker's script that tells of itself."""
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    return path


@pytest.fixture
def light_script(tmp_path: Path) -> Path:
    """A worker's script that only tells how it was started."""
    path = tmp_path / "light_worker.py"
    path.write_text(LIGHT_WORKER)
    return path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a template process."""
    directory = tmp_path_factory.mktemp("template")
    with WorkerTemplate(directory):
        del os.environ[SOCKET_VARIABLE]  # each worker is told by itself
        yield directory / SOCKET_NAME


def _command(script: Path, *arguments: str) -> list[str]:
    return [sys.executable, worker_start.__file__, str(script), *arguments]


def _start(
    script: Path, *arguments: str, template: Path | None = None, value: str = "", context: str = "{}"
) -> subprocess.Popen[str]:
    """Starts a worker as Ray does."""
    address = {} if template is None else {SOCKET_VARIABLE: str(template)}
    return subprocess.Popen(
        _command(script, *arguments, "--language=PYTHON", f"--serialized-runtime-env-context={context}", "--last"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **address, "VALUE": value},
        text=True,
    )


def _told(start: subprocess.Popen[str]) -> dict[str, Any]:
    """The worker's report of itself; its streams end with it."""
    output, errors = start.communicate(timeout=PATIENCE_SECONDS)
    assert errors == "an error\n"
    told: dict[str, Any] = json.loads(output)
    return told


def test_a_worker_is_a_fork_that_looks_as_if_ray_had_started_it(script: Path, template: Path) -> None:
    started = _start(script, "--first", template=template, value="of this worker")
    told = _told(started)
    assert started.returncode == 0
    assert told["process"] != started.pid
    assert told["parent"] != os.getpid()
    assert told["group"] == told["process"], "Ray ends what a worker has started by its process group"
    assert (told["has_torch"], told["has_ray"], told["had_threads"]) == (True, False, 1)
    assert (told["name"], told["value"]) == ("__main__", "of this worker")
    assert told["arguments"] == [str(script), "--first", "--last"]
    assert told["path"] == str(script.parent)


ENDS = {"import os; os._exit(5)": 5, "import os; os.kill(os.getpid(), 9)": -9, "pass": 0}


def test_how_each_fork_ended_is_known_to_those_who_know_the_template(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worker_exits.exit_status(os.getpid()) is None  # whoever knows of no template learns nothing
    monkeypatch.setenv(SOCKET_VARIABLE, str(template))
    for number, (end, expected) in enumerate(ENDS.items()):
        script = tmp_path / f"{number}.py"
        script.write_text(f"import os\nprint(os.getpid(), flush=True)\n{end}\n")
        with _start(script, template=template) as started:
            assert started.stdout is not None
            assert started.stderr is not None
            process = int(started.stdout.readline())
            assert worker_exits.exit_status(process, patience_seconds=PATIENCE_SECONDS) == expected
    assert worker_exits.exit_status(os.getpid(), patience_seconds=0.0) is None  # it is no fork of the template


def test_many_workers_start_and_compute_and_none_hangs(script: Path, template: Path) -> None:
    """`TEMPLATE_STARTS` says how many."""
    told: list[dict[str, Any]] = []
    while len(told) < NUM_STARTS:
        told += [_told(start) for start in [_start(script, template=template) for _ in range(NUM_AT_ONCE)]]
    assert all(worker["gradient"] and worker["has_torch"] for worker in told)


def _check_starts_by_itself(script: Path, template: Path | None) -> dict[str, Any]:
    started = _start(script, template=template, value="of this worker")
    told = _told(started)
    assert told["process"] == started.pid
    assert (told["has_torch"], told["value"]) == (False, "of this worker")
    assert told["arguments"] == [str(script), "--last"]
    return told


def test_without_a_template_a_worker_is_an_interpreter_of_its_own(script: Path) -> None:
    assert _check_starts_by_itself(script, None)["gradient"]


def test_an_import_that_starts_a_thread_forbids_forks(
    light_script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=[1000], daemon=True).start()\n"
    )
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        process = WorkerTemplate(tmp_path)
    with process:
        _check_starts_by_itself(light_script, tmp_path / SOCKET_NAME)
    assert "an import has started a thread" in capfd.readouterr().err


def test_nonsense_at_its_socket_does_not_end_the_template(script: Path, template: Path) -> None:
    for nonsense in (b"", b"nonsense", (5).to_bytes(8, "big") + b"{...}"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(template))
            connection.sendall(nonsense)
    assert _told(_start(script, template=template))["has_torch"]
    assert template.stat().st_mode & 0o077 == 0, "of this user alone"


def _context(**changes: Any) -> str:
    """The environment of a worker as Ray 2.60 tells of it."""
    nothing: dict[str, Any] = {
        "command_prefix": [],
        "env_vars": {},
        "override_worker_entrypoint": None,
        "java_jars": [],
    }
    return json.dumps({**nothing, "py_executable": sys.executable, **changes})


def test_a_fork_has_the_variables_that_ray_sets(script: Path, template: Path) -> None:
    """Tune gives each trainable some, which its ranks inherit."""
    told = _told(_start(script, template=template, context=_context(env_vars={"VALUE": "of Ray"})))
    assert (told["value"], told["has_torch"]) == ("of Ray", True)


@pytest.mark.parametrize(
    "changes",
    [
        {"command_prefix": ["nice"]},
        {"py_executable": "/another/python"},
        {"override_worker_entrypoint": "/a/worker.py"},
        {"java_jars": ["a.jar"]},
        {"env_vars": {"PATH": "/a:${PATH}"}},
        {"of_a_later_ray": "something"},
    ],
    ids=str,
)
def test_an_environment_that_ray_sets_up_is_left_to_ray(script: Path, changes: dict[str, Any]) -> None:
    script.with_name("setup_worker.py").write_text("import sys\nprint(sys.argv[1:])\n")
    arguments = ("--language=PYTHON", f"--serialized-runtime-env-context={_context(**changes)}")
    printed = subprocess.run(_command(script, *arguments), capture_output=True, text=True, check=True).stdout
    assert printed == f"{[str(script), *arguments]}\n"


def test_the_template_ends_with_the_run_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib; from service.scheduler.cluster.worker_template import WorkerTemplate\n"
        "template = WorkerTemplate(pathlib.Path(sys.argv[1])); print(template._process.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        template = psutil.Process(int(run.stdout.readline()))
        run.kill()
    wait_until(lambda: not template.is_running(), "the template to end")


def test_after_the_death_of_the_template_workers_start_by_themselves_and_earlier_ones_live(
    light_script: Path, template: Path, tmp_path: Path
) -> None:
    """The last test with this template, whose imports take some core-seconds."""
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)\n")
    with _start(sleeper, template=template) as started:
        assert started.stdout is not None
        fork = psutil.Process(int(started.stdout.readline()))
        assert fork.pid != started.pid
        os.kill(fork.ppid(), signal.SIGKILL)
        _check_starts_by_itself(light_script, template)
        assert fork.is_running()
        fork.kill()
