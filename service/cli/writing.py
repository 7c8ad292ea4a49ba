"""Files that commands write: whole, or not at all, whatever ends the command, and in place of none unless told so."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from service.errors import ServiceError

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]

_ENDING = (signal.SIGTERM, signal.SIGHUP)
"""SIGINT is an exception anyway."""


class _Told(BaseException):
    """A signal has come."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class AlreadyThere(ServiceError):
    """A command was to write a file that is there, and was not told to replace it."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is there already; --overwrite replaces it")


def check_free(path: Path, *, overwrites: bool) -> None:
    """Checks that a file may be written: before what takes long, to make its content.

    Raises:
        AlreadyThere: there is one, which nobody said to replace. A device or a pipe is none.
    """
    if path.is_file() and not overwrites:
        raise AlreadyThere(path)


def write_whole(path: Path, pieces: Iterable[bytes], *, overwrites: bool) -> None:
    """Writes a file, which has its former content until all of it is there; a device or a pipe is written to.

    Raises:
        AlreadyThere: as `check_free`, before the first of the pieces is asked for.
        OSError: it cannot be written.
    """
    check_free(path, overwrites=overwrites)
    if path.exists() and not path.is_file():
        with path.open("wb") as there:
            there.writelines(pieces)
        return
    target = path.resolve()  # what a link points to
    part = target.with_name(f"{target.name}.part")
    with cleaning_up():
        try:
            with naming(path), part.open("wb") as file:
                file.writelines(pieces)
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file to an error of the system that does not name it, as when a disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def cleaning_up() -> Iterator[None]:
    """Leaves the block by an exception when SIGTERM or SIGHUP comes, and only then ends the process by that signal, as
    it would have at once. A signal that is ignored or handled otherwise stays so. To be used in the main thread."""
    numbers = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _raise)
    told = None
    try:
        yield
    except _Told as error:
        told = error.number
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
    if told is not None:
        signal.raise_signal(told)


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    for each in _ENDING:
        if signal.getsignal(each) is _raise:
            signal.signal(each, signal.SIG_IGN)  # a second one must not cut this short
    raise _Told(number)
