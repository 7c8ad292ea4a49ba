"""Answers of the API while many list all jobs at once, and of its probes meanwhile.

    python -m tests.benchmarks.api_load --databases sqlite,postgresql

Fills a database with jobs that have ended and some that run, starts the API as a process of its own, and asks for the
longest page of jobs: once alone, then `--concurrent` times at once, while `/readyz` and `/healthz` are asked over and
over. Counts the answers by status.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import update

from service.domain import JobState, Phase, TrialState
from service.store.migrate import migrate
from service.store.models import Job
from service.store.session import Database
from tests.benchmarks.api.process import database_url, serving
from tests.benchmarks.report import report
from tests.support.service.scenarios import NOW, add_worker, store_trials, submit

LONGEST_PAGE = 200
PATIENCE_SECONDS = 300.0
PROBES = ("/readyz", "/healthz")
PROBE_PAUSE_SECONDS = 0.2
ENDINGS = (TrialState.COMPLETED, TrialState.COMPLETED, TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    """0: none came."""
    seconds: float
    num_bytes: int
    title: str


def fill(database: Database, *, num_jobs: int, num_trials: int, num_running: int, num_objectives: int) -> None:
    """Stores so many jobs with so many trials each; a quarter of the trials are the baseline's."""
    generator = random.Random(0)
    objectives = ["validation_loss", "step_seconds", "peak_memory_bytes", "optimizer_state_bytes"][:num_objectives]
    worker_id = add_worker(database)
    for index in range(num_jobs):
        job_id = submit(
            database, budget={"num_trials": num_trials}, objectives=[{"metric": metric} for metric in objectives]
        )
        trials: list[dict[str, Any]] = []
        for number in range(num_trials):
            names = ("validation_loss", "validation_accuracy", "train_loss", "tokens_per_second", *objectives[1:])
            metrics = {name: generator.random() for name in names}
            phase = Phase.BASELINE if number % 4 == 3 else Phase.SEARCH
            state = generator.choice(ENDINGS)
            trials.append({"phase": phase, "state": state, "value": metrics["validation_loss"], "metrics": metrics})
        store_trials(database, job_id, trials)
        runs = index < num_running
        job_state = JobState.RUNNING if runs else JobState.SUCCEEDED
        times = {"started_at": NOW, "running_since": NOW if runs else None, "waiting_since": None}
        lease = {"lease_worker_id": worker_id, "lease_expires_at": NOW} if runs else {}
        ended = {} if runs else {"finished_at": NOW + timedelta(hours=1)}
        with database.writing() as session:
            session.execute(update(Job).where(Job.id == job_id).values(state=job_state, **times, **lease, **ended))


def ask(url: str) -> Answer:
    began = time.monotonic()
    try:
        answer = httpx.get(url, trust_env=False, timeout=PATIENCE_SECONDS)
    except httpx.HTTPError as error:
        return Answer(0, time.monotonic() - began, 0, type(error).__name__)
    took = time.monotonic() - began
    title = "" if answer.is_success else str(answer.json().get("type"))
    return Answer(answer.status_code, took, len(answer.content), title)


def measure(url: str, *, path: str, concurrent: int) -> tuple[Answer, list[Answer], dict[str, list[Answer]]]:
    """One listing alone, many at once, and the probes meanwhile."""
    ask(url + path)  # imports and caches
    alone = ask(url + path)
    probes: dict[str, list[Answer]] = {probe: [] for probe in PROBES}
    over = threading.Event()

    def keep_probing(probe: str) -> None:
        while not over.is_set():
            probes[probe].append(ask(url + probe))
            over.wait(PROBE_PAUSE_SECONDS)

    probers = [threading.Thread(target=keep_probing, args=(probe,)) for probe in PROBES]
    with ThreadPoolExecutor(concurrent) as pool:
        together = [pool.submit(ask, url + path) for _ in range(concurrent)]
        for prober in probers:
            prober.start()
        answers = [future.result() for future in together]
    over.set()
    for prober in probers:
        prober.join()
    return alone, answers, probes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--databases", default="sqlite,postgresql", help="of these (default: both)")
    parser.add_argument("--jobs", type=int, default=LONGEST_PAGE, help=f"stored (default: {LONGEST_PAGE})")
    parser.add_argument("--trials", type=int, default=205, help="of each job (default: 205)")
    parser.add_argument("--running", type=int, default=20, help="jobs that run (default: 20)")
    parser.add_argument("--objectives", type=int, default=1, help="of each job, up to 4 (default: 1)")
    parser.add_argument("--concurrent", type=int, default=40, help="listings at once (default: 40)")
    parser.add_argument("--path", default=f"/v1/jobs?page_size={LONGEST_PAGE}", help="what is asked for")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()

    rows: list[tuple[str | float, ...]] = []
    figures: dict[str, object] = {
        "jobs": options.jobs,
        "trials": options.jobs * options.trials,
        "concurrent": options.concurrent,
        "objectives": options.objectives,
    }
    ratios: dict[str, float] = {}
    for kind in options.databases.split(","):
        with tempfile.TemporaryDirectory(prefix="api-load-") as directory, database_url(kind, Path(directory)) as url:
            database = Database(url)
            migrate(database)
            fill(
                database,
                num_jobs=options.jobs,
                num_trials=options.trials,
                num_running=options.running,
                num_objectives=options.objectives,
            )
            with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("ANALYZE")  # as a server does by itself in time
            database.close()
            with serving(url, Path(directory)) as api:
                alone, answers, probes = measure(api.address, path=options.path, concurrent=options.concurrent)
        statuses = Counter(answer.status for answer in answers)
        seconds = [answer.seconds for answer in answers]
        longest_probe = {probe: max(answer.seconds for answer in asked) for probe, asked in probes.items()}
        num_failed_probes = sum(answer.status != 200 for asked in probes.values() for answer in asked)
        figures[f"{kind}_statuses"] = {str(status): count for status, count in sorted(statuses.items())}
        figures[f"{kind}_problems"] = dict(Counter(answer.title for answer in answers if answer.title))
        figures[f"{kind}_seconds_alone"] = alone.seconds
        figures[f"{kind}_seconds_together"] = sorted(seconds)
        figures[f"{kind}_page_bytes"] = alone.num_bytes
        figures[f"{kind}_longest_probe_seconds"] = longest_probe
        figures[f"{kind}_probes"] = {probe: len(asked) for probe, asked in probes.items()}
        figures[f"{kind}_failed_probes"] = num_failed_probes
        ratios[f"{kind}_answered_over_asked"] = statuses[200] / len(answers)
        ratios[f"{kind}_last_over_alone"] = max(seconds) / alone.seconds
        rows.append(
            (
                kind,
                alone.seconds,
                f"{statuses[200]} of {len(answers)}",
                statistics.median(seconds),
                max(seconds),
                *(longest_probe[probe] for probe in PROBES),
                num_failed_probes,
            )
        )
    report(
        "api_load",
        columns=("database", "alone s", "answered", "median s", "longest s", *PROBES, "failed probes"),
        rows=rows,
        figures=figures,
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
