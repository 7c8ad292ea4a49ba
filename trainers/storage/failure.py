"""How a store can fail; apart from the store, which needs pyarrow."""

from __future__ import annotations


class StoreFailed(Exception):
    """A store did not do what was asked, tried again or not; it says nothing of what lies in it."""
