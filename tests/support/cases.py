"""Many small cases in one test: for those that cost pytest more than they cost themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Test = Callable[..., None]


def all_of_them(cases: Sequence[Any], _test: str) -> Sequence[Any]:
    return cases


taken: Callable[[Sequence[Any], str], Sequence[Any]] = all_of_them
"""Takes those that are to be run of the cases of a test of some name: set for runs of a part of the suite."""


def in_one_test(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """`pytest.mark.parametrize`, except that all cases run in one test, which names the first that fails.

    Stacked, every value of one meets every value of the other.
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
