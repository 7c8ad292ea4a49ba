"""A user's own workloads as jobs of a real service: an installed package, and a class in the service's directory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import pytest

from service.client import ApiError, Client, ServiceUnreachable
from service.domain import JobState
from tests.support.service.wheels import write_wheel
from tests.support.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS
from trainers.retry import retry
from trainers.workload_check.__main__ import DEFAULT_BATCH_SIZE
from trainers.workload_check.child import outcome_of
from trainers.workload_check.rules import RULES
from trainers.workload_check.subject import Subject

pytestmark = pytest.mark.patient

PACKAGE = Path(__file__).parents[1] / "example_package"
ROOT = PACKAGE.parents[1]

T = TypeVar("T")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of processes that find the installed example package."""
    target = tmp_path_factory.mktemp("installed")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    install += ["--target", str(target), str(PACKAGE)]
    subprocess.run(install, check=True, timeout=LONG_PATIENCE_SECONDS)
    index = target / "index"
    write_wheel(index, "sent-package", "NAME = 'sent-package'")
    found = {"PYTHONPATH": f"{target}{os.pathsep}{ROOT}", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    return {**os.environ, **found, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """A user's directory, with the template of a workload in it, unchanged."""
    directory = tmp_path_factory.mktemp("project")
    template = subprocess.run(
        [sys.executable, "-m", "service", "workload", "new", "my-model"],
        env=environment,
        capture_output=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    (directory / "my_model.py").write_bytes(template.stdout)
    return directory


@pytest.fixture(scope="module")
def client(directory: Path, environment: dict[str, str]) -> Iterator[Client]:
    """A client of a service that was started in the user's directory."""
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "service",
            "serve",
            "--allow-code",
            "--port",
            "0",
            "--data-dir",
            str(directory / "data"),
        ],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            told = re.match(r"shampoo-tuner is at (http://\S+)", process.stdout.readline())
            assert told is not None
            with Client(told.group(1)) as client:
                yield client
        finally:
            process.terminate()


def patiently(ask: Callable[[], T]) -> T:
    """The answer of a service that may need longer for it than a client waits: to import a class, on a busy machine."""
    return retry(
        ask,
        is_temporary=lambda error: (
            isinstance(error, ServiceUnreachable)
            or (isinstance(error, ApiError) and error.status == HTTPStatus.SERVICE_UNAVAILABLE)
        ),
        give_up_seconds=PATIENCE_SECONDS,
        first_pause_seconds=1.0,
    )


def tune(client: Client, workload: dict[str, Any], **parts: Any) -> Any:
    """The job of one trial, unless `parts` say otherwise, at its end."""
    specification = {
        "workload": workload,
        "budget": {"num_trials": 1},
        "training": {"num_steps": 20, "evaluate_every": 10},
        "resources": {"workers_per_trial": 1, "parallel_trials": 1},
        "pruner": {"name": "none"},
        **parts,
    }
    job = patiently(lambda: client.submit(specification, idempotency_key=json.dumps([workload, parts])))
    return client.wait(job.id, timeout_seconds=LONG_PATIENCE_SECONDS)


@pytest.mark.parametrize("name", ["wine-network", "my_model:MyModel"])
@pytest.mark.filterwarnings("ignore")  # as the command does
def test_it_keeps_the_rules(
    directory: Path, environment: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rules of `workload check`, whose command `tests/trainers/workload_check` runs, in this process."""
    for path in (environment["PYTHONPATH"].partition(os.pathsep)[0], str(directory)):
        monkeypatch.syspath_prepend(path)
    imported = set(sys.modules)
    subject = Subject(name, {}, batch_size=DEFAULT_BATCH_SIZE)
    try:
        found = {rule.name: outcome_of(rule, subject) for rule in RULES}
    finally:
        for module in sys.modules.keys() - imported:
            if module.partition(".")[0] in ("my_model", "wine_network"):
                del sys.modules[module]  # which are nothing to other tests
    assert {outcome.status for outcome in found.values()} <= {"ok", "skipped"}, found


def test_the_installed_package_is_listed_and_tuned(client: Client) -> None:
    (listed,) = (one for one in patiently(client.workloads) if one.name == "wine-network")
    assert listed.title.startswith("Wines")
    assert listed.options["label_smoothing"].description == "of the training loss, in [0, 1) (float)"
    job = tune(
        client,
        {"name": "wine-network", "options": {"label_smoothing": 0.1}},
        budget={"num_trials": 2},
        resources={"workers_per_trial": 2, "cpus_per_worker": 0.5, "parallel_trials": 1},
    )
    assert job.state is JobState.SUCCEEDED, job.failure
    recommendation = client.recommendation(job.id)
    assert recommendation.workload_options == {"label_smoothing": 0.1}


def test_code_that_comes_with_a_job_is_tuned_before_what_the_service_has_of_that_name(
    client: Client, directory: Path, tmp_path: Path
) -> None:
    """The service's directory has a `my_model` of its own, which this is not; this needs a variable and a package."""
    own = (directory / "my_model.py").read_text()
    lines = "import os\n\nimport sent_package\nfrom sent_part import GREETING\n\n"
    lines += "assert os.environ['GREETING'] == GREETING\n"
    (tmp_path / "my_model.py").write_text(own.replace("\nclass ", f"\n{lines}\n\nclass ", 1))
    (tmp_path / "sent_part.py").write_text("GREETING = 'of the job'\n")
    sent = client.send_code(tmp_path)
    code = {"sha256": sent.sha256, "environment": {"GREETING": "of the job"}, "requirements": ["sent-package"]}
    job = tune(client, {"name": "my_model:MyModel"}, code=code, baseline=None)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert client.recommendation(job.id).code_sha256 == sent.sha256
    clone = patiently(lambda: client.clone(job.id, idempotency_key="again"))
    assert clone.specification.code == job.specification.code


def test_a_class_in_the_services_directory_is_tuned_with_its_options(client: Client) -> None:
    space = {
        "optimizer": "adamw",
        "parameters": [{"type": "categorical", "name": "workload.width", "choices": [8, 16], "default": 8}],
    }
    job = tune(client, {"name": "my_model:MyModel"}, search_space=space, baseline=None)
    assert job.state is JobState.SUCCEEDED, job.failure
    (newest, *_) = client.recommendations("my_model:MyModel")
    assert newest.workload_options["width"] in (8, 16)
