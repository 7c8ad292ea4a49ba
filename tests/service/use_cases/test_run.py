"""A run's trials, measurements and end."""

from __future__ import annotations

import math

import pytest

from service.domain import CutShort, FailureReason, JobState, Phase, TrialState
from service.evidence.caveat_kinds import CaveatKind
from service.store.models import Job
from service.store.repositories import (
    EventRepository,
    JobRepository,
    MeasurementRepository,
    RecommendationQuery,
    RecommendationRepository,
    TrialRepository,
)
from service.store.session import Database
from service.use_cases.leases import Lease
from service.use_cases.run import (
    TrialMeasurements,
    finish_job,
    finish_trial,
    record_measurements,
    requeue_trial,
    start_trial,
)
from service.use_cases.transitions import IllegalTransition
from tests.support.service.caveats import sentences_of
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial, measure, repeat_trial, run_trial
from trainers.config import Measurement


def _finish(database: Database, lease: Lease, failure: str | None = None) -> Job:
    with database.writing() as session:
        finish_job(session, lease, failure=failure, now=NOW)
    with database.reading() as session:
        return JobRepository(session).get(lease.job_id)


def test_what_measurements_remark_of_the_data_stays_with_the_trial(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    reported = Measurement(
        10, 1.0, 0.1, {"validation_loss": 0.5}, ("of /data are not read: test/", "unreadable image a")
    )
    with database.writing() as session:
        record_measurements(session, lease, [TrialMeasurements(0, [reported])], now=NOW)
    end_trial(database, lease, 0)
    with database.reading() as session:
        [trial] = TrialRepository(session).page(lease.job_id)
    assert (trial.state, trial.detail) == (TrialState.COMPLETED, "of /data are not read: test/; unreadable image a")
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    with database.reading() as session:
        found = RecommendationRepository(session).of_job(lease.job_id)
    assert found is not None
    caveat = "Of its data, trial 0 remarked: of /data are not read: test/; unreadable image a."
    assert caveat in sentences_of(found.content["evidence"]["caveats"])


def test_measurements_are_kept_in_order_and_the_trial_shows_the_last(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    for step, loss in ((10, 0.9), (20, 0.4)):
        measure(database, lease, 0, step, loss)
    with database.reading() as session:
        trial = TrialRepository(session).get(lease.job_id, 0)
        measurements = MeasurementRepository(session).of_trial(trial.id)
        events = [
            event
            for event in EventRepository(session).after(0, project=None, limit=99)
            if event.kind == "trial.measured"
        ]
    assert (trial.step, trial.value, trial.seconds) == (20, 0.4, 0.2)
    assert [(m.step, m.metrics["validation_loss"]) for m in measurements] == [(10, 0.9), (20, 0.4)]
    assert [event.data for event in events] == [
        {"number": 0, "step": 10, "value": 0.9},
        {"number": 0, "step": 20, "value": 0.4},
    ]


def test_a_step_measured_again_replaces_the_earlier_row(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    for loss in (0.9, 0.8):
        measure(database, lease, 0, 10, loss)
    with database.reading() as session:
        trial = TrialRepository(session).get(lease.job_id, 0)
        (measurement,) = MeasurementRepository(session).of_trial(trial.id)
    assert measurement.metrics["validation_loss"] == 0.8


def test_a_step_told_twice_at_once_is_kept_as_it_was_told_last(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    told = [Measurement(step=10, epoch=1.0, seconds=0.5, metrics={"validation_loss": loss}) for loss in (0.9, 0.8)]
    with database.writing() as session:
        record_measurements(session, lease, [TrialMeasurements(0, told)], now=NOW)
    with database.reading() as session:
        trial = TrialRepository(session).get(lease.job_id, 0)
        (measurement,) = MeasurementRepository(session).of_trial(trial.id)
    assert measurement.metrics["validation_loss"] == 0.8
    assert trial.spent_seconds == 0.5


def test_what_is_written_again_after_an_unheard_commit_changes_nothing(database: Database) -> None:
    lease = claimed_job(database)
    for _ in range(2):
        begin_trial(database, lease, 0)
    for _ in range(2):
        with database.writing() as session:
            requeue_trial(session, lease, 0, detail="lost", losses=1, memory_failures=0, now=NOW)
    with database.writing() as session:
        start_trial(session, lease, 0, now=NOW)
    for _ in range(2):
        end_trial(database, lease, 0, TrialState.FAILED, reason=FailureReason.DIVERGED, detail="nan")
    with database.reading() as session:
        [trial] = TrialRepository(session).page(lease.job_id)
        events = EventRepository(session).after(0, project=None, job_id=lease.job_id, limit=99)
    assert (trial.state, trial.runs, trial.losses) == (TrialState.FAILED, 2, 1)
    states = [event.data["state"] for event in events if event.kind == "trial.state"]
    assert states == ["queued", "running", "queued", "running", "failed"]


def test_a_metric_that_is_not_finite_is_stored_as_null(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, math.nan)
    with database.reading() as session:
        trial = TrialRepository(session).get(lease.job_id, 0)
    assert trial.value is None
    assert trial.metrics["validation_loss"] is None


def test_an_interrupted_trial_goes_on_and_counts_its_runs(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    with database.writing() as session:
        requeue_trial(session, lease, 0, detail="its rank died", losses=1, memory_failures=0, now=NOW)
        start_trial(session, lease, 0, now=NOW)
    with database.reading() as session:
        trial = TrialRepository(session).get(lease.job_id, 0)
    assert (trial.state, trial.runs) == (TrialState.RUNNING, 2)


def test_whatever_a_message_holds_it_is_stored(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    with database.writing() as session:
        detail = "FileNotFoundError: 'caf\udce9\0.png' – no such image"
        finish_trial(session, lease, 0, TrialState.FAILED, reason=FailureReason.ERROR, detail=detail, now=NOW)
    job = _finish(database, lease, failure="its log ends: \0\0")
    assert job.failure == "its log ends: \\x00\\x00"
    with database.reading() as session:
        stored = TrialRepository(session).get(lease.job_id, 0)
    assert stored.detail == "FileNotFoundError: 'caf\\udce9\\x00.png' – no such image"


def test_a_finished_trial_does_not_finish_twice(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    with pytest.raises(IllegalTransition):
        end_trial(database, lease, 0, TrialState.PRUNED)


def test_a_job_with_a_completed_search_trial_succeeds_with_a_recommendation(database: Database) -> None:
    lease = claimed_job(database, pinned=[{"lr": 0.002}])
    run_trial(database, lease, 0, 0.5)
    run_trial(database, lease, 1, 0.3)
    run_trial(database, lease, 2, 0.6, Phase.BASELINE)
    begin_trial(database, lease, 3)
    job = _finish(database, lease)
    assert (job.state, job.failure, job.finished_at) == (JobState.SUCCEEDED, None, NOW)
    with database.reading() as session:
        recommendation = RecommendationRepository(session).of_job(job.id)
        query = RecommendationQuery(
            project=None, workload="digits-mlp", batch_size=128, num_steps=40, objective="validation_loss"
        )
        [answer] = RecommendationRepository(session).find(query, limit=5)
        last = TrialRepository(session).get(job.id, 3)
    assert recommendation is not None
    assert (answer.row.id, answer.is_superseded) == (recommendation.id, False)
    assert recommendation.optimizer == "shampoo"
    assert recommendation.content["evidence"]["best"]["number"] == 1
    evidence = recommendation.content["evidence"]
    assert (evidence["verdict"], evidence["status"]) == ("undecided", "provisional")  # so few trials tell nothing
    assert last.state is TrialState.CANCELLED
    given = "The search was given 1 pinned entry and the baseline none, which favours the search."
    assert {"The job ended early, after 3 of 4 trials.", given} <= set(sentences_of(evidence["caveats"]))


@pytest.mark.slow
def test_a_job_that_confirms_recommends_by_its_new_seeds(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 16}, baseline={}, confirmation={"top_k": 2, "num_seeds": 3})
    for number, loss in enumerate([*[0.5] * 6, 0.3, 0.31]):
        run_trial(database, lease, number, loss)
    for number in range(8, 16):
        run_trial(database, lease, number, 0.6 if number < 10 else 0.7, Phase.BASELINE)
    chosen = [(6, 0.4, 1), (7, 0.33, 1), (8, 0.61, 1), (9, 0.6, 1)]
    compared = [(source, loss, seed) for seed in (2, 3) for source, loss in [(7, 0.33), (9, 0.6)]]
    for number, (source, loss, seed) in enumerate([*chosen, *compared], start=16):
        repeat_trial(database, lease, number, loss + 0.001 * seed * source, confirms=source, seed=seed)
    job = _finish(database, lease)
    assert (job.state, job.num_trials) == (JobState.SUCCEEDED, 24)
    with database.reading() as session:
        recommendation = RecommendationRepository(session).of_job(job.id)
    assert recommendation is not None
    evidence = recommendation.content["evidence"]
    assert (evidence["best"]["number"], evidence["verdict"], evidence["seeds"]) == (7, "better", [2, 3])
    assert (evidence["baseline"]["number"], evidence["status"]) == (9, "confirmed")
    # Of AdamW's defaults one is the bound of its range in the preset.
    assert {caveat["kind"] for caveat in evidence["caveats"]} <= {CaveatKind.AT_THE_EDGE}


def test_of_few_completed_configs_few_are_confirmed_and_the_job_says_how_many(database: Database) -> None:
    lease = claimed_job(
        database, baseline=None, confirmation={"top_k": 4, "num_seeds": 2}
    )  # one that chooses, one that compares
    run_trial(database, lease, 0, 0.5)
    for number in (1, 2, 3):
        begin_trial(database, lease, number)
        end_trial(database, lease, number, TrialState.PRUNED)
    for number, seed in ((4, 1), (5, 2)):
        repeat_trial(database, lease, number, 0.52, confirms=0, seed=seed)
    assert _finish(database, lease).num_trials == 6


def test_a_job_without_a_completed_search_trial_fails_and_says_what_became_of_them(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5, Phase.BASELINE)
    begin_trial(database, lease, 1)
    end_trial(database, lease, 1, TrialState.FAILED, reason=FailureReason.DIVERGED, detail="loss nan at step 7")
    job = _finish(database, lease)
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert "trial 1 failed (diverged)" in job.failure
    assert "trial 1: loss nan at step 7" in job.failure


@pytest.mark.parametrize(
    ("cut_short", "words", "num_trials"),
    [
        (None, None, 1),
        (CutShort.BUDGET, "the budget was spent", 4),
        (CutShort.TIME_NEARLY_OVER, "its time was nearly over, so that it began 1 of 4 trials", 1),
    ],
)
def test_a_job_that_its_time_ends_between_two_trials_says_so(
    database: Database, cut_short: CutShort | None, words: str | None, num_trials: int
) -> None:
    lease = claimed_job(database, budget={"num_trials": 4}, baseline=None, confirmation=None)
    run_trial(database, lease, 0, 0.5)
    with database.writing() as session:
        finish_job(session, lease, failure=None, cut_short=cut_short, now=NOW)
    with database.reading() as session:
        job = JobRepository(session).get(lease.job_id)
    assert (job.state, job.cut_off, job.num_trials) == (JobState.SUCCEEDED, words, num_trials)


def test_a_run_that_ends_with_a_failure_keeps_what_it_found(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    job = _finish(database, lease, failure="the same error three times")
    assert (job.state, job.failure) == (JobState.FAILED, "the same error three times")
    with database.reading() as session:
        assert RecommendationRepository(session).of_job(job.id) is not None
