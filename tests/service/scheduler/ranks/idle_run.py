"""A run that a launcher starts for the template of its ranks alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(_arguments: Sequence[str]) -> None:
    """Waits for the end of its standard input."""
    sys.stdin.read()
