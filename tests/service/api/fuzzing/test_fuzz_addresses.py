"""Whatever is put into an address, of a page or of the API: never a server error, and nothing changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.api.routers import access, catalogue, events, health, recommendations, webhooks
from service.api.routers.of_jobs import jobs, kept_jobs, plots
from service.api.routers.of_trials import checkpoints, measurements, output, trial_plots, trials
from service.dashboard import routes as pages
from service.store.repositories import EventRepository
from service.store.session import Database
from tests.support.service.live import finished_job

PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class _Route:
    method: str
    path: str
    query: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        return (*PARAMETER.findall(self.path), *self.query)

    def address(self, values: Mapping[str, bytes]) -> str:
        path = PARAMETER.sub(lambda found: quote(values[found[1]], safe=""), self.path)
        query = "&".join(f"{name}={quote(values[name], safe='')}" for name in self.query if name in values)
        return f"{path}?{query}" if query else path


def _routes() -> Iterator[_Route]:
    of_trials = (trials, trial_plots, measurements, output, checkpoints)
    of_jobs = (jobs, kept_jobs, plots, *of_trials, events, webhooks, recommendations, catalogue, access, health)
    for router in (*(module.router for module in of_jobs), *pages.ROUTERS):
        for route in router.routes:
            assert isinstance(route, APIRoute)
            query = tuple(parameter.alias for parameter in route.dependant.query_params)
            yield from (_Route(method, route.path, query) for method in sorted(route.methods or ()))
    yield from (
        _Route("GET", path) for path in ("/{name}", "/v1/{name}", "/static/{name}", "/vendor/swagger-ui/{name}")
    )


ROUTES = [route for route in _routes() if route.parameters]
ODD = [b"\0", b"#\0", b"\xff", b"\xed\xa0\x80", b"", b".", b"..", b"%00", b"-1", b"1e400", b"9" * 30, b"a" * 3000]
VALUES = st.sampled_from(ODD) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")) | st.binary()


def _known(route: _Route, job_id: str) -> dict[str, bytes]:
    """Values of path parameters that lead somewhere, where that cannot change anything."""
    return {"job_id": job_id.encode(), "number": b"0", "kind": b"best-so-far"} if route.method == "GET" else {}


def _ask(http: httpx.Client, database: Database, route: _Route, values: Mapping[str, bytes]) -> int:
    """The status of the answer, which was looked at. Its body is not read: a stream of events has no end."""

    def newest_event() -> int:
        with database.reading() as session:
            return EventRepository(session).last_id()

    before, address = newest_event(), route.address(values)
    with http.stream(route.method, address) as answer:
        assert answer.status_code < 500, (route.method, address)
        if answer.status_code >= 400:
            assert answer.headers["Content-Type"].split(";")[0] in ("application/problem+json", "text/html"), address
    assert newest_event() == before, (route.method, address)
    return answer.status_code


def test_pages_and_the_api_are_asked() -> None:
    paths = {route.path for route in ROUTES}
    assert {"/", "/jobs/{job_id}", "/v1/jobs", "/v1/jobs/{job_id}/plots/{kind}", "/v1/jobs/{job_id}/cancel"} <= paths


@pytest.mark.slow
def test_a_nul_in_any_parameter_is_refused(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    for route in ROUTES:
        for name in route.parameters:
            values = dict.fromkeys(PARAMETER.findall(route.path), b"x") | _known(route, job_id)
            values[name] = b"a?\0b"
            assert _ask(http, database, route, values) in (404, 422), (str(route), name)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_parameter_is_answered_or_refused(http: httpx.Client, database: Database, data: st.DataObject) -> None:
    with database.reading() as session:
        is_new = EventRepository(session).last_id() == 0
    job_id = finished_job(database) if is_new else http.get("/v1/jobs").json()["items"][0]["id"]
    route = data.draw(st.sampled_from(ROUTES))
    known = _known(route, job_id)
    values = {
        name: data.draw(VALUES | st.just(known[name]) if name in known else VALUES, label=name)
        for name in route.parameters
        if "{" + name + "}" in route.path or data.draw(st.booleans())
    }
    _ask(http, database, route, values)
