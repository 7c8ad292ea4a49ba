"""Extras: what belongs to one, what of it is missing, and the command that installs it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trainers.installation.distribution import DISTRIBUTION, PACKAGES, refuse

SERVICE_EXTRA = "service"
"""The extra that a worker needs all of, and every command a part of: the slim image has that part, and no worker."""

_EXTRA = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")
_REFERENCE = re.compile(rf"{DISTRIBUTION}\[([\w.,\s-]+)\]")
_NAME = re.compile(r"[\w.-]+")


class MissingExtra(ImportError):
    """Distributions of an extra are not installed; the message says which, and the command that installs them."""

    def __init__(self, extra: str, missing: Iterable[str], *, subject: str = "this command") -> None:
        super().__init__(
            f"{subject} needs the extra {extra!r}, which is not installed: {install_command(extra)}\n"
            f"(missing: {', '.join(missing)})"
        )


@contextmanager
def needing(extra: str, *, subject: str = "this command", is_command: bool = False) -> Iterator[None]:
    """Names the extra where a library of it is missing; wraps the imports, or the call that imports, of `subject`.

    Args:
        is_command: whether this process runs `subject`: then it ends, with the message.

    Raises:
        MissingExtra: in place of the error of a module that is not ours.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in PACKAGES:
            raise
        missing = MissingExtra(extra, missing_of(extra) or [error.name], subject=subject)
        if is_command:
            refuse(missing)
        raise missing from error


def require(extra: str) -> None:
    """Refuses to go on without an extra, where it is known what belongs to it.

    Raises:
        MissingExtra: a distribution of it is not installed.
    """
    if missing := missing_of(extra):
        raise MissingExtra(extra, missing)


def optional_library(module: str, *, extra: str, purpose: str) -> Any:
    """The module, imported.

    Raises:
        ValueError: its library is not installed; the message names the purpose and the extra that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{purpose} {needs(module.partition('.')[0], extra=extra)}") from error


def needs(library: str, *, extra: str) -> str:
    """The words for a library that is missing, and the command that installs it with the extra that has it."""
    return f"needs {library}, which is not installed: {install_command(extra)}"


def install_command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def missing_of(extra: str) -> list[str]:
    """The distributions of an extra that are not installed, by name; none in a checkout without metadata, which does
    not say."""
    from importlib import metadata  # slow to import, and rarely asked

    try:
        names = requirements_of(extra, metadata.requires(DISTRIBUTION) or [])
    except metadata.PackageNotFoundError:
        return []
    return sorted(name for name in names if not _is_installed(name))


def requirements_of(extra: str, requirements: Sequence[str]) -> set[str]:
    """The names of the distributions that an extra asks for, those of the extras that it refers to included.

    Args:
        requirements: the distribution's own, as its metadata list them.
    """
    found: set[str] = set()
    waiting, seen = [extra], {extra}
    while waiting:
        current = waiting.pop()
        for requirement in requirements:
            text, _, marker = requirement.partition(";")
            if _EXTRA.findall(marker) != [current]:
                continue
            if reference := _REFERENCE.match(text.strip()):
                others = {name.strip() for name in reference.group(1).split(",")} - seen
                waiting += others
                seen |= others
            elif name := _NAME.match(text.strip()):
                found.add(name.group())
    return found


def _is_installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
