"""Winners of earlier jobs as pinned trials: which are found, how they fit another space, and what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces import Categorical, Float, Integer, Scalar, SearchSpace, preset
from search_spaces.fitting import fit
from service.domain import DEFAULT_PROJECT, Phase
from service.errors import InvalidInput
from service.specification.estimate_lines import estimate_lines
from service.specification.identity import ModelOfJob, StoredIdentity
from service.specification.job import EarlierWinner, JobSpecification
from service.specification.planning import plan_job
from service.store.models import Job
from service.store.repositories import JobRepository
from service.store.session import Database
from service.use_cases.earlier_winners import MAX_WINNERS, resolve_winners
from service.use_cases.estimating.estimates import estimate_job
from service.use_cases.estimating.model_fingerprint import field_with_winners, model_for_winners
from service.use_cases.run import finish_job
from service.use_cases.steer import cancel_job
from service.use_cases.submit import create_job
from tests.support.service.live import finished_job
from tests.support.service.scenarios import NOW, claimed_job, run_trial, specification, submit

SPACE = SearchSpace(
    "shampoo",
    (
        Categorical("grafting", ("adam", "sgd")),
        Float("lr", 1e-3, 1e-1, scale="log", when={"grafting": ("adam",)}),
        Integer("precondition_frequency", 5, 50),
    ),
)


MLP = StoredIdentity("mlp", "digits", {"device": "cpu", "device_name": None, "world_size": 1, "versions": {}})
"""Of all jobs here; `test_found_recommendations.py` has models that differ."""


def resolved(database: Database, **fields: Any) -> JobSpecification:
    with database.reading() as session:
        return resolve_winners(
            session, plan_job(specification(**fields)), ModelOfJob(MLP.fingerprint, None), project=DEFAULT_PROJECT
        )


@pytest.mark.parametrize(
    ("given", "fitted"),
    [
        ({"lr": 0.01, "precondition_frequency": 10}, ({"lr": 0.01, "precondition_frequency": 10}, [])),
        (
            {"lr": 5, "precondition_frequency": 9.5},
            ({"lr": 0.1, "precondition_frequency": 10}, ["lr", "precondition_frequency"]),
        ),
        ({"grafting": "sgd", "lr": 0.01}, ({"grafting": "sgd"}, [])),
        ({"grafting": "rmsprop", "lr": 0.01}, None),
        ({"lr": "large"}, None),
        ({"lr": True}, None),
        ({"momentum": 0.9}, None),
        ({}, None),
    ],
)
def test_an_assignment_of_another_space_is_clipped_filled_up_or_left_out(given: Any, fitted: Any) -> None:
    found = fit(SPACE, given)
    if fitted is None:
        assert found is None
        return
    assert found is not None
    values, clipped = fitted
    assert found == ({**SPACE.defaults({"grafting": values.get("grafting", "adam")}), **values}, clipped)


def test_a_config_keeps_its_member_of_the_family_in_another_space() -> None:
    family = preset("family")
    soap, arguments = {"lr": 0.02}, {"preconditioner": "soap", "lr": 0.02, "max_preconditioner_dim": 64}
    found = fit(family, soap, held=arguments)
    assert found is not None
    assert found == (family.defaults({"preconditioner": "soap", **soap}), [])
    of_family: dict[str, Scalar] = {"preconditioner": "soap", "lr": 0.02}
    assert fit(preset("soap"), of_family) == (preset("soap").defaults(soap), [])
    assert fit(preset("shampoo"), of_family) is None
    assert fit(preset("kl"), of_family) is None
    assert fit(family, {"weight_decay_type": "l2"}, held={"preconditioner": "soap"}) is None


def test_the_newest_jobs_winner_comes_first_and_is_stored_with_where_it_comes_from(database: Database) -> None:
    older, newer = (
        finished_job(database, identity=MLP),
        finished_job(database, identity=MLP),
    )  # all of their trials have the defaults
    job_id = submit(
        database, fingerprint=MLP.fingerprint, pinned=["winners"], baseline={"pinned": ["winners", {"lr": 0.002}]}
    )
    with database.reading() as session:
        found = JobRepository(session).get(job_id).specification
    [winner] = found.pinned  # the older one's is the same
    assert isinstance(winner, EarlierWinner)
    assert (winner.job_id, winner.trial, winner.value, winner.clipped) == (newer, 2, 0.2, [])
    assert winner.parameters == plan_job(specification()).spaces[Phase.SEARCH].defaults()
    of_baseline, own = found.baselines[0].pinned
    assert isinstance(of_baseline, EarlierWinner)
    assert (of_baseline.trial, own) == (1, {"lr": 0.002})
    plan = plan_job(found)
    assert plan.pinned[Phase.SEARCH] == (winner.parameters,)
    assert [values["lr"] for values in plan.pinned["adamw"]] == [of_baseline.parameters["lr"], 0.002]
    assert older != newer


def test_only_succeeded_jobs_with_the_same_objective_and_optimizer_have_winners(database: Database) -> None:
    assert resolved(database, pinned=["winners"]).pinned == []
    lease = claimed_job(database, objectives=[{"metric": "validation_accuracy"}])
    run_trial(database, lease, 0, 0.5, identity=MLP)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5, identity=MLP)
    with database.writing() as session:
        finish_job(session, lease, failure="no more", now=NOW)
    assert resolved(database, pinned=["winners"]).pinned == []
    finished_job(database, identity=MLP)
    assert resolved(database, pinned=["winners"], search_space="sgd").pinned == []
    assert len(resolved(database, pinned=["winners"]).pinned) == 1


def test_there_are_at_most_five_winners_each_once(database: Database) -> None:
    for rank in range(MAX_WINNERS + 2):
        lr = {"type": "float", "name": "lr", "low": 1e-3, "high": 1.0, "default": (rank + 1) / 1000}
        space = {"optimizer": "shampoo", "parameters": [lr]}
        lease = claimed_job(database, search_space=space, baseline=None)
        run_trial(database, lease, 0, 0.5, identity=MLP)
        with database.writing() as session:
            finish_job(session, lease, failure=None, now=NOW)
    pinned = resolved(database, pinned=["winners", "winners", {"lr": 0.004}]).pinned
    assert len(pinned) == MAX_WINNERS + 1
    values: list[float] = []
    for entry in pinned[:-1]:
        assert isinstance(entry, EarlierWinner)
        value = entry.parameters["lr"]
        assert isinstance(value, float)
        values.append(value)
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == MAX_WINNERS
    assert pinned[-1] == {"lr": 0.004}


def test_a_repeated_key_gives_the_first_job_whatever_has_won_since(database: Database) -> None:
    def create() -> tuple[Job, bool]:
        with database.writing() as session:
            wanted = specification(pinned=["winners"])
            return create_job(
                session,
                wanted,
                name=None,
                tags={},
                project=DEFAULT_PROJECT,
                owner=None,
                of_model=ModelOfJob(MLP.fingerprint, MLP.shape),
                idempotency_key="k",
                now=NOW,
            )

    finished_job(database, identity=MLP)
    job, is_new = create()
    assert is_new
    with database.writing() as session:
        cancel_job(session, job.id, now=NOW)  # so that nobody claims it
    finished_job(database, identity=MLP)
    again, is_new = create()
    assert (again.id, is_new) == (job.id, False)


def test_the_dry_run_says_what_won_or_that_nothing_has(database: Database) -> None:
    def lines(**fields: Any) -> str:
        with database.reading() as session:
            model = ModelOfJob(MLP.fingerprint, MLP.shape)
            estimate = estimate_job(session, plan_job(specification(**fields)), project=DEFAULT_PROJECT, of_model=model)
        return "\n".join(estimate_lines(estimate))

    assert "winner" not in lines()
    assert "No earlier job with this model, objective and optimizer has a winner for the search." in lines(
        pinned=["winners"]
    )
    job_id = finished_job(database, identity=MLP)
    assert f"The search begins with winners of earlier jobs: trial 2 of {job_id}." in lines(pinned=["winners"])
    narrow = {"optimizer": "shampoo", "parameters": [{"type": "float", "name": "lr", "low": 1e-6, "high": 1e-5}]}
    assert f"trial 2 of {job_id} (lr clipped)" in lines(pinned=["winners"], search_space=narrow)


def test_a_winner_given_by_hand_is_checked_like_an_assignment(database: Database) -> None:
    winner = {"job_id": "job_x", "trial": 3, "value": 0.5, "parameters": {"lr": 0.002}}
    assert plan_job(resolved(database, pinned=[winner])).pinned[Phase.SEARCH][0]["lr"] == 0.002
    with pytest.raises(InvalidInput, match="must be in") as refused:
        submit(database, fingerprint=MLP.fingerprint, pinned=["algoperf", {**winner, "parameters": {"lr": 1e9}}])
    assert refused.value.field == "pinned[1].parameters.lr"


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_model_that_cannot_be_built_here_has_no_winners_and_the_field_that_asks_is_named() -> None:
    missing = {"name": "text-lm", "options": {"path": "/nowhere/at/all"}}
    for fields, field in (
        ({"pinned": ["winners"]}, "pinned"),
        ({"baseline": {"pinned": [{"lr": 0.002}, "winners"]}}, "baselines[0].pinned"),
    ):
        wanted = specification(workload=missing, **fields)
        assert field_with_winners(wanted) == field
        with pytest.raises(InvalidInput, match=r"which one this is could not be told: .*/nowhere/at/all") as refused:
            model_for_winners(plan_job(wanted))
        assert refused.value.field == field
    assert model_for_winners(plan_job(specification(workload=missing))) is None
