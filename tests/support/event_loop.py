"""Coroutines that a test runs to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Result = TypeVar("Result")
P = ParamSpec("P")


def run(coroutine: Coroutine[object, object, Result]) -> Result:
    """The result of a coroutine, from an event loop in a thread of its own."""
    return in_thread(asyncio.run, coroutine)


def in_thread(function: Callable[P, Result], *arguments: P.args, **options: P.kwargs) -> Result:
    """The result of a function that has an event loop, from a thread of its own.

    A browser that other tests of this process use has an event loop in this thread.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *arguments, **options).result()
