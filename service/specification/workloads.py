"""Workloads as the service knows them. It imports nobody's code for that: a process of its own does."""

from __future__ import annotations

import logging
import sys
from functools import lru_cache

from trainers.config import InvalidConfig
from trainers.workload.description import WorkloadDescription
from trainers.workload.user_workload import is_reference
from trainers.workloads.describe import Installed, ask, ask_for_installed
from trainers.workloads.registry import BUILT_IN, UnknownWorkload, entry_points

logger = logging.getLogger(__name__)


def describe_workload(name: str) -> WorkloadDescription:
    """The description of a built-in or installed workload, or of a user's own as `module:Class`.

    For `module:Class` a process imports the module each time, for seconds if it imports torch; so a service need not be
    started again when the class has changed.

    Raises:
        InvalidConfig: there is none, or it cannot be imported, or does not describe itself; the message says which.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    if is_reference(name):
        if name.partition(":")[0].partition(".")[0] in sys.stdlib_module_names:
            raise InvalidConfig("workload", f"{name!r} is of Python's standard library, which has no workloads")
        return ask(name)
    installed = _installed(_names())
    if name in installed.problems:
        raise InvalidConfig("workload", installed.problems[name])
    found = {description.name: description for description in installed.descriptions}
    if name not in found:
        raise UnknownWorkload(name, sorted(found.keys() | BUILT_IN.keys()))
    return found[name]


def known_workloads() -> list[WorkloadDescription]:
    """The built-in workloads and those of installed packages, by name. Broken packages are logged and left out."""
    try:
        installed = _installed(_names())
    except InvalidConfig as error:
        installed = Installed((), {"all of them": error.message})
    for name, problem in installed.problems.items():
        logger.error("installed workloads: %s: %s", name, problem)
    found = {**{description.name: description for description in installed.descriptions}, **BUILT_IN}
    return [found[name] for name in sorted(found)]


def _names() -> tuple[tuple[str, str], ...]:
    """The names and values of the installed entry points."""
    return tuple((entry_point.name, entry_point.value) for entry_point in entry_points())


@lru_cache(maxsize=1)
def _installed(names: tuple[tuple[str, str], ...]) -> Installed:
    """The workloads that these entry points describe, read once: packages do not change while a service uses them."""
    return ask_for_installed() if names else Installed((), {})
