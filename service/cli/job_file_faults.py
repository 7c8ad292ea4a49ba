"""The faults of a job file, told with their places in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import JsonValue, ValidationError

from service.cli.job_file import JobFile, place_of, settings_touch
from service.client import ApiError
from service.errors import InvalidInput, ServiceError

if TYPE_CHECKING:
    from service.api.schemas.common import FieldError


class FaultyJobFile(ServiceError):
    """A job is refused; each fault names its place."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self._faults = tuple(faults)

    @property
    def faults(self) -> Sequence[str]:
        return self._faults


@contextmanager
def faults_in(job_file: JobFile, settings: Sequence[str]) -> Iterator[None]:
    """Adds line and column of each faulty field in the file to the refusal of a job.

    Args:
        settings: of the command line; a field that they gave is not looked for in the file.

    Raises:
        FaultyJobFile: in place of an ApiError about fields of the file.
    """
    try:
        yield
    except ApiError as error:
        lines, any_place = _told(job_file, error.problem.errors, settings)
        if not any_place:
            raise
        raise FaultyJobFile(lines) from error


@contextmanager
def own_faults_in(job_file: JobFile) -> Iterator[None]:
    """Tells in the same way what is wrong with a job that is not sent.

    Raises:
        FaultyJobFile: in place of a ValidationError or an InvalidInput.
    """
    from service.api.problems.invalid_requests import errors_of_fields
    from service.api.problems.situations import invalid_fields
    from service.api.problems.unread_jobs import errors_of_names
    from service.api.schemas.jobs import JobCreate

    content: dict[str, JsonValue] = job_file.content
    try:
        yield
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        errors = errors_of_fields(found, content, JobCreate)
        lines, _ = _told(job_file, [*errors, *errors_of_names(content, errors)])
        raise FaultyJobFile(lines) from error
    except InvalidInput as error:
        lines, _ = _told(job_file, invalid_fields(error, content))
        raise FaultyJobFile(lines) from error


def _told(job_file: JobFile, errors: Sequence[FieldError], settings: Sequence[str] = ()) -> tuple[list[str], bool]:
    """A line for each fault, and whether the file has any of the fields."""
    places, lines, any_place = job_file.places(), list[str](), False
    for fault in errors:
        place = None
        if fault.pointer is not None and not settings_touch(settings, fault.field):
            place = place_of(fault.pointer, places)
        any_place |= place is not None
        where = "" if place is None else f"{job_file.name}:{place.line}:{place.column}: "
        lines.append(f"{where}{fault.field}: {fault.message}{_way_out(fault)}")
    return lines, any_place


def _way_out(fault: FieldError) -> str:
    """Advice on what to write in YAML instead of a number where text is to be."""
    return ": in quotes it is one" if fault.expected == ["string"] and isinstance(fault.value, int | float) else ""
