"""Configs of models like the job's own, with which a search begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from search_spaces import Scalar
from service.domain import DEFAULT_PROJECT, Phase
from service.evidence.in_words.words import transfer_lines
from service.evidence.recommended import recommendation_from_json
from service.scheduler.before_training import with_known_configs
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.protocol import Start
from service.scheduler.stored_job import read_stored
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.run_end import Ending, RunEnded
from service.settings import Settings
from service.specification.identity import ModelOfJob, StoredIdentity
from service.specification.job import MAX_SOURCE_LENGTH, JobSpecification, MovedConfig
from service.specification.planning import JobPlan, plan_job
from service.store.repositories import JobRepository, RecommendationRepository
from service.store.session import Database
from service.use_cases import earlier_winners
from service.use_cases.leases import Lease
from service.use_cases.run import finish_job
from service.use_cases.steer import change_budget
from service.use_cases.steer_trials import propose_trial
from tests.support.service.caveats import sentences
from tests.support.service.live import finished_job
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_trial,
    claim,
    claimed_job,
    run_trial,
    specification,
    submit,
)
from tests.support.service.searching.tune_calls import ToldSignals
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


MISSING = {"name": "text-lm", "options": {"path": "/nowhere/at/all"}}


def looked_up(database: Database, **fields: Any) -> JobSpecification:
    with database.reading() as session:
        return earlier_winners.with_known_configs(
            session,
            plan_job(specification(**fields)),
            ModelOfJob("wide", of_width(64)),
            project=DEFAULT_PROJECT,
        )


def num_moved(wanted: JobSpecification) -> list[int]:
    return [sum(isinstance(entry, MovedConfig) for entry in pinned) for pinned in wanted.pinned_of_sides]


def test_search_and_baselines_begin_with_equally_many_known_configs(database: Database) -> None:
    adamw, muon = {"search_space": "adamw"}, {"search_space": "muon"}
    assert num_moved(looked_up(database, baselines=[adamw])) == [3, 3]
    assert num_moved(looked_up(database, baselines=[])) == [3]
    assert num_moved(looked_up(database, baselines=[adamw, muon])) == [0, 0, 0]  # no model was tuned with Muon
    known = looked_up(database, pinned=[{"lr": 0.004}], baselines=[adamw])
    assert known.known_configs == "found"
    assert known.pinned[0] == {"lr": 0.004}
    assert num_moved(known) == [3, 3]
    again = looked_up(database, **known.model_dump(mode="json", include={"pinned", "baselines"}))
    assert num_moved(again) == [3, 3]
    clone = earlier_winners.without_known_configs(known)
    assert clone == specification(pinned=[{"lr": 0.004}], baselines=[adamw])
    assert looked_up(database, **clone.model_dump(mode="json")) == known
    asked = {"baselines": [adamw], "sampler": {"name": "random"}, "known_configs": "nearest"}
    of_random = looked_up(database, **asked)
    assert num_moved(of_random) == [3, 3]
    assert earlier_winners.without_known_configs(of_random) == specification(**asked)


@pytest.mark.parametrize("space", ["spectral", "family"])
def test_a_known_config_that_equals_defaults_takes_no_place_of_another(database: Database, space: str) -> None:
    finished_job(database, identity=SMALL, search_space="spectral")
    same = ModelOfJob(SMALL.fingerprint, SMALL.shape)
    plan = plan_job(specification(search_space=space, baselines=[], budget={"num_trials": 12}))
    with database.reading() as session:
        found = earlier_winners.with_known_configs(session, plan, same, project=DEFAULT_PROJECT)
    assert num_moved(found) == [3]
    moved = [entry.parameters for entry in found.pinned if isinstance(entry, MovedConfig)]
    assert not [one for one in moved if one in plan.spaces[Phase.SEARCH].branch_defaults()]


def known_of_first_run(database: Database, job_id: str) -> JobSpecification:
    """The specification of a job once its first run has looked known configs up."""
    with database.reading() as session:
        stored = JobRepository(session).get(job_id).specification
        model = ModelOfJob("wide", of_width(64))
        return earlier_winners.with_known_configs(session, plan_job(stored), model, project=DEFAULT_PROJECT)


@pytest.mark.parametrize("known_configs", ["auto", "none"])
def test_a_clone_of_a_job_whose_search_alone_asked_for_nearest_asks_for_it_again(
    database: Database, known_configs: str
) -> None:
    asked: dict[str, Any] = {
        "pinned": ["nearest", {"lr": 0.004}],
        "baselines": [{"search_space": "adamw"}],
        "known_configs": known_configs,
    }
    job_id = submit(database, **asked, **WIDE)
    with database.reading() as session:
        submitted = JobRepository(session).get(job_id).specification
    assert num_moved(submitted) == [3, 0]
    assert earlier_winners.without_known_configs(submitted) == specification(**asked)
    if known_configs == "auto":
        begun_with = known_of_first_run(database, job_id)
        assert (num_moved(begun_with), begun_with.known_configs) == ([3, 0], "found")
        assert earlier_winners.without_known_configs(begun_with) == specification(**asked)


def test_a_config_of_another_model_that_a_user_wrote_stays_in_a_clone() -> None:
    written = MovedConfig(source="mine", distance=1.0, parameters={"lr": 0.004})
    wanted = specification(pinned=[written.model_dump(mode="json")], known_configs="none")
    assert earlier_winners.without_known_configs(wanted) == wanted


def test_a_tuned_model_with_long_options_is_named_as_far_as_there_is_room(database: Database) -> None:
    options = {"path": "/books" * 100}
    tuned = finished_job(database, identity=SMALL, workload={"name": "text-lm", "options": options})
    with database.reading() as session:
        of_tuned = RecommendationRepository(session).of_job(tuned)
    assert of_tuned is not None
    pinned = looked_up(database, baselines=[]).pinned
    (found,) = (one for one in pinned if isinstance(one, MovedConfig) and one.recommendation_id == of_tuned.id)
    assert found.source.startswith('text-lm path="/books/books')
    assert len(found.source) == MAX_SOURCE_LENGTH


def begun(database: Database, lease: Lease) -> JobPlan:
    """The plan with which a run of the job goes on, from where the data are."""
    stored = read_stored(database, lease)
    journal = Journal(database, lease, ToldSignals())
    return with_known_configs(plan_job(stored.job.specification), stored, journal, Settings().data_directories)


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_jobs_first_run_looks_known_configs_up_and_later_ones_find_them(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    lease = claimed_job(database)
    plan = begun(database, lease)
    first, *_ = moved = moved_of(database, lease.job_id)
    assert len(moved) == 3
    assert plan.pinned[Phase.SEARCH] == tuple(entry.parameters for entry in moved)
    assert len(plan.pinned["adamw"]) == 3
    assert "digits-mlp" in first.source
    later = begun(database, lease)
    assert later.pinned == plan.pinned
    assert later.specification == plan.specification

    def untouched(**fields: Any) -> bool:
        lease = claimed_job(database, **fields)
        if fields.get("known_configs") == "auto":
            begin_trial(database, lease, 0)
        found = begun(database, lease).specification
        return num_moved(found) == [0, 0] and found.known_configs != "found"

    assert untouched(known_configs="none")
    assert untouched(known_configs="auto")  # it began before, with another version
    assert untouched(sampler={"name": "random"})
    assert untouched(workload=MISSING)
    assert "configs of models like this one could not be looked up" in caplog.text
    lease = claimed_job(database, sampler={"name": "random"}, known_configs="nearest")
    assert num_moved(begun(database, lease).specification) == [3, 3]


BUILT_FOR_EVER = """
import time
from pathlib import Path
from tests.support.trainers.broken_workloads import Sound

class Slow(Sound):
    def build_model(self):
        (Path(__file__).parent / "begun").touch()
        time.sleep(1e6)
"""


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_run_that_is_told_to_end_waits_for_no_known_configs(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "built_for_ever.py").write_text(BUILT_FOR_EVER)
    monkeypatch.syspath_prepend(str(tmp_path))

    class Cancelled(ToldSignals):
        def ending(self) -> Ending | None:
            return Ending.LEASE_LOST if (tmp_path / "begun").exists() else None

    lease = claimed_job(sqlite_database, workload={"name": "built_for_ever:Slow"})
    stored, journal = read_stored(sqlite_database, lease), Journal(sqlite_database, lease, Cancelled())
    with pytest.raises(RunEnded, match="lease lost"):
        with_known_configs(plan_job(stored.job.specification), stored, journal, Settings().data_directories)
    assert "could not be looked up" not in caplog.text


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_budget_that_changes_while_known_configs_are_looked_up_stays(database: Database) -> None:
    lease = claimed_job(database)
    stored = read_stored(database, lease)
    with database.writing() as session:
        change_budget(session, lease.job_id, {"num_trials": 8}, now=NOW)
    journal, roots = Journal(database, lease, ToldSignals()), Settings().data_directories
    with pytest.raises(RunEnded, match="asked to end"):
        with_known_configs(plan_job(stored.job.specification), stored, journal, roots)
    kept = read_stored(database, lease).job.specification
    assert (kept.budget.num_trials, kept.known_configs) == (8, "auto")


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_config_that_a_user_proposed_before_the_first_run_displaces_no_known_ones(database: Database) -> None:
    job_id = submit(database)
    with database.writing() as session:
        propose_trial(session, job_id, phase=Phase.SEARCH, parameters={"lr": 0.004}, idempotency_key=None, now=NOW)
    lease = claim(database, add_worker(database))
    assert lease is not None
    assert num_moved(begun(database, lease).specification) == [3, 3]
