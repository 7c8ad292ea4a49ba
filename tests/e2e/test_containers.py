"""The container images' commands, run as plain processes: there is no container engine in the tests.

The API image's dependencies are installed for real, into a virtual environment without torch and ray, and its command
serves HTTP from there; the worker's command runs a job that this API accepted; both talk to one PostgreSQL.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.postgresql import postgresql_server
from tests.support.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
RAY: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.ray.yaml").read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()

PYTHON_IMAGE_BYTES = 130_000_000
"""Of `python:3.11-slim-bookworm`, unpacked, with pip and setuptools in it."""
API_IMAGE_BYTES = 300_000_000
"""At most."""

_get = partial(httpx.get, timeout=PATIENCE_SECONDS)


def _target(name: str) -> str:
    """The Dockerfile's section of one target."""
    found = re.search(rf"^FROM base AS {name}\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


def _installs(name: str) -> list[str]:
    """The commands that install something in the Dockerfile's section of one target."""
    commands = re.findall(r"^RUN ((?:.*\\\n)*.*)$", _target(name), re.MULTILINE)
    return [command for command in commands if "pip install" in command]


def _command(service: str) -> list[str]:
    command = COMPOSE["services"][service]["command"]
    assert command[0] == "shampoo-tuner"
    return list(command[1:])


@contextmanager
def _process(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


@pytest.fixture(scope="module")
def slim_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with what the API image installs."""
    directory = tmp_path_factory.mktemp("slim")
    source = directory / "source"
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "tests")
    )
    binaries = directory / "venv" / "bin"
    # Another one's pip installs into it: to install one takes as long as a third of the rest.
    make = [sys.executable, "-m", "venv", "--without-pip", str(directory / "venv")]
    subprocess.run(make, check=True, timeout=LONG_PATIENCE_SECONDS)
    path = os.pathsep.join([str(binaries), str(Path(sys.executable).parent), os.environ["PATH"]])
    for command in _installs("api"):
        subprocess.run(
            command,
            shell=True,
            check=True,
            cwd=source,
            env={**os.environ, "PATH": path, "PIP_QUIET": "1", "PIP_PYTHON": str(binaries / "python")},
            timeout=LONG_PATIENCE_SECONDS,
        )
    return directory / "venv"


@pytest.fixture
def postgresql_url() -> Iterator[str]:
    with postgresql_server() as url:
        yield url


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _answer(url: str) -> httpx.Response:
    """The service's answer, as soon as there is one that tells of no error."""

    def has_come() -> bool:
        try:
            return _get(url).is_success
        except httpx.TransportError:
            return False

    wait_until(has_come, f"an answer from {url}")
    return _get(url)


@pytest.mark.patient
def test_slim_api_and_worker_run_a_job_over_postgresql(
    slim_environment: Path, postgresql_url: str, tmp_path: Path
) -> None:
    port = _free_port()
    environment = {
        "SHAMPOO_TUNER_DATABASE_URL": postgresql_url,
        "SHAMPOO_TUNER_DATA_DIR": str(tmp_path / "data"),
        "SHAMPOO_TUNER_PORT": str(port),
    }
    slim = str(slim_environment / "bin" / "shampoo-tuner")
    full = str(Path(sys.executable).with_name("shampoo-tuner"))
    installed = subprocess.run(
        [slim_environment / "bin" / "python", "-c", "import torch"], capture_output=True, check=False
    )
    assert installed.returncode != 0, "the API image must not install torch"

    site_packages = next((slim_environment / "lib").glob("python*/site-packages"))
    installed_bytes = sum(
        path.stat().st_size
        for directory in site_packages.iterdir()
        if re.match(r"pip|setuptools|pkg_resources", directory.name) is None
        for path in (directory.rglob("*") if directory.is_dir() else [directory])
        if path.is_file()
    )
    assert installed_bytes < API_IMAGE_BYTES - PYTHON_IMAGE_BYTES

    subprocess.run(
        [slim, *_command("migrate")], check=True, env={**os.environ, **environment}, timeout=PATIENCE_SECONDS
    )
    refused = subprocess.run(
        [slim, *_command("worker")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert refused.returncode == 2
    assert "pip install 'shampoo-tuner[service]'" in refused.stderr
    assert "(missing: cmaes, numpy, optuna, pyarrow, ray, scikit-learn, scipy)" in refused.stderr
    with (
        _process([slim, *_command("api")], environment, tmp_path / "api.log"),
        _process([full, *_command("worker")], environment, tmp_path / "worker.log"),
    ):
        base = f"http://127.0.0.1:{port}"
        _answer(f"{base}/readyz")
        job = httpx.post(
            f"{base}/v1/jobs",
            json={
                "workload": {"name": "digits-mlp"},
                "budget": {"num_trials": 1},
                "baseline": None,
                "confirmation": None,
                "training": {"num_steps": 40, "evaluate_every": 20},
                "resources": {"workers_per_trial": 1},
            },
            timeout=PATIENCE_SECONDS,
        )
        assert job.status_code == 201, job.text
        address = (
            f"{base}{job.headers['location']}" if job.headers["location"].startswith("/") else job.headers["location"]
        )
        ended = lambda: _get(address).json()["state"] in ("succeeded", "failed", "cancelled")  # noqa: E731
        wait_until(ended, "the end of the job")
        state = _get(address).json()
        assert state["state"] == "succeeded", (state, (tmp_path / "worker.log").read_text()[-3000:])
        (recommendation,) = _answer(f"{base}/v1/recommendations?workload=digits-mlp").json()["items"]
        assert recommendation["optimizer"] == "shampoo"


def test_images_run_the_commands_that_compose_runs() -> None:
    for service in ("api", "worker"):
        assert f"CMD {COMPOSE['services'][service]['command']}".replace("'", '"') in _target(service)


@pytest.mark.processes
def test_a_digest_that_cannot_be_had_is_not_written(tmp_path: Path) -> None:
    copy, docker = tmp_path / "docker", tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    copy.mkdir()
    for name in ("pin", "compose.yaml"):
        shutil.copy(ROOT / "docker" / name, copy)
    environment = {**os.environ, "PATH": f"{docker.parent}{os.pathsep}{os.environ['PATH']}"}
    for script, digest in (("exit 1", None), ("echo no such thing", None), ("echo sha256:0a", "sha256:0a")):
        docker.write_text(f"#!/bin/sh\n{script}\n")
        docker.chmod(0o755)
        ended = subprocess.run(["sh", copy / "pin"], env=environment, check=False, capture_output=True)
        assert (ended.returncode == 0) is (digest is not None)
        assert not (copy / "images.env.new").exists()
        assert (copy / "images.env").exists() is (digest is not None)
    for line in (copy / "images.env").read_text().splitlines():
        assert re.fullmatch(r"(PYTHON|POSTGRES)_IMAGE=[a-z]+:[\w.-]+@sha256:0a", line)


def test_each_image_installs_what_its_lock_lists_with_hashes_and_then_the_package_alone() -> None:
    for name in ("api", "worker"):
        assert _installs(name) == [
            f"pip install --require-hashes -r docker/{name}.lock",
            "pip install --no-deps .",
        ]


def test_the_locks_hold_what_the_extras_ask_for_and_the_apis_has_nothing_that_trains() -> None:
    api, worker = _locked("api"), _locked("worker")
    assert {_distribution(requirement) for requirement in EXTRAS["api"]} <= set(api)
    assert api.items() <= worker.items()
    trains = {"cmaes", "numpy", "optuna", "pyarrow", "ray", "scikit-learn", "scipy", "torch"}
    assert not trains & set(api)
    assert trains <= set(worker)


def _locked(name: str) -> dict[str, str]:
    """{distribution: version} of a lock."""
    lock = (ROOT / "docker" / f"{name}.lock").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+) \\$", lock, re.MULTILINE))


def _distribution(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found.group()


@pytest.mark.parametrize(
    ("name", "service"),
    [
        *((name, service) for name, service in COMPOSE["services"].items()),
        *((name, service) for name, service in RAY["services"].items() if "image" in service),
    ],
)
def test_a_container_is_bounded_reaped_and_holds_no_password(name: str, service: dict[str, Any]) -> None:
    assert service["init"] is True
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "mem_limit" in service
    assert "pids_limit" in service
    assert "healthcheck" in service or name == "worker"
    assert service.get("read_only", False) or name == "postgres"  # it makes its own user's files
    for variable, value in service["environment"].items():
        if "PASSWORD" in variable or "TOKEN" in variable:
            assert variable.endswith(("_FILE", "_PATH"))
            assert str(value).startswith("/run/secrets/")
        assert ":" not in str(value).partition("://")[2].partition("@")[0], "a password in a URL"


def test_torch_alone_is_needed_and_each_library_has_one_range_wherever_it_is_named() -> None:
    (torch,) = PROJECT["dependencies"]
    assert torch.startswith("torch>")
    ranges: dict[str, set[str]] = {}
    for requirement in chain.from_iterable(EXTRAS.values()):
        if not requirement.startswith("shampoo-tuner["):
            ranges.setdefault(re.split(r"[\[><=]", requirement)[0], set()).add(requirement)
    assert {name: found for name, found in ranges.items() if len(found) > 1} == {}
