"""Errors of the typed client."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from service.api.schemas.common import Problem
from service.api.schemas.jobs import JobRead
from service.errors import ServiceError
from service.hosts import DEFAULT_PORT, THIS_MACHINE, URL


class ApiError(ServiceError):
    """The service refused a request."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__("; ".join(self.faults))

    @property
    def faults(self) -> Sequence[str]:
        return [f"{error.field}: {error.message}" for error in self.problem.errors] or [self.problem.detail]

    @property
    def status(self) -> int:
        return self.problem.status


class ServiceUnreachable(ServiceError):
    """No answer, or none of the service's."""

    def __init__(self, url: str, why: object) -> None:
        super().__init__(f"no service answers at {url} ({why}){_way_to_start_one(url)}")
        self.url = url


def _way_to_start_one(url: str) -> str:
    """The command that starts a service at the address; empty: it is another machine's, or one of TLS."""
    try:
        asked = urlsplit(url)
        host, port = asked.hostname, asked.port
    except ValueError:  # no such port
        return ""
    if host not in THIS_MACHINE or asked.scheme == "https":
        return ""
    return f"; `shampoo-tuner serve{'' if port == DEFAULT_PORT else f' --port {port or 80}'}` starts one"


class AnotherProgram(ServiceUnreachable):
    """Something else answers than the service, or another version of it."""

    def __init__(self, url: str, why: object) -> None:
        told = f"no service answers at {url} (what answers is another program, or another version: {why})"
        ServiceError.__init__(self, f"{told}; {URL} names another address")
        self.url = url


class ServiceBusy(ServiceUnreachable):
    """The service took the request, and has not answered in time: it may do yet what it was asked for."""

    def __init__(self, url: str, seconds: float) -> None:
        ServiceError.__init__(
            self, f"the service at {url} is there and busy: it took the request, and did not answer in {seconds:.0f} s"
        )
        self.url = url


class WaitedTooLong(ServiceError):
    """A job did not end in time; it goes on."""

    def __init__(self, job: JobRead, seconds: float) -> None:
        super().__init__(f"job {job.id} is still {job.state} after {seconds:.0f} s")
        self.job = job
