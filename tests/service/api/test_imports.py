"""The API is a small process, with the dashboard, too: it loads nothing of what trains and searches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

CODE = """
import json, sys, time
began = time.process_time()
from service.server.app import create_app
from service.settings import Settings
create_app(Settings()).openapi()
import service.dashboard.routes
from service.dashboard import assets
assets.static_mounts()
heavy = {"torch", "ray", "optuna", "numpy", "sklearn", "plotly", "pandas", "shampoo", "alembic"}
print(json.dumps({"heavy": sorted(heavy & set(sys.modules)), "seconds": time.process_time() - began}))
"""


def test_the_api_and_the_dashboard_load_neither_torch_nor_ray_and_are_there_at_once() -> None:
    answer = subprocess.run([sys.executable, "-W", "error", "-c", CODE], capture_output=True, text=True, check=True)
    told = json.loads(answer.stdout)
    assert told["heavy"] == []
    # Of its own computing, which is slower, too, where neighbours share caches and cores.
    assert told["seconds"] < 30


ASKING = """
import json, sys
from fastapi.testclient import TestClient
from service.api import examples
from service.api.schemas.untuned import UntunedQuestion
from service.server.app import create_app
from service.settings import Settings
from service.use_cases.untuned import asking
asking.POOL_SECONDS = 600.0  # on a busy machine it may take longer than the request waits: ahead of it
wanted = UntunedQuestion.model_validate(examples.UNTUNED_QUESTION).wanted
asking.ask_pooled(asking.question_of(wanted.target, wanted.members))
with TestClient(create_app(Settings(database_url=sys.argv[1])), base_url="http://127.0.0.1") as client:
    answer = client.post("/v1/recommendations", json=examples.UNTUNED_QUESTION)
heavy = {"torch", "numpy", "scipy"}
print(json.dumps({"heavy": sorted(heavy & set(sys.modules)), "answer": answer.json()}))
"""


def test_the_api_answers_for_many_tuned_models_together_without_what_computes_that(migrated_sqlite_file: Path) -> None:
    asked = [sys.executable, "-c", ASKING, f"sqlite:///{migrated_sqlite_file}"]
    told = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    assert told["heavy"] == []
    assert told["answer"]["items"][0]["origin"]["name"].startswith("14 tuned models together")


def test_help_loads_no_more_than_the_command_line_and_what_asks_a_service_no_database() -> None:
    code = (
        "import sys, service.cli.commands; "
        "print(sorted({'fastapi', 'sqlalchemy', 'httpx', 'pydantic'} & set(sys.modules))); "
        "import service.cli.terminal, service.client; "
        "print(sorted({'fastapi', 'sqlalchemy', 'service.store', 'httpx', 'pydantic'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["[]", "['httpx', 'pydantic']"]
