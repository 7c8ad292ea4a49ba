"""The progress of jobs: how far each phase is, its best trials, and of many jobs with many trials the numbers that
plain Python finds, without loading the trials."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from statistics import fmean
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from service.api.schemas.jobs import JobRead
from service.cli.terminal import trial_counts
from service.domain import Direction, FailureReason, JobState, Phase, TrialState
from service.evidence.best_values import BestTrial
from service.evidence.pareto_front import front_of
from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.progress import JobProgress, TrialMemory, progress_of
from service.use_cases.run import finish_job, finish_trial, requeue_trial
from service.use_cases.steer import change_budget, resume_job
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_trial,
    claim,
    claimed_job,
    end_trial,
    measure,
    repeat_trial,
    run_trial,
    store_trials,
    submit,
)

OBJECTIVES: tuple[list[dict[str, str]], ...] = (
    [{"metric": "validation_loss"}],
    [{"metric": "validation_accuracy"}],
    [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}, {"metric": "step_seconds"}],
)
VALUES = (None, -1.5, -0.0, 0.0, 0.1, 0.1 + 2**-56, 0.25, 1e-300, 1e300)
"""Few, so that there are many equals; a double's neighbours, its ends, and none: a metric that was not finite."""


def _random_trials(generator: random.Random, metrics: list[str], num_trials: int) -> list[dict[str, Any]]:
    trials = []
    for number in range(num_trials):
        measured = {name: generator.choice(VALUES) for name in metrics if generator.random() < 0.9}
        began = NOW + timedelta(seconds=generator.randrange(1000))
        trials.append(
            {
                "phase": generator.choice(list(Phase)),
                "state": generator.choice([*TrialState, *[TrialState.COMPLETED] * 5]),
                "value": measured.get(metrics[0]),
                "metrics": measured,
                "runs": generator.randrange(1, 3),
                "spent_seconds": generator.random(),
                "started_at": generator.choice([began, began, None]),
                # Apart, so that it is clear which ones ended last.
                "finished_at": generator.choice([began + timedelta(seconds=1000, milliseconds=number), None]),
            }
        )
    return trials


def _best(trials: list[Trial], phase: Phase, direction: Direction) -> BestTrial | None:
    """The best completed trial by a loop over all of them; the earliest of equals."""
    best: BestTrial | None = None
    for trial in trials:
        if trial.phase is not phase or trial.state is not TrialState.COMPLETED or trial.value is None:
            continue
        if best is None or direction.is_better(trial.value, best.value):
            best = BestTrial(trial.number, trial.value)
    return best


def _steps_left(trials: list[Trial], phase: Phase, num_left: int, num_steps: int) -> float:
    ours = [trial for trial in trials if trial.phase is phase]
    trained = [trial.step for trial in ours if trial.state in (TrialState.COMPLETED, TrialState.PRUNED)]
    each = num_steps if phase is Phase.CONFIRMATION or not trained else fmean(trained)
    return max(0.0, num_left * each - sum(trial.step for trial in ours if not trial.state.is_final))


@pytest.mark.parametrize("seed", range(3))
def test_progress_is_what_a_loop_over_all_trials_finds(database: Database, seed: int) -> None:
    generator = random.Random(seed)
    worker = add_worker(database)
    ids = []
    for index in range(9):
        objectives = OBJECTIVES[index % len(OBJECTIVES)]
        ids.append(submit(database, objectives=objectives, budget={"num_trials": 400}))
        metrics = [objective["metric"] for objective in objectives]
        store_trials(database, ids[-1], _random_trials(generator, metrics, generator.choice([1, 2, 30, 300])))
        if index % 2:
            assert claim(database, worker) is not None  # the oldest one waiting runs
    ids.append(submit(database))  # it has no trials yet
    with database.reading() as session:
        jobs = JobRepository(session).page(project=None, limit=20)
        found = progress_of(session, jobs, now=NOW + timedelta(seconds=10))
        assert sorted(found) == sorted(ids)
        for job in jobs:
            trials = TrialRepository(session).page(job.id)
            completed = [
                (trial.number, trial.phase, trial.metrics)
                for trial in trials
                if trial.state is TrialState.COMPLETED and trial.value is not None
            ]
            ours = found[job.id]
            # By their representation: -0.0 is another number than 0.0 to whoever reads it.
            assert repr(ours.best) == repr(_best(trials, Phase.SEARCH, job.direction))
            assert repr(ours.baseline_best) == repr(_best(trials, Phase.BASELINE, job.direction))
            assert ours.front == (front_of(completed, job.objectives) if len(job.objectives) > 1 else [])
            assert ours.trials == {state: sum(trial.state is state for trial in trials) for state in TrialState}
            assert {phase: each.num_finished for phase, each in ours.phases.items()} == {
                phase: sum(trial.state.is_final for trial in trials if trial.phase is phase) for phase in ours.phases
            }
            assert ours.device_hours == pytest.approx(sum(trial.spent_seconds for trial in trials) / 3600)
            to_come = sum(phase.num_trials - phase.num_finished for phase in ours.phases.values())
            assert ours.num_steps == sum(trial.step for trial in trials)
            done = sum(trial.step for trial in trials if trial.state.is_final)
            assert ours.max_steps == done + to_come * job.num_steps
            steps_left = sum(
                _steps_left(trials, phase, each.num_trials - each.num_finished, job.num_steps)
                for phase, each in ours.phases.items()
            )
            if job.state is JobState.RUNNING and trials:
                step_seconds = sum(trial.spent_seconds for trial in trials) / ours.num_steps
                at_once = max(1, ours.trials[TrialState.RUNNING])
                assert ours.seconds_left == pytest.approx(steps_left * step_seconds / at_once)
            else:
                assert ours.seconds_left is None


def test_where_batches_differ_the_time_left_goes_by_the_examples_that_trials_have_seen(database: Database) -> None:
    batch_size = {"type": "categorical", "name": "training.batch_size", "choices": [32, 64, 128]}
    lease = claimed_job(
        database,
        search_space={"optimizer": "adamw", "parameters": [batch_size]},
        baselines=[],
        training={"num_examples": 1280},  # 40, 20 or 10 steps
        budget={"num_trials": 6},
    )
    for number, (size, step, ending) in enumerate(
        [(128, 10, TrialState.COMPLETED), (32, 10, TrialState.PRUNED), (64, 5, None)]
    ):
        begin_trial(database, lease, number, values={"training.batch_size": size})
        measure(database, lease, number, step, 0.5)
        if ending is not None:
            end_trial(database, lease, number, ending)
    with database.reading() as session:
        progress = progress_of(session, [JobRepository(session).get(lease.job_id)], now=NOW)[lease.job_id]
    assert progress.num_steps == 25
    assert progress.max_steps == 10 + 10 + 20 + 3 * 40
    # Of 1.5 trainings in 0.25 s; those that ended had 0.625 of theirs on average, and four have 0.25 behind them.
    assert progress.seconds_left == pytest.approx((4 * 0.625 - 0.25) * 0.25 / 1.5)


def test_an_extended_job_that_confirms_other_configs_has_no_more_finished_trials_than_trials(
    database: Database,
) -> None:
    lease = claimed_job(database, confirmation={"top_k": 1, "num_seeds": 2})  # 3 + 1 + 4
    for number, phase in enumerate([Phase.SEARCH] * 3 + [Phase.BASELINE]):
        run_trial(database, lease, number, 0.5 - 0.1 * number, phase)
    for number, (source, seed) in enumerate([(2, 1), (3, 1), (2, 2), (3, 2)], start=4):
        repeat_trial(database, lease, number, 0.4, confirms=source, seed=seed)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    with database.writing() as session:
        change_budget(session, lease.job_id, {"num_trials": 5}, now=NOW)
    with database.writing() as session:
        resume_job(session, lease.job_id, now=NOW)
    again = claim(database, add_worker(database))
    assert again is not None
    run_trial(database, again, 8, 0.1)
    for number, seed in ((9, 1), (10, 2)):  # of the trial that is the best now
        repeat_trial(database, again, number, 0.1, confirms=8, seed=seed)
    with database.reading() as session:
        job = JobRepository(session).get(lease.job_id)
        progress = progress_of(session, [job], now=NOW)[job.id]
    assert (job.num_trials, progress.num_finished, progress.num_trials) == (9, 11, 11)
    assert {phase: (each.num_finished, each.num_trials) for phase, each in progress.phases.items()} == {
        Phase.SEARCH: (4, 4),
        Phase.BASELINE: (1, 1),
        Phase.CONFIRMATION: (6, 6),
    }
    assert JobRead.of(job, progress, None).num_trials == 11


def test_a_trial_whose_objective_was_not_finite_in_the_end_is_not_the_best(database: Database) -> None:
    lease = claimed_job(database, objectives=[{"metric": "validation_accuracy"}])
    for number, loss in enumerate([float("nan"), 1.0, float("-inf")]):
        begin_trial(database, lease, number)
        measure(database, lease, number, 40, loss)
        end_trial(database, lease, number)
    with database.reading() as session:
        progress = progress_of(session, [JobRepository(session).get(lease.job_id)], now=NOW)[lease.job_id]
    assert progress.trials[TrialState.COMPLETED] == 3
    assert progress.best == BestTrial(1, 0.5)


@contextmanager
def _statements(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """The statements that are run meanwhile, with their parameters."""
    seen: list[tuple[str, Any]] = []

    def see(*told: Any) -> None:
        _, _, statement, parameters, *_ = told
        seen.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", see)
    try:
        yield seen
    finally:
        event.remove(database.engine, "before_cursor_execute", see)


def _running_jobs(database: Database, *, num_jobs: int, num_trials: int) -> list[str]:
    ids = []
    for index in range(num_jobs):
        ids.append(claimed_job(database, objectives=OBJECTIVES[index % len(OBJECTIVES)]).job_id)
        phases = (Phase.SEARCH, Phase.BASELINE)
        store_trials(
            database, ids[-1], [{"phase": phases[number % 2], "value": float(number)} for number in range(num_trials)]
        )
    return ids


def test_many_jobs_take_as_many_statements_as_few(database: Database) -> None:
    _running_jobs(database, num_jobs=9, num_trials=3)

    def num_statements(session: Session, jobs: list[Job]) -> int:
        with _statements(database) as seen:
            progress_of(session, jobs, now=NOW)
        return len(seen)

    with database.reading() as session:
        jobs = JobRepository(session).page(project=None, limit=9)
        assert num_statements(session, jobs) == num_statements(session, jobs[:3]) == 3


def test_an_ended_job_is_counted_once_until_it_goes_on(database: Database) -> None:
    lease, memory = claimed_job(database, budget={"num_trials": 4}, confirmation=None), TrialMemory(max_jobs=1)

    def progress() -> tuple[int, float | None, int]:
        with database.reading() as session, _statements(database) as seen:
            job = JobRepository(session).get(lease.job_id)
            seen.clear()
            found = progress_of(session, [job], now=NOW, memory=memory)[job.id]
            assert found == progress_of(session, [job], now=NOW)[job.id]
            best = None if found.best is None else found.best.value
            return found.num_finished, best, len(seen)

    run_trial(database, lease, 0, 0.5)
    counting = progress()
    run_trial(database, lease, 1, 0.4)
    assert progress() == (2, 0.4, counting[2])  # while it runs, after each end of a trial
    assert progress() == (2, 0.4, counting[2] - 1)
    begin_trial(database, lease, 2)
    with suppress(ZeroDivisionError), database.writing() as session:
        finish_trial(session, lease, 2, TrialState.PRUNED, now=NOW)
        [job] = JobRepository(session).page(project=None, limit=2)
        assert progress_of(session, [job], now=NOW, memory=memory)[job.id].num_finished == 3
        raise ZeroDivisionError  # and all of it is rolled back
    end_trial(database, lease, 2, TrialState.FAILED, reason=FailureReason.DIVERGED)
    assert progress() == (3, 0.4, counting[2])
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW + timedelta(seconds=5))
    _, best, first = progress()
    assert (best, progress()[2]) == (0.4, first // 2)  # of the two ways to ask, one knows it
    with database.writing() as session:
        change_budget(session, lease.job_id, {"num_trials": 6}, now=NOW)
        resume_job(session, lease.job_id, now=NOW + timedelta(seconds=6))
    assert progress()[2] > first // 2
    again = claim(database, lease.worker_id)
    assert again is not None
    run_trial(database, again, 3, 0.3)
    with database.writing() as session:
        finish_job(session, again, failure=None, now=NOW + timedelta(seconds=7))
    assert progress()[:2] == (4, 0.3)


def test_the_best_trials_are_found_by_an_index_alone(database: Database) -> None:
    # PostgreSQL goes by the sizes of tables.
    num_trials = 200 if database.engine.dialect.name == "sqlite" else 2000
    ids = _running_jobs(database, num_jobs=4, num_trials=num_trials)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    with database.reading() as session, _statements(database) as seen:
        TrialRepository(session).leading(ids)
    [(statement, parameters)] = [each for each in seen if each[0].startswith("SELECT")]
    explain = "EXPLAIN QUERY PLAN" if database.engine.dialect.name == "sqlite" else "EXPLAIN"
    with database.engine.connect() as connection:
        plan = [str(row) for row in connection.exec_driver_sql(f"{explain} {statement}", parameters)]
    lookups = [line for line in plan if "trials" in line and ("SEARCH" in line or "Scan" in line)]
    assert all("ix_trials_progress" in line or "pk_trials" in line or "sqlite_autoindex" in line for line in lookups), (
        plan
    )
    assert sum("ix_trials_progress" in line for line in lookups) == 6, plan
    assert not any("Seq Scan on trials" in line or "SCAN trials" in line for line in plan), plan


def test_queued_trials_that_were_measured_are_paused_ones(database: Database) -> None:
    lease = claimed_job(database)
    for number in range(3):
        begin_trial(database, lease, number)
    measure(database, lease, 0, 10, 0.5)
    measure(database, lease, 1, 10, 0.5)
    with database.writing() as session:
        for number in (1, 2):
            requeue_trial(session, lease, number, detail="paused", losses=0, memory_failures=0, now=NOW)
    with database.reading() as session:
        job = JobRepository(session).get(lease.job_id)
        progress = progress_of(session, [job], now=NOW)[job.id]
        assert (progress.trials[TrialState.QUEUED], progress.num_paused) == (2, 1)
        assert trial_counts(JobRead.of(job, progress, None)) == "1 running, 1 paused, 1 queued"


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


@pytest.mark.slow
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
            event.listen(session.connection(), "before_cursor_execute", lambda *told: statements.append(told[2]))
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
