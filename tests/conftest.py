"""Settings of all tests."""

from __future__ import annotations

import gc
import logging
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support import cases, lanes, rings, s3_server
from tests.support.cpu_table import CpuTimes
from tests.support.process_guard import ProcessGuard

# Threads that wait for each other by spinning are a hundred times slower where another process wants a CPU, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # nor do they spin in tests that ask for two
# Ray runs trials at the lowest priority: beside anything else on the machine, tests would mostly wait for ranks.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's own name

# Jobs of tests read data that tests have written.
os.environ.setdefault("SHAMPOO_TUNER_DATA_ROOTS", os.pathsep.join([tempfile.gettempdir(), str(Path.cwd())]))

# Few services of tests are asked for what the warm process is there for, and those start it by asking.
os.environ.setdefault("SHAMPOO_TUNER_WARM_AFTER_SECONDS", "3600")

os.environ.update(s3_server.ENVIRONMENT)

# What Hypothesis keeps between runs is a cache like pytest's, and no entry of its own at the top of the repository.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path.cwd() / ".pytest_cache" / "hypothesis"))

# An example that takes long on a busy machine is no failure. Each run draws others, so that a run needs few.
settings.register_profile("suite", deadline=None, max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20")))
settings.load_profile("suite")


LANES_FILE = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def s3() -> Iterator[s3_server.S3Server]:
    """An S3 server that the tests of a session share; each takes paths of its own, and mends what it broke."""
    with s3_server.running() as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Leaves modules and tests out of all garbage collections, each of which would look at all of them for 0.3 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        _let_loggers_propagate()
        gc.enable()
        gc.set_threshold(20_000)  # the end of each file collects, too
        gc.collect()
        gc.freeze()


def _let_loggers_propagate() -> None:
    """Lets the handlers of the root logger hear of what torch logs, as pytest's do in any case.

    pytest hangs two on every logger that does not propagate, for each set-up, test and tear-down: torch has fifty.
    """
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.partition(".")[0] == "torch":
            logger.propagate = True


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_a_file_is_blamed_on_it() -> Iterator[None]:
    """Collects what the tests of a file have left: whatever of it was not closed is an error of the last of them.

    What outlives a file, modules and caches, is left out of later collections, too.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _garbage_of_a_failed_test_is_blamed_on_it() -> Iterator[None]:
    """Collects what a failed test has left, which its traceback would keep until other tests run."""
    yield
    if hasattr(sys, "last_value"):  # of this test: pytest sets it
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        gc.collect()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suite")
    group.addoption("--fast", action="store_true", help="run only what starts no process, without a path some of it")
    group.addoption("--draw", metavar="COMMIT", help="run the half of the suite that the commit of this name draws")
    group.addoption("--cpu-table", type=Path, metavar="FILE", help="write a table of each file's CPU time")


def pytest_configure(config: pytest.Config) -> None:
    lanes.lower_priority(getattr(config, "workerinput", None))
    cases.taken = rings.within_one_test(config)
    config.pluginmanager.register(ProcessGuard())
    if config.option.cpu_table is not None:
        config.pluginmanager.register(CpuTimes(config, config.option.cpu_table))
    if not hasattr(config, "workerinput"):
        directory = tempfile.TemporaryDirectory(prefix="lanes-")
        config.add_cleanup(directory.cleanup)
        config.stash[LANES_FILE] = Path(directory.name) / "lanes.json"
        os.environ.setdefault("PET_LOG_DIR", directory.name)  # or each torchrun makes a directory, and leaves it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Tests run in the background of a script: what they start would inherit that it cannot be interrupted.
        signal.signal(signal.SIGINT, lambda _number, _frame: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lanes.mark_by_fixtures(items)
    if config.option.fast:
        starting_none = [item for item in items if lanes.lane(item) == "fast"]
        _keep(rings.sample(starting_none) if rings.is_sampled(config) else set(starting_none), items, config)
    if config.option.draw is not None:
        _keep(rings.draw(items, config.option.draw), items, config)
    if hasattr(config, "workerinput"):
        items.sort(key=lanes.position)
        lanes.write_lanes(config, items)


def _keep(taken: set[pytest.Item], items: list[pytest.Item], config: pytest.Config) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item not in taken])
    items[:] = [item for item in items if item in taken]


def pytest_report_header(config: pytest.Config) -> list[str]:
    if config.option.draw is None:
        return []
    return [f"a half of the suite, as {config.option.draw} draws it: tests/support/rings.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    failed = {report.nodeid: None for kind in ("failed", "error") for report in terminalreporter.getreports(kind)}
    if failed:
        terminalreporter.section("to see a failure again")
        for node_id in failed:
            terminalreporter.write_line(f"tests/run -n 0 {shlex.quote(node_id)}")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[lanes.LANES_FILE] = str(node.config.stash[LANES_FILE])
    node.workerinput[rings.IS_NAMED] = rings.is_named(node.config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return lanes.make_scheduler(config, log, config.stash[LANES_FILE])
