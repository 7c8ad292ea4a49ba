"""The fast ring of the suite: what `tests/run --fast` runs of the tests that start no process.

With a path it is all of them there. Without one it is one case in so many of each parametrised test, those within one
test (`cases.in_one_test`) included, and no test that is marked `slow`: what a change breaks outside its own package, it
seldom breaks in a single case. Each test begins with another case, so that tests with the same parameter meet other
values, and where the cases of a kind stand together, a test of many meets every kind.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

EVERY = 8
"""Of the cases of a test, one in so many is in the ring."""
IS_NAMED = "is_named"
"""Where xdist's workers, who are given all paths by name, learn it: a key of `workerinput`."""


def is_named(config: pytest.Config) -> bool:
    """Whether the command named what to run."""
    told = getattr(config, "workerinput", {}).get(IS_NAMED)
    return config.args_source is pytest.Config.ArgsSource.ARGS if told is None else bool(told)


def is_sampled(config: pytest.Config) -> bool:
    """Whether only a part of the cases is run."""
    return config.option.fast and not is_named(config)


def part(cases: Sequence[T], test: str) -> Sequence[T]:
    """Some of the cases of a test of that name, at least one."""
    return cases[zlib.crc32(test.encode()) % min(EVERY, len(cases)) :: EVERY]


def sample(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Of each test that is not slow some of its cases."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") is None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {item for test, of_test in cases.items() for item in part(of_test, test)}
