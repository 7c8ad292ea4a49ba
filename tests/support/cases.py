"""Many small cases in one test: for those that cost pytest more than they cost themselves."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tests.support import rings

Test = Callable[..., None]

is_sampled = False
"""Whether a part of the cases is enough: set for the fast ring."""


def in_one_test(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """`pytest.mark.parametrize`, except that all cases run in one test, which names the first that fails.

    Stacked, every value of one meets every value of the other.
    """
    cases = list(values)

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            for case in rings.part(cases, test.__name__) if is_sampled else cases:
                arguments = {names: case} if isinstance(names, str) else dict(zip(names, case, strict=True))
                try:
                    test(**arguments, **fixtures)
                except BaseException as error:
                    error.add_note(f"where {', '.join(f'{name} = {value!r}' for name, value in arguments.items())}")
                    raise

        taken = (names,) if isinstance(names, str) else names
        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in taken]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]  # what pytest asks for
        return run

    return decorate
