"""Many small cases in one test, for cases whose cost in pytest is larger than their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Test = Callable[..., None]


def all_of_them(cases: Sequence[Any], _test: str) -> Sequence[Any]:
    return cases


taken: Callable[[Sequence[Any], str], Sequence[Any]] = all_of_them
"""Selects the cases to run, given the cases and the name of their test; replaced if only a part of the suite runs."""


def in_one_test(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """`pytest.mark.parametrize`, except that all cases run in one test, which names the first that fails.

    If two are stacked, every value of one is combined with every value of the other.
    """
    cases = list(values)

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            for case in taken(cases, test.__name__):
                arguments = {names: case} if isinstance(names, str) else dict(zip(names, case, strict=True))
                try:
                    test(**arguments, **fixtures)
                except BaseException as error:
                    error.add_note(f"where {', '.join(f'{name} = {value!r}' for name, value in arguments.items())}")
                    raise

        own = (names,) if isinstance(names, str) else names
        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in own]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]  # what pytest asks for
        return run

    return decorate
