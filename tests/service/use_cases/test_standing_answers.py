"""Which of several answers for one key stands: the better one of those that are equally well confirmed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from service.domain import Phase
from service.evidence.types import EvidenceStatus
from service.specification.identity import StoredIdentity
from service.store.migrate import downgrade, migrate
from service.store.repositories import RecommendationQuery, RecommendationRepository, VersionFilter
from service.store.session import Database
from service.use_cases.run import TrialMeasurements, finish_job, record_measurements
from tests.support.service.identities import built_identity
from tests.support.service.scenarios import (
    NOW,
    begin_trial,
    claimed_job,
    end_trial,
    repeat_trial,
    run_trial,
    specification,
)
from trainers.config import Measurement

MLP = built_identity(specification())
ACCURACY: dict[str, Any] = {"objectives": [{"metric": "validation_accuracy"}]}


def answered(database: Database, loss: float, *, identity: StoredIdentity = MLP, **fields: Any) -> str:
    """The id of a job whose best trial ended with this loss, found with one seed."""
    lease = claimed_job(database, **fields)
    run_trial(database, lease, 0, loss, identity=identity)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    return lease.job_id


def confirmed(database: Database, loss: float, *, new_losses: Sequence[float]) -> str:
    """The id of a job whose best config ended with `loss`, and with the others when it was trained with new seeds."""
    lease = claimed_job(database, confirmation={"top_k": 1, "num_seeds": len(new_losses)})
    run_trial(database, lease, 0, loss, identity=MLP)
    run_trial(database, lease, 1, 0.9, Phase.BASELINE, identity=MLP)
    for seed, new_loss in enumerate(new_losses, start=1):
        repeat_trial(database, lease, 2 * seed, new_loss, confirms=0, seed=seed)
        repeat_trial(database, lease, 2 * seed + 1, 0.9, confirms=1, seed=seed)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    return lease.job_id


def with_versions(**versions: str) -> StoredIdentity:
    """The same model, trained with other versions."""
    environment: Mapping[str, Any] = MLP.environment
    changed = {name.replace("_", "-"): version for name, version in versions.items()}
    return dataclasses.replace(MLP, environment={**environment, "versions": {**environment["versions"], **changed}})


def standing(database: Database) -> list[str]:
    """The jobs whose answers stand, the best first."""
    with database.reading() as session:
        found = RecommendationRepository(session).find(RecommendationQuery(project=None), limit=9)
    return [answer.row.job_id for answer in found]


def test_a_worse_later_answer_does_not_take_the_place_of_a_better_one(database: Database) -> None:
    better = answered(database, 0.2)
    worse = answered(database, 0.5)
    assert standing(database) == [better]
    with database.reading() as session:
        recommendations = RecommendationRepository(session)
        of_worse = recommendations.of_job(worse)
        assert of_worse is not None
        assert recommendations.is_superseded(of_worse)
        assert [(one.row.job_id, one.is_superseded) for one in recommendations.of_key_of(of_worse, limit=9)] == [
            (better, False),
            (worse, True),
        ]
    best = answered(database, 0.1)
    assert standing(database) == [best]
    as_good = answered(database, 0.1)
    assert standing(database) == [as_good]


def test_more_is_better_where_the_objective_says_so(database: Database) -> None:
    accurate = answered(database, 0.2, **ACCURACY)  # an accuracy of 1 / (1 + loss)
    answered(database, 0.5, **ACCURACY)
    assert standing(database) == [accurate]


@pytest.mark.slow
def test_confirmed_answers_are_compared_by_their_means_over_new_seeds(database: Database) -> None:
    steady = confirmed(database, 0.4, new_losses=[0.4, 0.41, 0.42])
    lucky = confirmed(database, 0.39, new_losses=[0.5, 0.4, 0.6])
    with database.reading() as session:
        found = RecommendationRepository(session).of_jobs([steady, lucky])
        assert {row.status for row in found} == {EvidenceStatus.CONFIRMED}
    assert standing(database) == [steady]


@pytest.mark.slow
def test_a_confirmed_answer_takes_the_place_of_a_luckier_provisional_one_and_not_the_other_way(
    database: Database,
) -> None:
    answered(database, 0.1)
    checked = confirmed(database, 0.4, new_losses=[0.4, 0.41, 0.42])
    assert standing(database) == [checked]
    later = answered(database, 0.3)
    assert standing(database) == [checked, later]
    answered(database, 0.35)
    assert standing(database) == [checked, later]


@pytest.mark.slow
def test_a_score_is_a_mean_over_new_seeds_and_outlasts_a_downgrade(database: Database) -> None:
    held = confirmed(database, 0.4, new_losses=[0.4, 0.41, 0.42])
    lost = confirmed(database, 0.1, new_losses=[0.95, 0.96, 0.97])

    def scores() -> dict[str, tuple[EvidenceStatus, float | None, str | None]]:
        with database.reading() as session:
            found = RecommendationRepository(session).of_jobs([held, lost])
            return {row.job_id: (row.status, row.score, row.measured_by) for row in found}

    now = scores()
    assert {job_id: status for job_id, (status, _, _) in now.items()} == {
        held: EvidenceStatus.CONFIRMED,
        lost: EvidenceStatus.REFUTED,
    }
    with database.reading() as session:
        for row in RecommendationRepository(session).of_jobs([held, lost]):
            assert row.score == -row.content["evidence"]["best"]["value"]
    of_lost = now[lost][1]
    assert of_lost is not None
    assert of_lost < -0.9  # no longer the 0.1 that it was found with
    downgrade(database, "0031")
    migrate(database)
    assert scores() == now


@pytest.mark.parametrize(
    ("versions", "is_comparable"),
    [
        ({"torch": "9.9", "python": "9.9"}, True),
        ({"numpy": "9.9"}, False),
        ({"shampoo_tuner": "9.9"}, False),
    ],
)
def test_a_later_answer_stands_where_other_code_measured_it(
    database: Database, versions: dict[str, str], is_comparable: bool
) -> None:
    better = answered(database, 0.2)
    later = answered(database, 0.5, identity=with_versions(**versions))
    assert standing(database) == [better if is_comparable else later]


def test_of_answers_with_the_newest_code_the_best_stands(database: Database) -> None:
    answered(database, 0.1)
    newer = with_versions(numpy="9.9")
    best = answered(database, 0.4, identity=newer)
    answered(database, 0.5, identity=newer)
    assert standing(database) == [best]
    back = answered(database, 0.6)  # by the first code, and the last: what stands is never nothing
    assert standing(database) == [back]


def test_times_are_not_compared_as_machines_differ(database: Database) -> None:
    jobs = []
    for seconds in (0.1, 0.2):
        lease = claimed_job(database, objectives=[{"metric": "step_seconds"}])
        begin_trial(database, lease, 0)
        metrics = {"validation_loss": 0.2, "step_seconds": seconds}
        measured = Measurement(step=40, epoch=4.0, seconds=40 * seconds, metrics=metrics)
        with database.writing() as session:
            record_measurements(session, lease, [TrialMeasurements(0, [measured], MLP)], now=NOW)
        end_trial(database, lease, 0)
        with database.writing() as session:
            finish_job(session, lease, failure=None, now=NOW)
        jobs.append(lease.job_id)
    assert standing(database) == [jobs[1]]


def test_of_a_model_asked_for_by_name_the_best_with_that_name_is_given(database: Database) -> None:
    answered(database, 0.1, model="another")
    answered(database, 0.5, model="ours")
    best = answered(database, 0.3, model="ours")
    answered(database, 0.4, model="ours")
    with database.reading() as session:
        found = RecommendationRepository(session).find(RecommendationQuery(project=None, model="ours"), limit=9)
    assert [answer.row.job_id for answer in found] == [best]


@pytest.mark.parametrize(
    ("asked", "of_best", "of_other"),
    [
        ({"world_size": 1}, {}, {"resources": {"workers_per_trial": 2}}),
        ({"device": "cpu"}, {}, {"resources": {"gpus_per_worker": 1}}),
        ({"versions": [VersionFilter("torch", "1.13")]}, {"identity": with_versions(torch="1.13.1")}, {}),
    ],
    ids=["ranks", "device", "version"],
)
def test_a_better_answer_that_does_not_hold_for_what_is_asked_hides_none(
    database: Database, asked: dict[str, Any], of_best: dict[str, Any], of_other: dict[str, Any]
) -> None:
    answered(database, 0.5, **of_best)
    best = answered(database, 0.3, **of_best)
    answered(database, 0.4, **of_best)
    better = answered(database, 0.1, **of_other)
    assert standing(database) == [better]
    with database.reading() as session:
        found = RecommendationRepository(session).find(RecommendationQuery(project=None, **asked), limit=9)
    assert [(answer.row.job_id, answer.is_superseded) for answer in found] == [(best, False)]
