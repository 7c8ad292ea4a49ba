"""Cases that share a test: all of them run, and the one that fails is named."""

from __future__ import annotations

import functools
import inspect
import itertools
from typing import Any

import pytest

from tests.support import cases, rings
from tests.support.cases import in_one_test


@pytest.fixture(autouse=True)
def _all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ring these tests run in."""
    monkeypatch.setattr(cases, "taken", cases.all_of_them)


def test_stacked_cases_all_meet_beside_the_fixtures() -> None:
    met = []

    @in_one_test("outer", [1, 2])
    @in_one_test(("left", "right"), [("a", "b"), ("c", "d")])
    def every(outer: int, left: str, right: str, fixture: str) -> None:
        met.append((outer, left + right, fixture))

    assert [*inspect.signature(every).parameters] == ["fixture"]
    every(fixture="f")
    assert met == [(*pair, "f") for pair in itertools.product([1, 2], ["ab", "cd"])]


def test_a_case_that_fails_is_named() -> None:
    @in_one_test("number", [1, 2, 3])
    def fails(number: int) -> None:
        assert number != 2

    with pytest.raises(AssertionError) as failure:
        fails()
    assert failure.value.__notes__ == ["where number = 2"]


@pytest.mark.parametrize(
    ("taken", "every"),
    [(rings.part, rings.EVERY), (functools.partial(rings.drawn_part, commit="0123abc"), rings.DRAWN_EVERY)],
    ids=["the fast ring", "a commit"],
)
def test_a_part_of_the_suite_takes_some_of_them(monkeypatch: pytest.MonkeyPatch, taken: Any, every: int) -> None:
    monkeypatch.setattr(cases, "taken", taken)
    met = []

    @in_one_test("number", range(100))
    def test(number: int) -> None:
        met.append(number)

    test()
    assert met == [*range(met[0], 100, every)]
