"""The scope that a request needs. A route need not say anything: what is not listed here needs one."""

from __future__ import annotations

from service.access.caller import Scope

PROBES = ("/healthz", "/readyz")
OPEN_PATHS = frozenset({*PROBES, "/login", "/logout"})
"""Paths that anybody may ask for: probes, and the way in and out."""
OPEN_BELOW = ("/static/", "/vendor/")
"""The files of the pages, which tell nothing of jobs; the log-in page needs some."""
ADMIN_BELOW = "/v1/admin/"
METRICS_PATH = "/metrics"
READING = ("GET", "HEAD")
"""Methods that change nothing in any route."""
READING_POSTS = frozenset({"/v1/recommendations", "/recommendations/untuned"})
"""Paths to which a question is posted, because it is long."""


def needed_scope(method: str, path: str) -> Scope | None:
    """The scope without which a request is refused; None: anybody may ask."""
    if path in OPEN_PATHS or path.startswith(OPEN_BELOW):
        return None
    if path.startswith(ADMIN_BELOW):
        return Scope.ADMIN
    if path == METRICS_PATH:
        return Scope.METRICS
    reads = method in READING or (method == "POST" and path in READING_POSTS)
    return Scope.READ if reads else Scope.SUBMIT
