"""The service does what its schema says, by every check of schemathesis, on both databases: no server error, no
answer that the schema does not know, no input refused or taken against it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.access.caller import Scope
from service.store.session import Database
from tests.support.service.callers import asking, give_token
from tests.support.service.live import finished_job
from tests.support.waiting import LONG_PATIENCE_SECONDS

NUM_EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES")
"""Of each operation and of each way through them; None: one, and the edges of each parameter's range on PostgreSQL
alone, whose types are the stricter ones: they are nine tenths of all requests."""
# A dry run starts processes.
CONFIG = """
[parameters]
"query.dry_run" = false
"""
ONE_OTHER_METHOD = """
[phases.coverage]
unexpected-methods = ["TRACE"]
"""
"""Of those that an address does not have. One is refused as the next, and `test_documentation` holds the methods of all
addresses against the schema: all seven are a tenth of the requests."""


@pytest.mark.processes
def test_the_schema_and_the_service_agree(database: Database, tmp_path: Path) -> None:
    finished_job(database)
    (tmp_path / "schemathesis.toml").write_text(CONFIG + (ONE_OTHER_METHOD if NUM_EXAMPLES is None else ""))
    phases = ["examples", "coverage", "fuzzing", "stateful"]
    if NUM_EXAMPLES is None and database.engine.dialect.name == "sqlite":
        phases.remove("coverage")
    token = give_token(database, "all", Scope.SUBMIT, Scope.METRICS, Scope.ADMIN)
    with asking(database, data_dir=tmp_path / "data") as asked, asked.client(token) as http:
        assert http.get("/openapi.json").is_success  # made once, for longer than schemathesis waits on a busy machine
        found = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"),
                "run",
                f"{asked.url}/openapi.json",
                *("--header", f"Authorization: Bearer {token}"),
                *("--checks", "all", "--phases", ",".join(phases)),
                *("--max-examples", NUM_EXAMPLES or "1", "--continue-on-failure", "--no-color"),
                # The schema cannot say which of the tokens of pages a list gave, or what goes with what in a job.
                *("--exclude-checks", "positive_data_acceptance"),
                # A stream has no end, and an archive is nothing that it can make; they have tests of their own.
                *("--exclude-path-regex", "events$|^/v1/code$"),
                *("--request-timeout", "60", "--suppress-health-check", "all"),
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=LONG_PATIENCE_SECONDS,
            check=False,
        )
    assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
