"""Settings of all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests import workers
from tests.support import s3_server

# Threads that wait for each other by spinning are a hundred times slower where another process wants a CPU, too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray runs trials at the lowest priority: beside anything else on the machine, tests would mostly wait for ranks.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's own name

os.environ.update(s3_server.ENVIRONMENT)

# An example that takes long on a busy machine is no failure.
settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")


@pytest.fixture(scope="session")
def s3() -> Iterator[s3_server.S3Server]:
    """An S3 server that the tests of a session share; each takes paths of its own, and mends what it broke."""
    with s3_server.running() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_a_file_is_blamed_on_it() -> Iterator[None]:
    """Collects what the tests of a file have left: whatever of it was not closed is an error of the last of them."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _garbage_of_a_failed_test_is_blamed_on_it() -> Iterator[None]:
    """Collects what a failed test has left, which its traceback would keep until other tests run."""
    yield
    if hasattr(sys, "last_value"):  # of this test: pytest sets it
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        gc.collect()


def pytest_configure(config: pytest.Config) -> None:
    workers.lower_priority(getattr(config, "workerinput", None))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Tests run in the background of a script: what they start would inherit that it cannot be interrupted.
        signal.signal(signal.SIGINT, lambda _number, _frame: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: workers.position(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return workers.make_scheduler(config, log)
