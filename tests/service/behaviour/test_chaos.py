"""Nothing is lost, whatever is killed, whenever: the worker, a job's run, its ranks, its Ray cluster, the database.

The kills come at random moments, many in quick succession, and are counted only if there was something to kill. By hand
for longer, and with other moments:

    CHAOS_KILLS=500 CHAOS_SEED=7 tests/run -n 0 -s tests/service/behaviour/test_chaos.py
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.domain import JobState, TrialState
from service.store.migrate import migrate
from service.store.session import Database
from tests.service.scheduler.test_job_run import specification
from tests.support.postgresql import PostgresqlServer, controlled_postgresql_server
from tests.support.service.chaos import KINDS, Killer, Ledger
from tests.support.service.service_process import PLUGIN, ServiceProcesses
from tests.support.waiting import PATIENCE_SECONDS
from trainers.config import TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context

pytestmark = [pytest.mark.services(minutes=3), pytest.mark.always]

NUM_KILLS = int(os.environ.get("CHAOS_KILLS", "20"))
SEED = int(os.environ.get("CHAOS_SEED", "0"))
NUM_TRIALS = 24
STEPS = [10, 20, 30, 40]


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    with controlled_postgresql_server() as server:
        yield server


@pytest.fixture
def service(server: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcesses]:
    monkeypatch.syspath_prepend(PLUGIN)
    database = Database(server.url)
    migrate(database)
    service = ServiceProcesses(database, tmp_path, lease_seconds=3.0)
    yield service
    service.close()
    database.close()


def test_whatever_is_killed_nothing_is_lost_or_repeated_or_left_behind(
    service: ServiceProcesses, server: PostgresqlServer
) -> None:
    rng = random.Random(SEED)
    killer = Killer(service, server, rng)
    service.start_worker()
    ledgers = [submit(service)]
    began = time.monotonic()
    while killer.kills.total() < NUM_KILLS:
        ledger = ledgers[-1]
        if killer.may_end_runs and rng.random() < 0.7:
            time.sleep(rng.uniform(0.0, 3.0))
        else:
            wait_for_progress(ledger, killer)
        if service.job(ledger.job_id).state.is_final:
            end(ledger)
            ledger = submit(service)
            ledgers.append(ledger)
            killer.crashes = 0
        kinds = []
        for _ in range(rng.choice([1, 2, 3, 4])):
            time.sleep(rng.uniform(0.0, 0.6))
            kinds.append(killer.kill())
        for known in ledgers:
            known.check()
        tell(f"{time.monotonic() - began:6.1f} s: killed {kinds}, progress {[known.progress for known in ledgers]}")
    service.finish(ledgers[-1].job_id)
    end(ledgers[-1])
    tell(f"{dict(killer.kills)} in {time.monotonic() - began:.0f} s; {len(ledgers)} jobs")
    assert sum(ledger.resumed for ledger in ledgers) > 0
    most_interrupted = max(
        (trial for ledger in ledgers for trial in service.trials(ledger.job_id) if trial.state is TrialState.COMPLETED),
        key=lambda trial: trial.runs,
    )
    *_, last = train(TrialConfig.from_json(most_interrupted.config), single_process_context())
    assert most_interrupted.runs > 1
    assert most_interrupted.value == pytest.approx(last.metrics["validation_loss"], rel=1e-5)
    assert NUM_KILLS < 20 or set(killer.kills) == KINDS

    service.workers[-1].terminate()
    assert service.workers[-1].wait(PATIENCE_SECONDS) == 0
    service.wait_for("the end of all processes", lambda: not service.processes())
    assert service.directories() == []
    assert list((service.data_dir / "checkpoints").glob("*")) == []


def submit(service: ServiceProcesses) -> Ledger:
    job_id = service.submit(
        specification(num_trials=NUM_TRIALS, options={"seconds_per_step": 0.02}, resources={"parallel_trials": 2})
    )
    return Ledger(service, job_id, NUM_TRIALS, STEPS)


def end(ledger: Ledger) -> None:
    """Holds a job that has ended to its whole budget."""
    ledger.check()
    job, trials = ledger.service.finish(ledger.job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert len(trials) == NUM_TRIALS
    assert all(trial.state in (TrialState.COMPLETED, TrialState.FAILED) for trial in trials)
    assert set(ledger.finished) == ledger.final == set(range(NUM_TRIALS))


def wait_for_progress(ledger: Ledger, killer: Killer) -> None:
    """Waits until the job has got further than it was at the last look."""
    service, before = ledger.service, ledger.progress

    def is_further() -> bool:
        ledger.check()
        return ledger.progress > before or service.job(ledger.job_id).state.is_final

    service.wait_for(f"progress of {ledger.job_id}", is_further)
    killer.crashes = 0


def tell(what: str) -> None:
    print(what, flush=True)  # noqa: T201 - for whoever runs it with -s
