"""Kinds of values that several commands take as arguments."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        ValueError, argparse.ArgumentTypeError: it is none; argparse tells of both.
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
