"""The parts of the suite that a run may select: the fast ring, and the half that a commit draws.

`tests/run --fast` runs tests that start no process. With a path it runs all of them there. Without one it runs every
`EVERY`th case of each parametrised test, including cases within one test (`cases.in_one_test`), and no test that is
marked `slow`: if a change breaks something outside its own package, it seldom breaks a single case only. Each test
begins with another case, so tests with the same parameter get different values, and if the cases of a kind are
adjacent, a test with many cases gets every kind.

`tests/run --draw COMMIT`, which `.ci/run --half` uses, runs every second case of each test with more than two, and
every second test that starts whole services or Ray, except those marked `always`. The name of the commit decides which:
the same in each run of a commit, others for the next one.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pytest

from tests.support.lanes import lane

T = TypeVar("T")

EVERY = 8
"""One case in this many of a test is in the fast ring."""
DRAWN_EVERY = 2
"""One case in this many of a test, and one test in this many of those that start services, is drawn by a commit."""
ALWAYS = "always"
"""The marker of tests with services that every commit draws."""
IS_NAMED = "is_named"
"""A key of `workerinput` that tells xdist's workers, which always get all paths, whether the command named some."""


def is_named(config: pytest.Config) -> bool:
    """Whether the command named what to run."""
    told = getattr(config, "workerinput", {}).get(IS_NAMED)
    return config.args_source is pytest.Config.ArgsSource.ARGS if told is None else bool(told)


def is_sampled(config: pytest.Config) -> bool:
    """Whether only a part of the fast ring's cases is run."""
    return config.option.fast and not is_named(config)


def within_one_test(config: pytest.Config) -> Callable[[Sequence[T], str], Sequence[T]]:
    """A function that selects the cases to run, given the cases within one test and its name."""
    if is_sampled(config):
        return part
    commit = config.option.draw
    return lambda cases, test: cases if commit is None else drawn_part(cases, test, commit)


def part(cases: Sequence[T], test: str) -> Sequence[T]:
    """Some of the cases of a test of that name, at least one."""
    return cases[zlib.crc32(test.encode()) % min(EVERY, len(cases)) :: EVERY]


def drawn_part(cases: Sequence[T], test: str, commit: str, *, may_be_none: bool = False) -> Sequence[T]:
    """Every second case of a test of that name; all if there are at most two, unless none may be selected."""
    if len(cases) <= DRAWN_EVERY and not may_be_none:
        return cases
    return cases[zlib.crc32(f"{commit} {test}".encode()) % DRAWN_EVERY :: DRAWN_EVERY]


def sample(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Some cases of each test that is not slow."""
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
