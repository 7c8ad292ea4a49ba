"""The lanes of the suite: which processes a test starts, and how pytest-xdist's workers share the tests.

A test's lane is its marker; pyproject.toml describes each:

- `services`: starts whole services, workers or Ray clusters, and kills some of them or depends on the clock. All of
  these run one after the other, in the first worker: when a worker of the service starts, it ends what killed ones have
  left on the machine, so two such tests would disturb each other.
- `patient`: also starts services or Ray clusters, but kills no worker of the service and allows minutes for everything,
  so it may run beside any other test. These tests are in two queues that take about the same time (`FIRST_ROW` and all
  others). So at most three tests of these two lanes run at once: each waits a lot, and two cores can run three of them
  and other tests.
- `processes`: starts another process: ranks, a browser, a database server, a command.
- none: starts no process. The fast ring, `tests/run --fast`, is of these (`rings.py`).

A test that uses a fixture that starts processes gets the marker automatically. `tests/run` has four workers for two
cores: three begin with tests that wait a lot, services and both queues of `patient`, and the fourth with those that
start other processes, which wait little. Tests that start none come last, file by file, so that all workers end
together. The fast ring has three workers, because its tests hardly wait.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

LANES = ("services", "patient", "processes", "fast")
"""In the order in which their tests are distributed."""
FIXTURES = {
    "ranks": pytest.mark.processes(minutes=1),  # together, because they share the ranks
    "bundles": pytest.mark.patient,
    **dict.fromkeys(("two_ranks", "three_ranks", "four_ranks"), pytest.mark.processes),
    **dict.fromkeys(("browser", "postgresql_url", "s3"), pytest.mark.processes),
}
"""The marker of tests that use a fixture of this name."""
FIRST_ROW = ("tests/service/behaviour/", "tests/e2e/test_readme.py", "tests/e2e/test_example_package.py")
"""Their patient tests take about as long as all other patient tests."""
NICENESS = 5
"""The niceness of all workers except the first: little enough that nothing starves."""
LANES_FILE = "lanes_file"
"""A key of `workerinput`: the file in which the first worker writes the lanes for the scheduler, which only sees
names."""


def lane(item: pytest.Item) -> str:
    """The lane of a test."""
    marked = {marker.name for marker in item.iter_markers()}
    return next((name for name in LANES if name in marked), "fast")


def mark_by_fixtures(items: Iterable[pytest.Item]) -> None:
    """Marks the tests that have no marker of a lane by their fixtures."""
    for item in items:
        if lane(item) == "fast":
            for fixture in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
                item.add_marker(FIXTURES[fixture])


def position(item: pytest.Item) -> tuple[int, float]:
    """The sort key by which tests are distributed; equal for those that keep the order of collection.

    Within a lane, tests whose marker has the longest time come first: `services(minutes=5)`.
    """
    name = lane(item)
    marker = item.get_closest_marker(name)
    return LANES.index(name), 0.0 if marker is None else -float(marker.kwargs.get("minutes", 0.0))


def scope(node_id: str, name: str) -> str:
    """The group of tests that one worker runs in a row: all that start services, one queue of `patient`, those of a
    file and a lane, or those that share warm ranks."""
    path = node_id.partition("::")[0]
    if name == "services":
        return name
    if name == "patient":
        return f"{name}, first row" if path.startswith(FIRST_ROW) else name
    if name == "processes" and path.startswith("tests/shampoo/distributed/"):
        return f"{name} tests/shampoo/distributed"
    return f"{name} {path}"


def write_lanes(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Tells the scheduler, in another process, the lane of each test."""
    worker_input = getattr(config, "workerinput", {})
    if worker_input.get("workerid") == "gw0":
        path = Path(worker_input[LANES_FILE])
        path.write_text(json.dumps({item.nodeid: lane(item) for item in items}))


def make_scheduler(config: pytest.Config, log: Any, lanes_file: Path) -> Any:
    """xdist's scheduler of whole scopes, with `scope`; the workers have collected in the order of `position`."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):  # type: ignore[misc]  # its base class is untyped
        _lanes: dict[str, str] | None = None

        @property
        def nodes(self) -> list[Any]:
            return sorted(super().nodes, key=lambda node: str(node.gateway.id))  # independent of which was ready first

        def _split_scope(self, nodeid: str) -> str:
            if self._lanes is None:
                self._lanes = json.loads(lanes_file.read_text())
            return scope(nodeid, self._lanes[nodeid])

        def remove_node(self, node: Any) -> str | None:
            """Does not give the test that killed a worker to another one: xdist's own scheduler would do so again and
            again."""
            units = self.assigned_work[node].values()
            left = ((unit, name) for unit in units for name, is_done in unit.items() if not is_done)
            unit, crashed = next(left, (None, None))
            if unit is not None:
                unit[crashed] = True
            super().remove_node(node)
            return crashed

    config.option.loadscopereorder = False  # it orders by the number of tests, which says nothing about their time
    return Scheduler(config, log)


def lower_priority(worker_input: dict[str, Any] | None) -> None:
    """Gives the first worker priority over this process, if this is another one.

    Args:
        worker_input: what xdist tells a worker about itself; None: there are no workers.
    """
    if worker_input is not None and worker_input["workerid"] != "gw0":
        os.nice(NICENESS)
