"""A service, an external job and its run, whose turns a test takes between what clients ask over HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from service.store.models import Trial
from service.store.repositories import TrialRepository
from service.store.session import Database
from tests.support.service.external import Run, submit_external
from tests.support.service.live import running
from tests.support.service.scenarios import Clock
from tests.support.waiting import PATIENCE_SECONDS

KEYS = map(str, itertools.count())


@dataclass(slots=True)
class World:
    """A service, a job, its run, and clients that ask without waiting: the test takes the run's turns."""

    http: httpx.Client
    database: Database
    clock: Clock
    job: str
    run: Run

    def post(self, path: str, body: Any, key: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        url = f"/v1/jobs/{self.job}/{path}"
        return self.http.post(url, json=body, headers=headers, params={"wait_seconds": 0})

    def ask(self, path: str, body: Any) -> Any:
        """The answer after a turn of the run."""
        key = next(KEYS)
        first = self.post(path, body, key)
        if first.status_code != 202:
            return first.json()
        assert first.headers["Retry-After"] == "2"
        self.run.turn()
        return self.post(path, body, key).json()

    def suggest(self, client: str = "node1") -> Any:
        answer = self.ask("suggestions", {"client": client})
        assert answer["status"] == "trial", answer
        return answer["trial"]

    def report(self, trial: Any, *steps: int, loss: float = 1.0, **more: Any) -> Any:
        measurements = [{"step": step, "metrics": {"validation_loss": loss / step}, **more} for step in steps]
        return self.ask(f"trials/{trial['number']}/reports", {"lease": trial["lease"], "measurements": measurements})

    def end(self, trial: Any, **fields: Any) -> Any:
        return self.ask(f"trials/{trial['number']}/end", {"lease": trial["lease"], **fields})

    def decision(self, trial: Any) -> Any:
        path = f"/v1/jobs/{self.job}/trials/{trial['number']}/decision"
        return self.http.get(path, params={"lease": trial["lease"]}).json()["decision"]

    def trial(self, number: int) -> Trial:
        with self.database.reading() as session:
            return TrialRepository(session).get(self.job, number)

    def restart(self) -> None:
        self.run = Run(self.database, clock=self.clock)


def world_of(database: Database, **fields: Any) -> Iterator[World]:
    clock = Clock()
    job = submit_external(database, **fields)
    run = Run(database, clock=clock)
    with (
        running(database, clock=clock) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        yield World(http, database, clock, job, run)
