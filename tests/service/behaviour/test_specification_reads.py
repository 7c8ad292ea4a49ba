"""How often a stored specification is parsed: once for each job that is read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from service.specification.job import JobSpecification
from service.store.models import jobs
from service.store.repositories import JobRepository
from service.store.session import Database
from service.use_cases.steer import change_budget
from tests.support.service.live import running
from tests.support.service.scenarios import submit
from tests.support.service.stories.jobs import Story
from tests.support.waiting import PATIENCE_SECONDS

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that was parsed as a specification so far."""
    contents: list[Any] = []
    validate = JobSpecification.model_validate

    def counted(content: Any, **options: Any) -> JobSpecification:
        contents.append(content)
        return validate(content, **options)

    monkeypatch.setattr(JobSpecification, "model_validate", counted)
    return contents


@pytest.mark.parametrize("address", ["/jobs/{}", "/v1/jobs/{}", "/v1/jobs", "/"])
def test_a_page_parses_the_specification_of_its_job_once(
    sqlite_database: Database, parsed: list[Any], address: str
) -> None:
    story = Story(sqlite_database, now=NOW)
    story.run(0, 0.5)
    story.finish()
    with running(sqlite_database) as url:
        parsed.clear()
        jobs._parsed.cache_clear()  # of what the story has read
        path = address.format(story.job_id)
        response = httpx.get(url + path, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
    assert response.status_code == 200
    assert len(parsed) == 1


def test_what_is_changed_is_what_is_read(sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    with sqlite_database.writing() as session:
        job = JobRepository(session).get(job_id)
        before = job.specification
        assert job.specification is before
        change_budget(session, job_id, {"num_trials": before.budget.num_trials + 1}, now=NOW)
        assert job.specification.budget.num_trials == before.budget.num_trials + 1
    with sqlite_database.reading() as session:
        assert JobRepository(session).get(job_id).specification.budget.num_trials == before.budget.num_trials + 1
