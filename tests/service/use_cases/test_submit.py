"""Submitting, cancelling and following jobs."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy.event
from pydantic import ValidationError

from service.domain import DEFAULT_PROJECT, JobState, Phase, TrialState
from service.errors import IdempotencyKeyReused, InvalidInput, JobAlreadyFinished, NotFound
from service.evidence.best_values import BestTrial
from service.specification.job import JobSpecification
from service.specification.planning import plan_job
from service.store.models import Job
from service.store.repositories import EventRepository, JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.progress import JobProgress, progress_of
from service.use_cases.run import finish_job
from service.use_cases.steer import cancel_job, change_budget, resume_job
from service.use_cases.submit import create_job
from tests.support.service.scenarios import (
    NOW,
    begin_trial,
    claimed_job,
    end_trial,
    measure,
    repeat_trial,
    run_trial,
    specification,
    submit,
)


def _create(
    database: Database, spec: JobSpecification, *, key: str | None = None, now: datetime = NOW
) -> tuple[Job, bool]:
    with database.writing() as session:
        return create_job(
            session, spec, name=None, tags={}, project=DEFAULT_PROJECT, owner=None, idempotency_key=key, now=now
        )


def test_a_new_job_is_queued_with_the_workloads_defaults_and_an_event(database: Database) -> None:
    job, created = _create(database, JobSpecification.model_validate({"workload": {"name": "digits-mlp"}}))
    assert created
    assert (job.state, job.metric, job.direction) == (JobState.QUEUED, "validation_loss", "minimize")
    with database.reading() as session:
        assert JobRepository(session).get(job.id).created_at == NOW
        (event,) = EventRepository(session).after(0, project=None, limit=10)
    assert (event.kind, event.data["state"]) == ("job.state", "queued")


def test_an_idempotency_key_makes_one_job(database: Database) -> None:
    first, created = _create(database, specification(), key="k")
    again, created_again = _create(database, specification(), key="k")
    assert (created, created_again) == (True, False)
    assert first.id == again.id
    with pytest.raises(IdempotencyKeyReused):
        _create(database, specification(budget={"num_trials": 9}), key="k")


def test_an_idempotency_key_is_forgotten_after_a_month(database: Database) -> None:
    first, _ = _create(database, specification(), key="k")
    kept, _ = _create(database, specification(), key="other", now=NOW + timedelta(days=2))
    soon, is_new = _create(database, specification(), key="k", now=NOW + timedelta(days=30))
    assert (soon.id, is_new) == (first.id, False)
    later, is_new = _create(database, specification(), key="k", now=NOW + timedelta(days=31))
    assert (later.id != first.id, is_new) == (True, True)
    with database.reading() as session:
        with_keys = {
            job.id for job in JobRepository(session).page(project=None, limit=10) if job.idempotency_key is not None
        }
    assert with_keys == {kept.id, later.id}


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"workload": {"name": "nope"}}, "workload.name", "'nope'"),
        ({"workload": {"name": "digits-mlp", "options": {"layers": 3}}}, "workload.options.layers", "3"),
        ({"objectives": [{"metric": "bleu"}]}, "objectives[0].metric", "'bleu'"),
        ({"search_space": "adam"}, "search_space", "'adam'"),
        ({"baseline": {"search_space": "adam"}}, "baselines[0].search_space", "'adam'"),
        ({"training": {"num_steps": 10, "evaluate_every": 20}}, "training.evaluate_every", "20"),
        ({"training": {"batch_size": 7}, "resources": {"workers_per_trial": 2}}, "training.batch_size", "7"),
        ({"pruner": {"min_steps": 1000}}, "pruner.min_steps", "1000"),
        ({"sampler": {"name": "auto"}, "pruner": {"name": "asha"}}, "pruner.name", "'asha' does not go with"),
        ({"constraints": [{"metric": "bleu", "max": 1}]}, "constraints[0].metric", "'bleu'"),
        ({"constraints": [{"metric": "step_seconds"}]}, "constraints[0]", "needs a min or a max"),
        ({"constraints": [{"metric": "step_seconds", "min": 2, "max": 1}]}, "constraints[0].min", "2 exceeds"),
        ({"constraints": [{"metric": "steps_to_target", "max": 9}]}, "target", "'steps_to_target'"),
        ({"pinned": [{"lr": 1e-3}, {"lr": 5.0}]}, "pinned[1].lr", "5.0"),
        ({"pinned": [{"learning_rate": 1.0}]}, "pinned[0]", "learning_rate"),
        ({"search_space": "soap", "pinned": ["algoperf"]}, "pinned[0]", "no point"),
        ({"baseline": {"pinned": [{"lr": "big"}]}}, "baselines[0].pinned[0].lr", "'big'"),
        ({"pruner": {"reduction_factor": 4}}, "pruner.reduction_factor", "no effect with the sampler 'auto'"),
        ({"budget": {"num_trials": 1}}, "budget.num_trials", "1"),
        (
            {
                "search_space": {
                    "optimizer": "shampoo",
                    "parameters": [
                        {"type": "float", "name": "workload.depth", "low": 0.0, "high": 1.0, "default": 0.5}
                    ],
                }
            },
            "search_space.parameters[0].name",
            "'depth'",
        ),
        (
            {"search_space": {"optimizer": "shampoo", "parameters": [], "fixed": {"workload.depth": 2}}},
            "search_space.fixed.workload.depth",
            "'depth'",
        ),
    ],
)
def test_an_impossible_job_is_refused_naming_field_and_value(
    database: Database, fields: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        _create(database, specification(**fields))
    assert refused.value.field == field
    assert said in refused.value.message
    with database.reading() as session:
        assert JobRepository(session).page(project=None, limit=1) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"budget": {"num_trials": -1}},
        {"budget": {"num_trials": "8"}},
        {"budget": {"num_trials": True}},
        {"budget": {"num_trials": 10_001}},
        {"budget": {"wall_clock_seconds": 0}},
        {"budget": {"wall_clock_seconds": float("nan")}},
        {"baseline": {"budget_share": 1.0}},
        {"sampler": {"name": "magic"}},
        {"colour": "red"},
    ],
)
def test_fields_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        specification(**fields)


def test_pinned_trials_are_completed_with_defaults() -> None:
    plan = plan_job(specification(pinned=["algoperf", {"lr": 2e-3}], baseline={"pinned": [{"lr": 1e-2}]}))
    search, baseline = plan.pinned[Phase.SEARCH], plan.pinned["adamw"]
    assert [point["lr"] for point in search] == [1.749e-3, 1.438e-3, 1.2e-3, 1.308e-3, 2e-3]
    assert search[-1] == {**plan.spaces[Phase.SEARCH].defaults(), "lr": 2e-3}
    assert baseline == ({**plan.spaces["adamw"].defaults(), "lr": 1e-2},)


@pytest.mark.parametrize(
    ("fields", "sampler", "pruner"),
    [
        ({}, "auto", "auto"),
        ({"pruner": {"name": "none"}}, "auto", "none"),
        ({"pruner": {"name": "asha"}}, "tpe", "asha"),
        ({"sampler": {"name": "gp"}}, "gp", "asha"),
        ({"sampler": {"name": "grid"}, "pruner": {"name": "median"}}, "grid", "median"),
        ({"budget": {"num_trials": 8}, "pruner": {"name": "pbt"}}, "tpe", "pbt"),
    ],
)
def test_a_sampler_and_a_pruner_are_chosen_to_go_together(fields: dict[str, Any], sampler: str, pruner: str) -> None:
    plan = plan_job(specification(**fields))
    assert (plan.sampler, plan.pruner) == (sampler, pruner)


@pytest.mark.parametrize(
    ("num_trials", "share", "baseline"), [(20, 0.25, 5), (2, 0.25, 1), (3, 0.5, 1), (3, 0.9, 2), (100, 0.001, 1)]
)
def test_the_budget_is_split_so_that_both_phases_get_trials(num_trials: int, share: float, baseline: int) -> None:
    plan = plan_job(specification(budget={"num_trials": num_trials}, baseline={"budget_share": share}))
    assert plan.allotments == {Phase.SEARCH: num_trials - baseline, Phase.BASELINE: baseline}


@pytest.mark.parametrize(
    ("num_trials", "shares", "allotted"),
    [
        (3, (None, None), (1, 1, 1)),
        (20, (None, None), (7, 7, 6)),
        (30, (None, None, None), (8, 8, 7, 7)),
        (40, (0.25, None), (15, 10, 15)),
        (40, (0.5, 0.25), (10, 20, 10)),
    ],
)
def test_search_and_baselines_share_the_budget_evenly_but_for_the_shares_given(
    num_trials: int, shares: tuple[float | None, ...], allotted: tuple[int, ...]
) -> None:
    baselines = _baselines(*zip(("adamw", "muon", "sgd"), shares, strict=False))
    plan = plan_job(specification(budget={"num_trials": num_trials}, baselines=baselines))
    assert tuple(plan.side_allotments.values()) == allotted
    assert list(plan.side_allotments) == ["search", *(baseline["search_space"] for baseline in baselines)]
    more = plan_job(specification(budget={"num_trials": num_trials + 1}, baselines=baselines)).side_allotments
    assert all(more[side] >= num for side, num in plan.side_allotments.items())


@pytest.mark.parametrize(
    ("baselines", "field", "said"),
    [
        ([("adamw", None), ("adamw", None)], "baselines[1].search_space", "'adamw', as baselines[0].search_space"),
        ([("adamw", 0.5), ("muon", 0.5)], "baselines[1].budget_share", "leaves nothing to the search"),
        ([("adamw", None), ("muon", None), ("sgd", None)], "budget.num_trials", "with 3 baselines needs at least 4"),
    ],
)
def test_baselines_that_do_not_go_together_are_refused(
    baselines: list[tuple[str, float | None]], field: str, said: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)) as refused:
        plan_job(specification(budget={"num_trials": 3}, baselines=_baselines(*baselines)))
    assert refused.value.field == field


def _baselines(*named: tuple[str, float | None]) -> list[dict[str, Any]]:
    return [{"search_space": name, "budget_share": share} for name, share in named]


def test_a_stored_job_of_the_time_of_one_baseline_is_read_with_its_own() -> None:
    stored = {
        "workload": {"name": "digits-mlp"},
        "budget": {"num_trials": 8, "extra_search_trials": 1, "extra_baseline_trials": 2},
        "baseline": {"search_space": "sgd", "budget_share": 0.25, "pinned": []},
    }
    read = JobSpecification.model_validate(stored)
    assert plan_job(read).side_allotments == {"search": 7, "sgd": 4}
    assert (read.num_searched, JobSpecification.model_validate(read.model_dump(mode="json"))) == (11, read)
    without = {**stored, "budget": {"num_trials": 8, "extra_baseline_trials": 0}, "baseline": None}
    assert JobSpecification.model_validate(without).baselines == []


def test_several_baselines_choose_one_of_them_even_with_a_config_each() -> None:
    baselines = _baselines(("adamw", None), ("muon", None))
    plan = plan_job(specification(baselines=baselines, confirmation={"top_k": 1, "num_seeds": 8}))
    assert plan.allotments[Phase.CONFIRMATION] == 3 * 2 + 2 * 6


@pytest.mark.parametrize(
    ("fields", "num_confirmations"),
    [
        ({"confirmation": {}}, 2 * 7),  # the baseline's one trial leaves nothing to choose
        ({"confirmation": {}, "baseline": {}}, 2 * 2 * 1 + 2 * 6),
        ({"confirmation": {"top_k": 2, "num_seeds": 8}}, 2 * 2 * 2 + 2 * 6),
        ({"confirmation": {"top_k": 1, "num_seeds": 5}}, 2 * 5),
        ({"confirmation": {"top_k": 2, "num_seeds": 5}, "baseline": None}, 2 * 1 + 4),
    ],
)
def test_the_trials_of_the_confirmation_come_on_top_of_the_budget(
    database: Database, fields: dict[str, Any], num_confirmations: int
) -> None:
    spec = specification(**fields)
    plan = plan_job(spec)
    assert plan.allotments[Phase.CONFIRMATION] == num_confirmations
    job, _ = _create(database, spec)
    assert job.num_trials == 4 + num_confirmations


@pytest.mark.parametrize(
    ("fields", "allotments"),
    [
        ({"budget": {"num_trials": 20}, "baseline": {}}, (10, 10, 16)),
        ({"budget": {"num_trials": 16}, "baseline": {}}, (8, 8, 16)),
        ({"budget": {"num_trials": 15}, "baseline": {}}, (8, 7)),
        ({"budget": {"num_trials": 8}, "baseline": None}, (8, 8)),
        ({"budget": {"num_trials": 20}, "baseline": {}, "confirmation": None}, (10, 10)),
        ({"budget": {"num_trials": 20}, "baseline": {}, "pruner": {"name": "pbt"}}, (10, 10)),
    ],
)
def test_a_job_confirms_unless_it_is_too_short_to_compare_or_told_not_to(
    fields: dict[str, Any], allotments: tuple[int, ...]
) -> None:
    assert tuple(plan_job(specification(**fields)).allotments.values()) == allotments


def test_the_seeds_of_the_confirmation_are_new() -> None:
    plan = plan_job(specification(training={"seed": 2**63 - 2}, confirmation={"num_seeds": 3}))
    assert plan.confirmation_seeds == [2**63 - 1, 0, 1]
    defaults = plan.spaces["adamw"].defaults()
    config = plan.trial_config("adamw", defaults, seed=1)
    assert config == replace(plan.trial_config("adamw", defaults), seed=1)
    assert plan_job(specification()).confirmation_seeds == []


def test_progress_tells_how_far_each_phase_is(database: Database) -> None:
    lease = claimed_job(database, confirmation={"top_k": 1, "num_seeds": 2})
    run_trial(database, lease, 0, 0.5)
    run_trial(database, lease, 1, 0.7, Phase.BASELINE)
    with database.reading() as session:
        job = JobRepository(session).get(lease.job_id)
        phases = progress_of(session, [job], now=NOW)[job.id].phases
    assert {phase: (each.num_finished, each.num_trials) for phase, each in phases.items()} == {
        Phase.SEARCH: (1, 3),
        Phase.BASELINE: (1, 1),
        Phase.CONFIRMATION: (0, 4),
    }


def test_cancelling_ends_the_job_and_its_unfinished_trials(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    with database.writing() as session:
        job = cancel_job(session, lease.job_id, now=NOW)
    assert (job.state, job.finished_at, job.lease_worker_id) == (JobState.CANCELLED, NOW, None)
    with database.reading() as session:
        states = [trial.state for trial in TrialRepository(session).page(lease.job_id)]
    assert states == [TrialState.COMPLETED, TrialState.CANCELLED]
    with database.writing() as session, pytest.raises(JobAlreadyFinished):
        cancel_job(session, lease.job_id, now=NOW)


def test_cancelling_an_unknown_job_is_not_found(database: Database) -> None:
    with database.writing() as session, pytest.raises(NotFound):
        cancel_job(session, "job_nope", now=NOW)


def test_progress_counts_trials_by_state_and_names_the_best_of_each_phase(database: Database) -> None:
    waiting = submit(database, now=NOW + timedelta(hours=1))
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    run_trial(database, lease, 1, 0.7, Phase.BASELINE)
    begin_trial(database, lease, 2)
    with database.reading() as session:
        jobs = JobRepository(session)
        progress = progress_of(session, [jobs.get(lease.job_id), jobs.get(waiting)], now=NOW + timedelta(seconds=10))
    ours = progress[lease.job_id]
    assert ours.trials[TrialState.COMPLETED] == 2
    assert ours.trials[TrialState.RUNNING] == 1
    assert ours.best is not None
    assert ours.baseline_best is not None
    assert (ours.best.number, ours.best.value, ours.baseline_best.value) == (0, 0.5, 0.7)
    assert ours.seconds_elapsed == 10.0
    assert progress[waiting].seconds_elapsed is None
    assert progress[waiting].num_finished == 0


def test_the_best_of_an_ended_job_is_its_confirmed_one_and_a_page_of_jobs_reads_them_at_once(
    database: Database,
) -> None:
    ended = []
    for _ in range(2):
        lease = claimed_job(database, confirmation={"top_k": 2, "num_seeds": 3})
        for number, (loss, phase) in enumerate([(0.3, Phase.SEARCH), (0.31, Phase.SEARCH), (0.6, Phase.BASELINE)]):
            run_trial(database, lease, number, loss, phase)
        repeats = [(1, 0, 0.4), *((seed, source, loss) for seed in (1, 2, 3) for source, loss in [(1, 0.33), (2, 0.7)])]
        for number, (seed, source, loss) in enumerate(repeats, start=3):
            repeat_trial(database, lease, number, loss, confirms=source, seed=seed)
        with database.writing() as session:
            finish_job(session, lease, failure=None, now=NOW)
        ended.append(lease.job_id)

    def progress(*ids: str) -> tuple[list[JobProgress], int]:
        statements: list[str] = []
        with database.reading() as session:
            jobs = [JobRepository(session).get(job_id) for job_id in ids]
            sqlalchemy.event.listen(
                session.connection(), "before_cursor_execute", lambda *told: statements.append(told[2])
            )
            return list(progress_of(session, jobs, now=NOW).values()), len(statements)

    (ours,), num_statements = progress(ended[0])
    assert (ours.best, ours.baseline_best) == (BestTrial(1, 0.33, 2, 0.0), BestTrial(2, 0.7, 2, 0.0))
    both, num_statements_of_both = progress(*ended)
    assert [of.best for of in both] == [ours.best, ours.best]
    assert num_statements_of_both == num_statements

    # A job that goes on seeks again, and then the best is what was found.
    with database.writing() as session:
        change_budget(session, ended[0], {"num_trials": 8}, now=NOW)
        resume_job(session, ended[0], now=NOW)
    (reopened,), _ = progress(ended[0])
    assert (reopened.best, reopened.baseline_best) == (BestTrial(0, 0.3), BestTrial(2, 0.6))


def _seconds_left(database: Database, job_id: str, *, after_seconds: float) -> float | None:
    with database.reading() as session:
        job = JobRepository(session).get(job_id)
        return progress_of(session, [job], now=NOW + timedelta(seconds=after_seconds))[job_id].seconds_left


def test_the_time_left_is_that_of_the_steps_to_come_however_long_trials_waited(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 10}, confirmation={"top_k": 1, "num_seeds": 2})
    assert _seconds_left(database, lease.job_id, after_seconds=5) is None
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 20, 0.5)
    confirming, baseline, search = 4, 2, 8
    left = ((confirming + baseline + search) * 40 - 20) / 100
    assert _seconds_left(database, lease.job_id, after_seconds=40) == pytest.approx(left)
    begin_trial(database, lease, 1)
    assert _seconds_left(database, lease.job_id, after_seconds=40) == pytest.approx(left / 2)
    end_trial(database, lease, 1, TrialState.CANCELLED)
    end_trial(database, lease, 0, TrialState.PRUNED, now=NOW + timedelta(seconds=300))
    # What ended went half of the way: so will the rest of the search, but no other phase.
    left = ((search - 2) * 20 + (confirming + baseline) * 40) / 100
    assert _seconds_left(database, lease.job_id, after_seconds=400) == pytest.approx(left)


def test_the_time_left_ends_with_the_wall_clock_budget(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 100, "wall_clock_seconds": 60})
    for number in (0, 1):
        begin_trial(database, lease, number)
        measure(database, lease, number, 40, 0.5, offset=9.6)
        end_trial(database, lease, number)
    assert _seconds_left(database, lease.job_id, after_seconds=20) == 40.0
