"""Bytes that a measurement takes in each database, and of them those of its event.

    python -m tests.benchmarks.service.measurement_bytes --databases sqlite,postgresql

Trains one small trial for the metrics that there are, then records as many measurements of as many trials as a run
would, in transactions of one measurement each, and asks the database for the size of its tables with their indexes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text

from service.store.migrate import migrate
from service.store.session import Database
from service.use_cases.run import TrialMeasurements, record_measurements
from tests.benchmarks.report import report
from tests.support.postgresql import postgresql_server
from tests.support.service.scenarios import NOW, begin_trial, claimed_job
from tests.support.trainers.trials import small_trial
from trainers.config import Measurement
from trainers.loop import train
from trainers.ranks.context import single_process_context

TABLES = ("measurements", "metric_sets", "events")
SQLITE_BYTES = (
    "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name = :table)"
)
POSTGRESQL_BYTES = "SELECT coalesce(pg_total_relation_size(to_regclass(:table)), 0)"


def sizes(database: Database) -> dict[str, int]:
    """Bytes of each of `TABLES` with its indexes; 0: there is no such table."""
    is_sqlite = database.engine.dialect.name == "sqlite"
    with database.engine.connect() as connection:
        statement = text(SQLITE_BYTES if is_sqlite else POSTGRESQL_BYTES)
        return {table: int(connection.execute(statement, {"table": table}).scalar_one()) for table in TABLES}


def record(database: Database, names: Sequence[str], *, num_trials: int, num_measurements: int) -> float:
    """Records measurements of these metrics, trials in turn; CPU seconds of this process for each."""
    generator = random.Random(0)
    lease = claimed_job(database, budget={"num_trials": 4 * num_trials})
    for number in range(num_trials):
        begin_trial(database, lease, number)
    began = time.process_time()
    for index in range(1, num_measurements + 1):
        for number in range(num_trials):
            metrics = {name: generator.random() * 10 ** generator.randrange(6) for name in names}
            measured = Measurement(step=10 * index, epoch=index / 7, seconds=index * 1.37, metrics=metrics)
            now = NOW + timedelta(seconds=index)
            with database.writing() as session:
                record_measurements(session, lease, [TrialMeasurements(number, [measured])], now=now)
    return (time.process_time() - began) / (num_trials * num_measurements)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--databases", default="sqlite,postgresql", help="databases to use (default: both)")
    parser.add_argument("--trials", type=int, default=20, help="trials that are measured (default: 20)")
    parser.add_argument("--measurements", type=int, default=100, help="measurements of each trial (default: 100)")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()

    *_, last = train(small_trial("shampoo"), single_process_context())
    names = list(last.metrics)
    figures: dict[str, object] = {"metrics": len(names)}
    rows: list[tuple[str | float, ...]] = []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        for kind in options.databases.split(","):
            server = kind == "postgresql"
            url = stack.enter_context(postgresql_server()) if server else f"sqlite:///{directory}/store.sqlite3"
            database = Database(url)
            stack.callback(database.close)
            migrate(database)
            before = sizes(database)
            seconds = record(database, names, num_trials=options.trials, num_measurements=options.measurements)
            count = options.trials * options.measurements
            taken = {table: (size - before[table]) / count for table, size in sizes(database).items()}
            own = taken["measurements"] + taken["metric_sets"]
            rows.append((kind, own, taken["events"], 1000 * seconds))
            figures[kind] = {"bytes": own, "event_bytes": taken["events"], "cpu_seconds": seconds}
    report(
        "measurement_bytes",
        columns=("database", f"bytes per measurement of {len(names)} metrics", "of its event", "ms of CPU to record"),
        rows=rows,
        figures=figures,
        ratios={},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
