"""Configs of models like the job's own, with which a search begins."""

from __future__ import annotations

from typing import Any, cast

import pytest

from search_spaces import Scalar
from service.domain import Phase
from service.evidence.in_words.words import transfer_lines
from service.evidence.recommended import recommendation_from_json
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.protocol import Start
from service.specification.identity import StoredIdentity
from service.specification.job import MovedConfig
from service.specification.planning import plan_job
from service.store.repositories import JobRepository, RecommendationRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from tests.support.service.caveats import sentences
from tests.support.service.live import finished_job
from tests.support.service.scenarios import NOW, claimed_job, run_trial
from trainers.identity.values import ModelShape, ParameterShape

ENVIRONMENT: dict[str, Any] = {"device": "cpu", "device_name": None, "world_size": 1, "versions": {}}


def of_width(width: int) -> ModelShape:
    return ModelShape((ParameterShape("linear", (width, width), 3), ParameterShape("vector", (width,), 3)))


SMALL = StoredIdentity("small", "digits", ENVIRONMENT, of_width(32))
WIDE: dict[str, Any] = {"fingerprint": "wide", "shape": of_width(64)}


def moved_of(database: Database, job_id: str) -> list[MovedConfig]:
    with database.reading() as session:
        pinned = JobRepository(session).get(job_id).specification.pinned
    return [entry for entry in pinned if isinstance(entry, MovedConfig)]


def test_a_job_begins_with_the_nearest_models_config_and_says_how_it_did(database: Database) -> None:
    tuned = finished_job(database, identity=SMALL)
    with database.reading() as session:
        of_tuned = RecommendationRepository(session).of_job(tuned)
        assert of_tuned is not None
        lr = recommendation_from_json(of_tuned.content).config["lr"]
    lease = claimed_job(database, pinned=["nearest", {"lr": 0.004}], **WIDE)
    first, *others = moved_of(database, lease.job_id)
    assert first.recommendation_id == of_tuned.id
    assert first.parameters["lr"] == pytest.approx(lr / 2, rel=1e-3)
    assert first.distance == pytest.approx(1, abs=0.1)
    assert all(other.recommendation_id is None for other in others)  # of the shipped table

    run_trial(database, lease, 0, 0.5, Phase.SEARCH)
    run_trial(database, lease, 1, 0.25, Phase.SEARCH, values=cast("dict[str, Scalar]", first.parameters))
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    with database.reading() as session:
        row = RecommendationRepository(session).of_job(lease.job_id)
        assert row is not None
        evidence = recommendation_from_json(row.content).evidence
    transfers = evidence.transfers
    caveat = (
        f"The search began with {1 + len(others)} configs that were tuned for other models and the baseline with none"
    )
    assert [one for one in sentences(evidence.caveats) if one.startswith(caveat)]
    assert [(one.number, one.value, one.behind) for one in transfers] == [(1, 0.25, 0.0)]
    (line,) = transfer_lines(transfers)
    assert "moved from digits-mlp" in line
    assert "the best of the search" in line


def test_another_projects_models_are_not_known(database: Database) -> None:
    finished_job(database, identity=SMALL, project="theirs")
    lease = claimed_job(database, pinned=["nearest"], **WIDE)
    assert all(one.recommendation_id is None for one in moved_of(database, lease.job_id))
    of_theirs = claimed_job(database, pinned=["nearest"], project="theirs", **WIDE)
    assert any(one.recommendation_id is not None for one in moved_of(database, of_theirs.job_id))


def test_the_policy_tries_them_after_the_defaults(sqlite_database: Database) -> None:
    finished_job(sqlite_database, identity=SMALL)
    lease = claimed_job(sqlite_database, pinned=["nearest"], **WIDE)
    moved = moved_of(sqlite_database, lease.job_id)
    with sqlite_database.reading() as session:
        plan = plan_job(JobRepository(session).get(lease.job_id).specification)
    policy = make_policy(plan)
    tried = [
        start.parameters
        for start in (policy.ask() for _ in range(8))
        if isinstance(start, Start) and start.side == Phase.SEARCH
    ]
    assert tried[0] == plan.spaces[Phase.SEARCH].defaults()
    assert tried[1] == moved[0].parameters
