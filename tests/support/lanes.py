"""The lanes of the suite: which tests start what, and how pytest-xdist's workers share them.

A test's lane is its marker, and pyproject.toml says what each promises:

- `services`: starts whole services, workers or Ray clusters, and kills some of them or looks at the clock. All of these
  run one after the other, in the first worker: a worker of the service that starts ends what killed ones have left on
  the machine, so that two such tests could change each other's subject.
- `patient`: starts services or Ray clusters, too, but kills no worker of the service and has minutes for everything, so
  that it may run beside any other test. They are in two rows that take about as long (`FIRST_ROW` and all others), so
  that no more than three of all these run at once: each waits much, and two cores carry three and what else runs.
- `processes`: starts another process: ranks, a browser, a database server, a command.
- none: starts no process. The fast ring, `tests/run --fast`, is of these (`rings.py`).

Whoever asks for a fixture that starts processes has the marker by that. `tests/run` has four workers for two cores:
three begin with what waits much, services and both rows of the patient, and the fourth with what starts other
processes, which waits little. What starts none comes last, file by file, so that all end together. The fast ring has
three workers, as little in it waits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

LANES = ("services", "patient", "processes", "fast")
"""In the order in which they are handed out."""
FIXTURES = {
    "ranks": pytest.mark.processes(minutes=1),  # together: they share them
    "bundles": pytest.mark.patient,
    **dict.fromkeys(("two_ranks", "three_ranks", "four_ranks"), pytest.mark.processes),
    **dict.fromkeys(("browser", "postgresql_url", "s3"), pytest.mark.processes),
}
"""The marker of whoever asks for a fixture of this name."""
FIRST_ROW = ("tests/service/behaviour/", "tests/e2e/test_readme.py", "tests/e2e/test_example_package.py")
"""Their patient tests take about as long as all others."""
NICENESS = 5
"""Of all workers but the first: little enough that nothing starves."""
LANES_FILE = "lanes_file"
"""Where the first worker leaves the lanes for the scheduler, which sees only names: a key of `workerinput`."""


def lane(item: pytest.Item) -> str:
    """The lane of a test."""
    marked = {marker.name for marker in item.iter_markers()}
    return next((name for name in LANES if name in marked), "fast")


def mark_by_fixtures(items: Iterable[pytest.Item]) -> None:
    """Marks the tests that have no marker of a lane by the fixtures that they ask for."""
    for item in items:
        if lane(item) == "fast":
            for fixture in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
                item.add_marker(FIXTURES[fixture])


def position(item: pytest.Item) -> tuple[int, float]:
    """Orders tests as they are handed out; equal for those that stay as they are collected.

    Of a lane come those first whose marker says that they take longest: `services(minutes=5)`.
    """
    name = lane(item)
    marker = item.get_closest_marker(name)
    return LANES.index(name), 0.0 if marker is None else -float(marker.kwargs.get("minutes", 0.0))


def scope(node_id: str, name: str) -> str:
    """The tests that one worker runs in a row: all that start services, a half of the patient, or those of a file and a
    lane, or that share warm ranks."""
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

    class Scheduler(LoadScopeScheduling):  # type: ignore[misc]  # of any type, therefore
        _lanes: dict[str, str] | None = None

        @property
        def nodes(self) -> list[Any]:
            return sorted(super().nodes, key=lambda node: str(node.gateway.id))  # whichever was ready first

        def _split_scope(self, nodeid: str) -> str:
            if self._lanes is None:
                self._lanes = json.loads(lanes_file.read_text())
            return scope(nodeid, self._lanes[nodeid])

        def remove_node(self, node: Any) -> str | None:
            """Gives the test that a worker died of to nobody else: xdist's own hands it out again and again."""
            units = self.assigned_work[node].values()
            left = ((unit, name) for unit in units for name, is_done in unit.items() if not is_done)
            unit, crashed = next(left, (None, None))
            if unit is not None:
                unit[crashed] = True
            super().remove_node(node)
            return crashed

    config.option.loadscopereorder = False  # by number of tests, which says nothing of how long they take
    return Scheduler(config, log)


def lower_priority(worker_input: dict[str, Any] | None) -> None:
    """Lets the first worker go before this process if it is another one.

    Args:
        worker_input: what xdist tells a worker about itself; None: there are no workers.
    """
    if worker_input is not None and worker_input["workerid"] != "gw0":
        os.nice(NICENESS)
