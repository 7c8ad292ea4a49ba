"""How the tests are shared out among workers."""

from __future__ import annotations

import re
from pathlib import Path

from tests import workers

ROOT = Path(__file__).parents[1]
STARTS_A_SERVICE = re.compile(
    r'ServiceProcesses|"service", "(?:serve|demo)"|shampoo-tuner demo'
    r"|ray_cluster\.connect\(|import Cluster|ray\.init\(|run_worker\("
)


def test_all_that_start_services_or_clusters_and_no_others_run_one_after_the_other() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__) and STARTS_A_SERVICE.search(path.read_text())
    }
    alone = {"tests/service/scheduler/test_worker.py", "tests/e2e/test_containers.py"}  # they start parts of one
    assert found | alone == set(workers.WITH_SERVICES)
    assert {workers.scope(f"{path}::test_it[a::b]") for path in workers.WITH_SERVICES} == {"services"}


def test_services_come_first_and_files_stay_whole() -> None:
    paths = ["tests/service/test_jobs.py", "tests/trainers/test_loop.py", *reversed(workers.WITH_SERVICES)]
    ordered = sorted((f"{path}::test_{name}" for path in paths for name in "ba"), key=workers.position)
    services = [f"{path}::test_{name}" for path in workers.WITH_SERVICES for name in "ba"]
    assert ordered[: len(services)] == services
    assert ordered[len(services) :] == [f"{path}::test_{name}" for path in reversed(paths[:2]) for name in "ba"]


def test_tests_that_share_warm_ranks_stay_together_and_others_with_their_file() -> None:
    assert workers.scope("tests/shampoo/distributed/test_state.py::test_it") == "tests/shampoo/distributed"
    assert workers.scope("tests/shampoo/test_state.py::test_it[x]") == "tests/shampoo/test_state.py"
