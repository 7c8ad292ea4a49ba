"""Answers by model, workload and fingerprint: which are found, in which order, and what is said of unknown names."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

import pytest

from service.domain import Phase
from service.errors import NotFound, UnknownName
from service.evidence.types import EvidenceStatus
from service.specification.identity import StoredIdentity
from service.specification.job import EarlierWinner
from service.store.repositories import (
    JobRepository,
    KnownValues,
    RecommendationQuery,
    RecommendationRepository,
    StoredAnswer,
    VersionFilter,
)
from service.store.session import Database
from service.use_cases.found_recommendations import field_named, find_answers, values_elsewhere
from service.use_cases.run import finish_job
from tests.support.service.identities import built_identity
from tests.support.service.live import finished_job
from tests.support.service.scenarios import NOW, claimed_job, repeat_trial, run_trial, specification, submit

WIDE: dict[str, Any] = {"workload": {"name": "digits-mlp", "options": {"hidden_sizes": [32]}}}
NARROW: dict[str, Any] = {"workload": {"name": "digits-mlp", "options": {"hidden_sizes": [16]}}}


def answers(database: Database, *, project: str | None = None, limit: int = 20, **asked: Any) -> list[StoredAnswer]:
    with database.reading() as session:
        return find_answers(session, RecommendationQuery(project=project, **asked), limit=limit)


def jobs_of(found: Sequence[StoredAnswer]) -> list[str]:
    return [answer.row.job_id for answer in found]


def confirmed_job(database: Database, identity: StoredIdentity) -> str:
    """The id of a job whose best config and baseline were trained again with two new seeds."""
    lease = claimed_job(database, confirmation={"top_k": 1, "num_seeds": 2})
    run_trial(database, lease, 0, 0.5, identity=identity)
    run_trial(database, lease, 1, 0.7, Phase.BASELINE, identity=identity)
    for number, (source, seed) in enumerate([(0, 1), (0, 2), (1, 1), (1, 2)], start=2):
        repeat_trial(database, lease, number, 0.5 + 0.2 * source, confirms=source, seed=seed)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    return lease.job_id


def test_two_architectures_of_one_workload_keep_their_own_answers(database: Database) -> None:
    wide, narrow = (built_identity(specification(**fields)) for fields in (WIDE, NARROW))
    assert wide.fingerprint != narrow.fingerprint
    assert wide.data_digest == narrow.data_digest is not None
    of_wide = finished_job(database, identity=wide, model="my-wide", **WIDE)
    of_narrow = finished_job(database, identity=narrow, model="my-narrow", **NARROW)
    assert jobs_of(answers(database, workload="digits-mlp")) == [of_narrow, of_wide]
    for job_id, model, identity in ((of_wide, "my-wide", wide), (of_narrow, "my-narrow", narrow)):
        by_name: list[dict[str, Any]] = [{"model": model}, {"fingerprint": identity.fingerprint}]
        for asked in by_name:
            [found] = answers(database, **asked)
            assert (found.row.job_id, found.row.model, found.row.workload) == (job_id, model, "digits-mlp")
    job_id = submit(database, fingerprint=wide.fingerprint, pinned=["winners"], **WIDE)
    with database.reading() as session:
        [winner] = JobRepository(session).get(job_id).specification.pinned
    assert isinstance(winner, EarlierWinner)
    assert winner.job_id == of_wide


def test_winners_of_unknown_models_are_nobodys(database: Database) -> None:
    finished_job(database)  # long ago: nothing says which model it tuned
    job_id = submit(database, fingerprint=built_identity(specification()).fingerprint, pinned=["winners"])
    with database.reading() as session:
        assert JobRepository(session).get(job_id).specification.pinned == []


@pytest.mark.slow
def test_confirmed_answers_stand_first_and_newer_ones_take_the_place_of_older(database: Database) -> None:
    mlp = built_identity(specification())
    long_ago = finished_job(database)
    oldest = finished_job(database, identity=mlp)
    confirmed = confirmed_job(database, mlp)
    newest = finished_job(database, identity=mlp)
    found = answers(database, workload="digits-mlp")
    # A provisional answer takes no confirmed one's place; the one of an unknown model stands for itself.
    assert jobs_of(found) == [confirmed, newest, long_ago]
    assert [answer.row.status for answer in found] == [
        EvidenceStatus.CONFIRMED,
        EvidenceStatus.PROVISIONAL,
        EvidenceStatus.PROVISIONAL,
    ]
    history = answers(database, workload="digits-mlp", includes_superseded=True)
    assert jobs_of(history) == [confirmed, newest, oldest, long_ago]
    assert [answer.is_superseded for answer in history] == [False, False, True, False]
    with database.reading() as session:
        recommendations = RecommendationRepository(session)
        old, new = recommendations.of_job(oldest), recommendations.of_job(newest)
        assert old is not None
        assert new is not None
        assert (recommendations.is_superseded(old), recommendations.is_superseded(new)) == (True, False)
    again = confirmed_job(database, mlp)
    assert jobs_of(answers(database, fingerprint=mlp.fingerprint)) == [again]


@pytest.mark.slow
def test_every_part_of_the_key_and_the_place_filter(database: Database) -> None:
    mlp = built_identity(specification())
    first = finished_job(database, identity=mlp)
    other = finished_job(
        database, identity=mlp, training={"num_steps": 40, "evaluate_every": 10, "batch_size": 64}, model="small-batch"
    )
    assert jobs_of(answers(database, fingerprint=mlp.fingerprint)) == [other, first]
    for asked, expected in (
        ({"batch_size": 128}, [first]),
        ({"batch_size": 64}, [other]),
        ({"batch_size": 32}, []),
        ({"num_steps": 40, "precision": "float32", "objective": "validation_loss"}, [other, first]),
        ({"num_steps": 41}, []),
        ({"precision": "bfloat16"}, []),
        ({"objective": "validation_accuracy"}, []),
        ({"data_digest": mlp.data_digest, "device": "cpu", "world_size": 1}, [other, first]),
        ({"data_digest": "0" * 32}, []),
        ({"device": "cuda"}, []),
        ({"world_size": 2}, []),
        ({"model": "small-batch"}, [other]),
        ({"wants_nearest": True, "batch_size": 128, "num_steps": 41}, [first, other]),
        ({"wants_nearest": True, "objective": "validation_accuracy"}, []),
    ):
        assert jobs_of(answers(database, workload="digits-mlp", **asked)) == expected, asked


def test_answers_are_found_by_the_versions_they_were_found_with(database: Database) -> None:
    identity = built_identity(specification())
    found = importlib.metadata.version("torch")
    major, minor, *_ = found.split(".")
    job_id = finished_job(database, identity=identity)
    finished_job(database)  # long ago: nothing says with which
    for versions, expected in (
        ({"torch": found}, [job_id]),
        ({"torch": f"{major}.{minor}"}, [job_id]),
        ({"torch": f"{major}.{minor}", "python": "3"}, [job_id]),
        ({"torch": f"{major}.{minor}", "python": "2"}, []),
        ({"torch": f"{major}.{minor}0"}, []),
        ({"torch": f"{major}_{minor}"}, []),
        ({"torch": found[:-1]}, []),
        ({"shampoo-tuner's commit": "0000"}, []),
        ({"nothing": "1"}, []),
    ):
        asked = [VersionFilter(package, version) for package, version in versions.items()]
        assert jobs_of(answers(database, versions=asked)) == expected, versions


def test_filters_that_leave_nothing_are_answered_with_the_values_there_are(database: Database) -> None:
    finished_job(database, identity=built_identity(specification()), model="my-gpt")
    finished_job(database, model="my-vit", workload={"name": "digits-convnet"})
    submit(database, model="queued-yet")
    for asked, known in (
        (
            {"model": "my-gpt", "workload": "digits-convnet"},
            [KnownValues("model", ["my-vit"]), KnownValues("workload", ["digits-mlp"])],
        ),
        (
            {"model": "queued-yet", "workload": "digits-mlp", "device": "cpu"},
            [KnownValues("model", ["my-gpt"]), KnownValues("workload", []), KnownValues("device", [])],
        ),
        ({"model": "my-gpt", "workload": "digits-mlp", "device": "cuda"}, [KnownValues("device", ["cpu"])]),
        ({"model": "my-gpt", "device": "cuda"}, [KnownValues("device", ["cpu"])]),
        (
            {"workload": "digits-mlp", "batch_size": 64, "world_size": 2, "precision": "bfloat16"},
            [
                KnownValues("batch_size", [128]),
                KnownValues("precision", ["float32"]),
                KnownValues("world_size", [1]),
            ],
        ),
        ({"model": "queued-yet", "device": "cpu"}, [KnownValues("device", [])]),
        (
            {"versions": [VersionFilter("numpy", "0.1"), VersionFilter("nothing", "1")]},
            [KnownValues("version", [f"numpy={importlib.metadata.version('numpy')}"])],
        ),
    ):
        assert answers(database, **asked) == []
        with database.reading() as session:
            assert values_elsewhere(session, RecommendationQuery(project=None, **asked)) == known


def test_unknown_names_are_answered_with_the_known_ones_the_nearest_first(database: Database) -> None:
    identity = built_identity(specification())
    finished_job(database, identity=identity, model="my-gpt")
    submit(database, model="queued-yet")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"model": "my-gtp"}, "no model is called 'my-gtp' (known: my-gpt, queued-yet): did you mean 'my-gpt'?"),
        ({"model": "digits-mlp"}, "): it is a workload: workload=digits-mlp"),
        ({"workload": "my-gpt"}, "): it is a model: model=my-gpt"),
        ({"workload": "digit-mlp"}, "(known: digits-mlp, "),
        ({"fingerprint": "f" * 32}, f"(known: {identity.fingerprint})"),
    ]
    for asked, message in cases:
        with pytest.raises(UnknownName) as unknown:
            answers(database, **asked)
        assert message in str(unknown.value)
        assert unknown.value.field == next(iter(asked))
    assert answers(database, model="queued-yet") == answers(database, workload="digits-convnet") == []


def test_a_name_alone_is_a_models_then_a_workloads_then_a_fingerprint(database: Database) -> None:
    identity = built_identity(specification())
    finished_job(database, identity=identity, model="my-gpt")
    finished_job(database, model="digits-convnet", project="theirs")
    with database.reading() as session:
        for name, field in (
            ("my-gpt", "model"),
            ("digits-mlp", "workload"),
            ("digits-convnet", "model"),
            (identity.fingerprint, "fingerprint"),
        ):
            assert field_named(session, name, project=None) == field
        assert field_named(session, "digits-convnet", project="default") == "workload"
        with pytest.raises(UnknownName, match="no model, workload or fingerprint is called"):
            field_named(session, "my-gtp", project=None)


@pytest.mark.slow
def test_the_history_of_a_key_and_one_answer_are_found_within_a_project(database: Database) -> None:
    mlp = built_identity(specification())
    jobs = [finished_job(database, identity=mlp) for _ in range(3)]
    foreign = finished_job(database, identity=mlp, project="theirs")
    without_key = finished_job(database)
    with database.reading() as session:
        recommendations = RecommendationRepository(session)
        own = {job_id: recommendations.of_job(job_id) for job_id in (*jobs, foreign, without_key)}
        first, alone, theirs = own[jobs[0]], own[without_key], own[foreign]
        assert first is not None
        assert alone is not None
        assert theirs is not None
        history = recommendations.of_key_of(first, limit=2)
        assert jobs_of(history) == [jobs[2], jobs[1]]
        assert [answer.is_superseded for answer in recommendations.of_key_of(first, limit=9)] == [False, True, True]
        assert jobs_of(recommendations.of_key_of(alone, limit=9)) == [without_key]
        assert recommendations.get(first.id, project="default").is_superseded
        assert not recommendations.get(theirs.id, project=None).is_superseded
        for missing in (theirs.id, "rec_of_nobody"):
            with pytest.raises(NotFound, match="no recommendation"):
                recommendations.get(missing, project="default")
        everything = RecommendationQuery(project=None, includes_superseded=True)
        pages = [recommendations.find(everything, limit=2, offset=offset) for offset in (0, 2, 4)]
        assert jobs_of([answer for page in pages for answer in page]) == jobs_of(
            recommendations.find(everything, limit=9)
        )
        known = recommendations.known_values(RecommendationQuery(project="theirs"), limit=9, of_all_filters=True)
        assert {"objective", "batch_size", "data_digest", "device"} <= {each.field for each in known}


def test_what_a_search_varies_is_no_part_of_the_fingerprint() -> None:
    dropout = {"type": "float", "name": "workload.dropout", "low": 0.1, "high": 0.5, "default": 0.3}
    searched = specification(search_space={"optimizer": "shampoo", "parameters": [dropout]})
    plain = built_identity(specification()).fingerprint
    assert built_identity(searched).fingerprint == plain
    for options, is_same in (
        ({"hidden_sizes": [128, 64]}, True),  # as by default
        ({"label_smoothing": 0.1}, False),
        ({"hidden_sizes": [64, 128]}, False),
    ):
        given = specification(workload={"name": "digits-mlp", "options": options})
        assert (built_identity(given).fingerprint == plain) is is_same, options
