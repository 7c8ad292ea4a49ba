"""Cases that share a test: all of them run, and the one that fails is named."""

from __future__ import annotations

import inspect
import itertools

import pytest

from tests.support.cases import in_one_test


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
