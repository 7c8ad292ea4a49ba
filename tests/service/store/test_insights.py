"""Insights of jobs are stored once for each job, fenced by its lease, and go with it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import inspect

from service.errors import LeaseLost
from service.evidence.insights import insights_from_json
from service.store.migrate import check, downgrade, migrate
from service.store.repositories import DeletionRepository, InsightsRepository
from service.store.session import Database
from service.use_cases.leases import release_job
from service.use_cases.run import store_insights
from tests.service.evidence.test_insights import INSIGHTS
from tests.support.service.scenarios import NOW, claimed_job


def test_newer_insights_take_the_place_of_older_ones_and_go_with_their_job(database: Database) -> None:
    lease, later = claimed_job(database), NOW + timedelta(seconds=5)
    with database.writing() as session:
        store_insights(session, lease, type(INSIGHTS)("validation_loss", INSIGHTS.direction, 3, []), now=NOW)
    with database.writing() as session:
        store_insights(session, lease, INSIGHTS, now=later)
    with database.reading() as session:
        row = InsightsRepository(session).of_job(lease.job_id)
        assert row is not None
        assert (insights_from_json(row.content), row.computed_at) == (INSIGHTS, later)
    with database.writing() as session:
        DeletionRepository(session).delete_job(lease.job_id)
    with database.reading() as session:
        assert InsightsRepository(session).of_job(lease.job_id) is None


def test_a_run_that_lost_its_lease_stores_none(database: Database) -> None:
    lease = claimed_job(database)
    with database.writing() as session:
        release_job(session, lease, now=NOW, crash=None)
    with pytest.raises(LeaseLost), database.writing() as session:
        store_insights(session, lease, INSIGHTS, now=NOW)
    with database.reading() as session:
        assert InsightsRepository(session).of_job(lease.job_id) is None


def test_a_downgrade_takes_them_and_an_upgrade_brings_an_empty_table(database: Database) -> None:
    lease = claimed_job(database)
    with database.writing() as session:
        store_insights(session, lease, INSIGHTS, now=NOW)
    downgrade(database, "0025")
    assert "job_insights" not in inspect(database.engine).get_table_names()
    migrate(database)
    check(database)
    with database.reading() as session:
        assert InsightsRepository(session).of_job(lease.job_id) is None
