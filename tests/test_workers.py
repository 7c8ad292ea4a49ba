"""How the tests are shared out among workers."""

from __future__ import annotations

from tests import workers

SERVICES = [
    "tests/service/scheduler/test_chaos.py",
    "tests/e2e/test_readme.py",
    "tests/e2e/test_workloads.py",
    "tests/service/scheduler/test_controls.py",
    "tests/e2e/test_containers.py",
    "tests/e2e/test_example_package.py",
    "tests/service/scheduler/test_cluster.py",
    "tests/service/scheduler/test_foreign_cluster.py",
    "tests/service/scheduler/test_interruptions.py",
    "tests/service/scheduler/test_job_run.py",
    "tests/service/scheduler/test_rank_group.py",
    "tests/service/scheduler/test_ray_cluster.py",
    "tests/service/scheduler/test_worker.py",
    "tests/service/test_demo.py",
    "tests/service/test_front.py",
    "tests/service/test_serve.py",
]
"""Some of them, as they are to come."""
OTHERS = ["tests/shampoo/distributed/test_state.py", "tests/trainers/test_loop.py", "tests/service/test_jobs.py"]


def test_what_starts_services_is_one_scope_and_others_are_files_or_share_warm_ranks() -> None:
    assert {workers.scope(f"{path}::test_it[a::b]") for path in SERVICES} == {"services"}
    assert [workers.scope(f"{path}::test_it") for path in OTHERS] == ["tests/shampoo/distributed", *OTHERS[1:]]
    assert workers.scope("tests/test_workers.py::test_it") == "tests/test_workers.py"


def test_the_longest_come_first_and_files_stay_whole() -> None:
    paths = [*reversed(OTHERS), *SERVICES[4:], *reversed(SERVICES[:4])]
    collected = [f"{path}::test_{name}" for path in paths for name in "ba"]
    expected = [f"{path}::test_{name}" for path in (*SERVICES, *OTHERS) for name in "ba"]
    assert sorted(collected, key=workers.position) == expected
