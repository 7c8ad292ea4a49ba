"""Databases of earlier versions, as they were dumped then, come to the newest schema with all that is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.domain import DEFAULT_PROJECT, Direction, Objective
from service.evidence.recommended import evidence_from_json
from service.evidence.types import EvidenceStatus
from service.optuna_storage import JobStorage
from service.scheduler.policy.history import history_of
from service.store.migrate import check, migrate, why_not_migrated
from service.store.repositories import (
    ClusterShareRepository,
    JobRepository,
    MeasurementRepository,
    RecommendationQuery,
    RecommendationRepository,
    TrialRepository,
)
from service.store.session import Database
from tests.support.service.databases.dump_store import BEST_TRIAL, JOBS, KINDS, TRIALS, VERSIONS, load, write_dump
from tests.support.service.scenarios import NOW
from trainers.config import TrialConfig

REVISIONS = sorted(path.name for path in VERSIONS.iterdir() if path.is_dir())


def kind_of(url: str) -> str:
    return next(kind for kind in KINDS if url.startswith(kind))


def check_stories(database: Database, status: EvidenceStatus) -> None:
    """All that `tell_stories` left can be read by the code of today; `status`: of its recommendation."""
    assert why_not_migrated(database) is None
    check(database)
    with database.reading() as session:
        jobs, trials = JobRepository(session), TrialRepository(session)
        found = list(reversed(jobs.page(project=None, limit=10)))
        assert [job.state for job in found] == JOBS
        assert [job.specification.budget.num_trials for job in found] == [5, 4, 4]
        succeeded, running, _ = found
        assert succeeded.objectives == (
            Objective("validation_loss", Direction.MINIMIZE),
            Objective("validation_accuracy", Direction.MAXIMIZE),
        )
        assert [[choice.metric for choice in job.specification.objectives] for job in found] == [
            ["validation_loss", "validation_accuracy"],
            [],
            [],
        ]
        assert running.objectives == succeeded.objectives[:1]
        stored = trials.with_measurements(succeeded.id)
        assert {trial.number: (trial.phase, trial.state, trial.reason) for trial in stored} == TRIALS
        for trial in stored:
            config, read = TrialConfig.from_json(trial.config), trial.stored_config
            assert config.num_steps == read.num_steps == 40
            assert (read.optimizer, read.arguments) == (config.optimizer.name, config.optimizer.arguments)
            assert (read.seed, read.batch_size, read.precision) == (config.seed, config.batch_size, config.precision)
        history = history_of(stored, succeeded.objectives)
        assert [len(trial.curve) for trial in history] == [4, 4, 1, 0, 4, 4, 4]
        recommendation = RecommendationRepository(session).of_job(succeeded.id)
        assert recommendation is not None
        evidence = evidence_from_json(recommendation.content["evidence"])
        assert evidence.best.number == BEST_TRIAL
        assert evidence.confirmation is not None
        query = RecommendationQuery(
            project=None,
            workload="digits-mlp",
            objective="validation_loss",
            num_steps=40,
            batch_size=128,
            precision="float32",
        )
        [answer] = RecommendationRepository(session).find(query, limit=5)
        row = answer.row
        assert (row.id, row.status, answer.is_superseded) == (recommendation.id, status, False)
        assert (row.device, row.world_size, row.model, row.fingerprint) == ("cpu", 1, None, None)
        assert [job.workload for job in found] == ["digits-mlp"] * 3
        [unfinished] = trials.with_measurements(running.id)
        assert [measured.step for measured in MeasurementRepository(session).of_trial(unfinished.id)] == [10]
        [(share, project, priority)] = ClusterShareRepository(session).of_cluster("10.0.0.1:6379", now=NOW)
        assert (share.job_id, share.num_groups, share.group_share, priority) == (running.id, 1, 0.25, 0)
        assert project == DEFAULT_PROJECT
    storage = JobStorage(database.url)
    shown = [len(storage.get_all_trials(study._study_id)) for study in storage.get_all_studies()]
    assert sum(shown) == len(TRIALS) + 1
    storage.remove_session()


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_database_of_an_earlier_version_is_read_after_an_upgrade(revision: str, empty_database_url: str) -> None:
    load(empty_database_url, (VERSIONS / revision / f"{kind_of(empty_database_url)}.sql").read_text())
    database = Database(empty_database_url)
    migrate(database)
    # Up to then, a config with one new seed was confirmed by it.
    status = EvidenceStatus.CONFIRMED if revision <= "0014" else EvidenceStatus.PROVISIONAL
    check_stories(database, status)
    database.close()


@pytest.mark.slow
def test_a_dump_can_be_made_of_this_version(empty_database_url: str, tmp_path: Path) -> None:
    path = write_dump(empty_database_url, kind_of(empty_database_url), tmp_path)
    database = Database(empty_database_url)
    check_stories(database, EvidenceStatus.PROVISIONAL)  # one of its two new seeds chooses, and one compares: too few
    database.close()
    assert "recommendations" in path.read_text()
