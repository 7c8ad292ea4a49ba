"""How the tests are shared out among workers."""

from __future__ import annotations

from tests import workers

SERVICES = [
    "tests/service/behaviour/test_chaos.py",
    "tests/e2e/test_readme.py",
    "tests/service/behaviour/test_controls.py",
    "tests/service/scheduler/cluster/test_cluster.py",
    "tests/service/scheduler/cluster/test_foreign_cluster.py",
    "tests/service/behaviour/test_interruptions.py",
    "tests/service/scheduler/test_job_run.py",
    "tests/service/scheduler/ranks/test_rank_group.py",
    "tests/service/scheduler/cluster/test_ray_cluster.py",
    "tests/service/scheduler/test_worker.py",
    "tests/service/cli/test_demo.py",
    "tests/service/server/test_serve.py",
]
"""Some of them, as they are to come."""
OTHERS = [
    "tests/shampoo/distributed/test_state.py",
    "tests/trainers/test_loop.py",
    "tests/service/use_cases/test_submit.py",
]


def test_what_starts_services_is_one_scope_and_others_are_files_or_share_warm_ranks() -> None:
    assert all(map(workers.starts_services, (*workers.LONGEST_SERVICES, *workers.PATIENT_SERVICES)))
    assert {workers.scope(f"{path}::test_it[a::b]") for path in SERVICES} == {"services"}
    assert [workers.scope(f"{path}::test_it") for path in OTHERS] == ["tests/shampoo/distributed", *OTHERS[1:]]
    patient = list(workers.PATIENT_SERVICES)
    assert [workers.scope(f"{path}::test_it") for path in patient] == patient
    assert workers.scope("tests/test_workers.py::test_it") == "tests/test_workers.py"


def test_the_longest_come_first_the_patient_last_and_files_stay_whole() -> None:
    patient = workers.PATIENT_SERVICES
    paths = [*patient[::-1], *reversed(OTHERS), *SERVICES[3:], *reversed(SERVICES[:3])]
    collected = [f"{path}::test_{name}" for path in paths for name in "ba"]
    expected = [f"{path}::test_{name}" for path in (*SERVICES, *OTHERS, *patient) for name in "ba"]
    assert sorted(collected, key=workers.position) == expected
