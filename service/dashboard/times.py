"""Times as pages show them: how long ago, or the moment in UTC, which then says so; `static/shared/times.js` says the
same in an open page."""

from __future__ import annotations

from datetime import UTC, datetime


def ago(then: datetime, now: datetime) -> str:
    """The time before `now`, in one unit; `static/shared/times.js` keeps it true in an open page."""
    seconds = (now - then).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def iso(moment: datetime) -> str:
    """RFC 3339 in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
