"""Coroutines that a test runs to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def run(coroutine: Coroutine[object, object, Result]) -> Result:
    """The result of a coroutine, from an event loop in a thread of its own.

    A browser that other tests of this process use has an event loop in this thread.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
