"""The faults that the service found in a job file, told with their places in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.job_file import place_of, places_in, settings_touch
from service.client import ApiError
from service.errors import ServiceError

if TYPE_CHECKING:
    from pydantic import ValidationError


class FaultyJobFile(ServiceError):
    """The service refused a job; each fault names its place."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self._faults = tuple(faults)

    @property
    def faults(self) -> Sequence[str]:
        return self._faults


@contextmanager
def faults_in(job_file: Path, settings: Sequence[str]) -> Iterator[None]:
    """Has the refusal of a job name line and column of each faulty field that the file has.

    Args:
        settings: of the command line; a field that they gave is not looked for in the file.

    Raises:
        FaultyJobFile: in place of an ApiError about fields of the file.
    """
    try:
        yield
    except ApiError as error:
        places, lines, any_place = places_in(job_file), list[str](), False
        for fault in error.problem.errors:
            place = None
            if fault.pointer is not None and not settings_touch(settings, fault.field):
                place = place_of(fault.pointer, places)
            any_place |= place is not None
            where = "" if place is None else f"{job_file}:{place.line}:{place.column}: "
            lines.append(f"{where}{fault.field}: {fault.message}")
        if not any_place:
            raise
        raise FaultyJobFile(lines) from error


def faulty_job_file(job_file: Path, error: ValidationError) -> FaultyJobFile:
    """What is wrong with a job that was read from a file and has not been sent."""
    places, lines = places_in(job_file), dict[str, None]()  # each line once, in order
    for one in error.errors():
        place = place_of("".join(f"/{part}" for part in one["loc"]), places)
        where = f"{job_file}:{place.line}:{place.column}: " if place is not None else f"{job_file}: "
        message = "there is no such field" if one["type"] == "extra_forbidden" else one["msg"]
        lines[f"{where}{'.'.join(map(str, one['loc']))}: {message}"] = None
    return FaultyJobFile(list(lines))
