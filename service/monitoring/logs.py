"""The log of a process: lines for a person, or one JSON object each for programs.

Modules log by the standard library; this says how it is written. Each line carries what is bound by `bound`, or for the
whole process: ids of job, run, trial and request. What others wrote moves no cursor and makes no line: control
characters are escapes.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Literal, TextIO, TypeAlias

import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars, clear_contextvars, merge_contextvars
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.types import EventDict, Processor, WrappedLogger

from service.inert import inert, one_line

LogFormat: TypeAlias = Literal["auto", "text", "json"]
"""`auto`: text on a terminal, else JSON."""


def set_up_logs(log_format: LogFormat, *, stream: TextIO | None = None, **ids: str | int) -> None:
    """Makes this process log to its standard error, from level INFO on.

    Args:
        stream: instead of standard error.
        ids: stand in each line, e.g. `job="job_..."`.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(is_json(log_format, stream or sys.stderr), ids))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    for earlier in root.handlers[:]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells of each look at the schema's revision
    # It tells the URL of each request, and those of webhooks are secrets.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def set_up_job_log(log_format: LogFormat, **ids: str | int) -> None:
    """Makes this process write to a job's log, the end of which is shown to people: lines, unless JSON was asked for.

    Args:
        ids: as of `set_up_logs`.
    """
    set_up_logs("text" if log_format == "auto" else log_format, stream=None, **ids)


def is_json(log_format: LogFormat, stream: TextIO) -> bool:
    """True if lines that go to `stream` are for programs."""
    return log_format == "json" or (log_format == "auto" and not stream.isatty())


def bound(**ids: str | int) -> AbstractContextManager[None]:
    """Adds these ids to each log line of this thread, or task, until the end of the block."""
    return bound_contextvars(**ids)


def begin_request(request_id: str) -> None:
    """Adds the id of a request to each log line of this task, and of the threads that it asks, from now on."""
    clear_contextvars()
    bind_contextvars(request=request_id)


def formatter(writes_json: bool, ids: Mapping[str, str | int]) -> logging.Formatter:
    """Formats records of the standard library, those of other packages, too."""

    def add_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**ids, **event}

    first: Iterable[Processor] = (
        merge_contextvars,
        add_ids,
        ExtraAdder(),
        _without_others_marks,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    )
    last = structlog.processors.JSONRenderer() if writes_json else _line
    return ProcessorFormatter(foreign_pre_chain=[*first], processors=[ProcessorFormatter.remove_processors_meta, last])


def _without_others_marks(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Ray marks each record of a process that has loaded it."""
    return {name: value for name, value in event.items() if not name.startswith("_ray_")}


def _line(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """A line for a person, with the traceback below it."""
    time, level, name, message = (event.pop(key) for key in ("timestamp", "level", "logger", "event"))
    trace = event.pop("exception", None)
    ids = " ".join(f"{key}={one_line(str(value))}" for key, value in event.items())
    line = f"{time} {str(level).upper()} {name}: {message}{f' [{ids}]' if ids else ''}"
    # Further lines stand in: others' text in them cannot pass for a line of its own.
    return inert(line if trace is None else f"{line}\n{trace}").replace("\n", "\n    ")
