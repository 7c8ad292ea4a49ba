"""The parts of the suite that a run may take: the fast ring, and the half that a commit draws.

`tests/run --fast` is of the tests that start no process. With a path it is all of them there. Without one it is one
case in so many of each parametrised test, those within one test (`cases.in_one_test`) included, and no test that is
marked `slow`: what a change breaks outside its own package, it seldom breaks in a single case. Each test begins with
another case, so that tests with the same parameter meet other values, and where the cases of a kind stand together, a
test of many meets every kind.

`tests/run --draw COMMIT`, as `.ci/run --half` has it, is every second case of each test with more than two, and every
second test that starts whole services or Ray, but for those marked `always`. Which they are, the name of the commit
says: the same in each run of a commit, others for the next.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pytest

from tests.support.lanes import lane

T = TypeVar("T")

EVERY = 8
"""Of the cases of a test, one in so many is in the fast ring."""
DRAWN_EVERY = 2
"""Of the cases of a test, and of the tests that start services, one in so many is drawn by a commit."""
ALWAYS = "always"
"""Marks tests with services that every commit draws."""
IS_NAMED = "is_named"
"""Where xdist's workers, who are given all paths by name, learn it: a key of `workerinput`."""


def is_named(config: pytest.Config) -> bool:
    """Whether the command named what to run."""
    told = getattr(config, "workerinput", {}).get(IS_NAMED)
    return config.args_source is pytest.Config.ArgsSource.ARGS if told is None else bool(told)


def is_sampled(config: pytest.Config) -> bool:
    """Whether only a part of the fast ring's cases is run."""
    return config.option.fast and not is_named(config)


def within_one_test(config: pytest.Config) -> Callable[[Sequence[T], str], Sequence[T]]:
    """Takes of the cases that a test of some name has within it those that are to be run."""
    if is_sampled(config):
        return part
    commit = config.option.draw
    return lambda cases, test: cases if commit is None else drawn_part(cases, test, commit)


def part(cases: Sequence[T], test: str) -> Sequence[T]:
    """Some of the cases of a test of that name, at least one."""
    return cases[zlib.crc32(test.encode()) % min(EVERY, len(cases)) :: EVERY]


def drawn_part(cases: Sequence[T], test: str, commit: str, *, may_be_none: bool = False) -> Sequence[T]:
    """Every second case of a test of that name; all where there are no more than two, unless none may be taken."""
    if len(cases) <= DRAWN_EVERY and not may_be_none:
        return cases
    return cases[zlib.crc32(f"{commit} {test}".encode()) % DRAWN_EVERY :: DRAWN_EVERY]


def sample(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Of each test that is not slow some of its cases."""
    tests = _by_test(item for item in items if item.get_closest_marker("slow") is None)
    return {item for test, cases in tests.items() for item in part(cases, test)}


def draw(items: Iterable[pytest.Item], commit: str) -> set[pytest.Item]:
    """The half of the suite that the commit of that name draws."""
    return {item for test, cases in _by_test(items).items() for item in _drawn(cases, test, commit)}


def _by_test(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return tests


def _drawn(cases: Sequence[pytest.Item], test: str, commit: str) -> Sequence[pytest.Item]:
    if any(case.get_closest_marker(ALWAYS) for case in cases):
        return cases
    return drawn_part(cases, test, commit, may_be_none=lane(cases[0]) in ("services", "patient"))
