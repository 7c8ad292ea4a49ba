"""How pytest-xdist's workers share the tests: two, as `tests/run` starts them, or any number.

Tests that start whole services or Ray clusters run one after the other, in the first worker. They wait much, some look
at the clock, and a service that starts ends what killed ones have left on the machine, so no two of them can run beside
each other. The other workers meanwhile run everything else, file by file, at a lower priority: it computes, and can
wait. What starts services, but kills none and measures no time, comes last, for whichever worker is free first.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[1]
STARTS_SERVICES = re.compile(
    r'ServiceProcesses|"service", "(?:serve|demo)"|shampoo-tuner demo|_command\("worker"\)|end_abandoned_runs'
    r"|import serving|ray_cluster\.connect\(|import Cluster|ray\.init\(|tests/gpu/run"
)
"""Found in each test file that starts services, workers or Ray clusters, and in no other."""
LONGEST_SERVICES = (
    "tests/service/behaviour/test_chaos.py",
    "tests/e2e/test_readme.py",
    "tests/service/behaviour/test_controls.py",
)
"""They come first: what needs most time has it then, and a failure shows early."""
PATIENT_SERVICES = (
    "tests/e2e/test_workloads.py",
    "tests/e2e/test_example_package.py",
    "tests/service/behaviour/test_front.py",
    "tests/e2e/test_containers.py",
)
"""They may run beside other services: they kill nothing and have minutes for everything."""
FIRST_OF_THE_OTHERS = ("tests/shampoo/distributed/", "tests/trainers/", "tests/e2e/")
"""What takes long, so that the workers end together."""
NICENESS = 5
"""Of all workers but the first: little enough that nothing starves."""


@functools.cache
def starts_services(path: str) -> bool:
    """Whether a test file, named as seen from the repository, starts services, workers or Ray clusters."""
    file = ROOT / path
    return path != "tests/test_workers.py" and file.is_file() and STARTS_SERVICES.search(file.read_text()) is not None


def scope(node_id: str) -> str:
    """The tests that one worker runs in a row: those of most services, or of a file, or that share warm ranks."""
    path = node_id.partition("::")[0]
    if starts_services(path) and path not in PATIENT_SERVICES:
        return "services"
    return "tests/shampoo/distributed" if path.startswith("tests/shampoo/distributed/") else path


def position(node_id: str) -> tuple[int, int]:
    """Orders tests as they are handed out; equal for those that stay as they are collected."""
    path = node_id.partition("::")[0]
    if path in PATIENT_SERVICES:
        return 2, PATIENT_SERVICES.index(path)
    if starts_services(path):
        return 0, LONGEST_SERVICES.index(path) if path in LONGEST_SERVICES else len(LONGEST_SERVICES)
    places = [place for place, beginning in enumerate(FIRST_OF_THE_OTHERS) if path.startswith(beginning)]
    return 1, min(places, default=len(FIRST_OF_THE_OTHERS))


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's scheduler of whole scopes, with `scope` and in the order of `position`."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
        @property
        def nodes(self) -> list[Any]:
            return sorted(super().nodes, key=lambda node: str(node.gateway.id))  # whichever was ready first

        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    config.option.loadscopereorder = False  # by number of tests, which says nothing of how long they take
    return Scheduler(config, log)


def lower_priority(worker_input: dict[str, Any] | None) -> None:
    """Lets the first worker go before this process if it is another one.

    Args:
        worker_input: what xdist tells a worker about itself; None: there are no workers.
    """
    if worker_input is not None and worker_input["workerid"] != "gw0":
        os.nice(NICENESS)
