"""Values that several commands take: whole numbers, and settings by dotted paths, such as `budget.num_trials` and
`parameters[0].low`, in decoded JSON."""

from __future__ import annotations

import argparse
import re
from typing import Any

from trainers.config import InvalidConfig

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_PATH = re.compile(r"[^.\[\]]+(\.[^.\[\]]+|\[\d+\])*")


def count(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        ValueError, argparse.ArgumentTypeError: it is none; argparse tells of both.
    """
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def set_at(content: Any, path: str, value: Any) -> None:
    """Sets the value at a path; objects on the way that are null or not there are made.

    Raises:
        InvalidConfig: there is no such place; names the path and the value.
    """
    if not _PATH.fullmatch(path):
        raise InvalidConfig(path, "is no path like budget.num_trials or parameters[0].low")
    steps = [int(index) if index else name for name, index in _STEP.findall(path)]
    node = content
    for position, step in enumerate(steps):
        is_last = position == len(steps) - 1
        if isinstance(step, int):
            if not isinstance(node, list) or step >= len(node):
                raise InvalidConfig(path, f"cannot be set to {value!r:.100}: there is no element [{step}]")
        elif not isinstance(node, dict):
            raise InvalidConfig(path, f"cannot be set to {value!r:.100}: there is no object that could hold {step!r}")
        elif not is_last and node.get(step) is None:
            node[step] = {}
        if is_last:
            node[step] = value
        else:
            node = node[step]
