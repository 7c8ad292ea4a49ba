"""Which failures are taken up again and which stop a job, by reason."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import timedelta

import pytest

from service.domain import FailureReason, Phase, TrialState
from service.scheduler.policy.retries import (
    MAX_LOSSES,
    MAX_SAME_ERRORS,
    FailureVerdict,
    Retries,
    Setbacks,
    divided,
    same_error,
)
from service.scheduler.stored_job import read_stored, retries_of
from service.specification.planning import plan_job
from service.store.session import Database
from service.use_cases.run import finish_job
from service.use_cases.steer import resume_job
from tests.support.service.scenarios import NOW, add_worker, begin_trial, claim, claimed_job, end_trial, specification


def test_three_trials_that_a_store_would_not_keep_stop_the_job_and_a_short_outage_stops_nothing() -> None:
    retries, again = Retries(), Retries()
    for number in range(MAX_SAME_ERRORS):
        assert retries.why_to_stop() is None
        for loss in range(MAX_LOSSES + 1):
            path = f"{number}/step-{loss:08d}-{loss:016x}/rank-0"
            detail = f"the store of checkpoints failed: s3://b/x cannot take {path}: no answer"
            verdict = retries.judge(number, FailureReason.STORE_FAILED, detail)
            assert verdict.reason == (FailureReason.STORE_FAILED if loss == MAX_LOSSES else None)
        again.restore(number, Setbacks(losses=MAX_LOSSES), verdict.reason, verdict.detail)
    for told in (retries, again):
        assert (told.why_to_stop() or "").startswith("the same error ended trials 0, 1 and 2: lost 4 times; last: the ")


def test_a_random_name_makes_no_other_error() -> None:
    first, second = (f"checkpoint of step {n}: cannot take step-{n:08d}-{n * 7919:016x}/rank-0" for n in (10, 9999))
    assert same_error(first) == same_error(second)


def test_a_loss_is_taken_up_again_three_times() -> None:
    retries = Retries()
    for losses in range(1, MAX_LOSSES + 1):
        assert retries.judge(4, FailureReason.LOST, "gone", step=10 * losses) == FailureVerdict(
            None, "lost; goes on from its last checkpoint: gone"
        )
        assert retries.setbacks(4) == Setbacks(losses=losses)
    assert retries.judge(4, FailureReason.LOST, "gone", step=50) == FailureVerdict(
        FailureReason.LOST, "lost 4 times; last: gone"
    )
    assert retries.judge(5, FailureReason.LOST, "gone").reason is None  # another trial's count is its own


def test_what_is_lost_twice_at_the_same_step_is_not_tried_a_third_time_as_it_was() -> None:
    retries = Retries()
    assert retries.judge(0, FailureReason.LOST, "killed", step=10, can_divide=True).reason is None
    verdict = retries.judge(0, FailureReason.LOST, "killed", step=10, can_divide=True)
    assert (verdict.reason, verdict.divides) == (None, True)
    assert verdict.detail.endswith("lost twice at step 10, perhaps out of memory: killed")
    assert retries.setbacks(0) == Setbacks(losses=1, memory_failures=1)
    final = FailureVerdict(FailureReason.LOST, "lost at step 10 again, perhaps out of memory: killed")
    assert retries.judge(0, FailureReason.LOST, "killed", step=10, can_divide=True) == final
    assert retries.judge(1, FailureReason.LOST, "killed", step=10).reason is None
    assert retries.judge(1, FailureReason.LOST, "killed", step=10) == final


@pytest.mark.parametrize("exit_status", [3, 0, -signal.SIGSEGV, -signal.SIGABRT])
def test_what_ends_its_own_process_twice_at_the_same_step_has_failed_by_an_error_and_three_such_stop_the_job(
    exit_status: int,
) -> None:
    retries = Retries()
    for number in range(MAX_SAME_ERRORS):
        assert retries.why_to_stop() is None
        for step in (10, 20):  # elsewhere it may be another cause
            again = retries.judge(number, FailureReason.LOST, "it left", step=step, exit_status=exit_status)
            assert again.reason is None
        ended = retries.judge(number, FailureReason.LOST, "it left", step=20, exit_status=exit_status, can_divide=True)
        assert ended == FailureVerdict(FailureReason.ERROR, "twice at step 20: it left")
    assert retries.why_to_stop() == "the same error ended trials 0, 1 and 2: twice at step 20: it left"


def test_what_the_kernel_may_have_killed_is_perhaps_out_of_memory_and_what_others_ended_is_lost() -> None:
    verdicts = {}
    for status in (-signal.SIGKILL, -signal.SIGTERM):
        retries = Retries()
        for _ in range(2):
            verdicts[status] = retries.judge(0, FailureReason.LOST, "gone", step=5, exit_status=status, can_divide=True)
    assert verdicts[-signal.SIGKILL].divides
    assert verdicts[-signal.SIGTERM] == FailureVerdict(None, "lost; goes on from its last checkpoint: gone")


def test_memory_is_given_one_more_try_with_smaller_parts_and_losses_do_not_use_it_up() -> None:
    retries = Retries()
    retries.restore(0, Setbacks(losses=MAX_LOSSES), None, None)
    verdict = retries.judge(0, FailureReason.OUT_OF_MEMORY, "full", can_divide=True)
    assert (verdict.reason, verdict.divides) == (None, True)
    assert retries.setbacks(0) == Setbacks(losses=MAX_LOSSES, memory_failures=1)
    verdict = retries.judge(0, FailureReason.OUT_OF_MEMORY, "full", can_divide=True)
    assert verdict == FailureVerdict(
        FailureReason.INFEASIBLE, "out of memory 2 times, with smaller parts of the batch too: full"
    )


def test_what_ran_out_of_memory_is_not_tried_again_as_it_was() -> None:
    assert Retries().judge(0, FailureReason.OUT_OF_MEMORY, "full") == FailureVerdict(
        FailureReason.INFEASIBLE, "out of memory, and its batch has no smaller parts: full"
    )


@pytest.mark.parametrize(
    ("batch_size", "before", "world_size", "after"), [(64, 1, 1, 2), (64, 2, 4, 4), (6, 1, 2, None), (7, 1, 1, None)]
)
def test_a_batch_is_divided_as_far_as_each_rank_has_examples(
    batch_size: int, before: int, world_size: int, after: int | None
) -> None:
    plan = plan_job(specification())
    config = replace(
        plan.trial_config(Phase.SEARCH, plan.spaces[Phase.SEARCH].defaults()),
        batch_size=batch_size,
        accumulation_steps=before,
    )
    smaller = divided(config, world_size=world_size)
    assert smaller == (None if after is None else replace(config, accumulation_steps=after))


@pytest.mark.parametrize("reason", [FailureReason.DIVERGED, FailureReason.ERROR, FailureReason.INFEASIBLE])
def test_what_would_happen_again_is_final_at_once(reason: FailureReason) -> None:
    assert Retries().judge(0, reason, "so it is") == FailureVerdict(reason, "so it is")


def test_diverged_trials_never_stop_a_job() -> None:
    retries = Retries()
    for number in range(20):
        retries.judge(number, FailureReason.DIVERGED, "loss nan at step 3")
    assert retries.why_to_stop() is None


def test_an_error_counts_over_restarts_but_once_per_trial() -> None:
    retries = Retries()
    for number in range(MAX_SAME_ERRORS - 1):
        retries.restore(number, Setbacks(), FailureReason.ERROR, f"ValueError: shape ({number}, 3)")
    retries.judge(0, FailureReason.ERROR, "ValueError: shape (0, 3)")
    retries.judge(7, FailureReason.ERROR, "ValueError: shape")
    assert retries.why_to_stop() is None
    retries.judge(8, FailureReason.ERROR, "ValueError: shape (8, 3)")
    assert retries.why_to_stop() == "the same error ended trials 0, 1 and 8: ValueError: shape (0, 3)"


def test_who_takes_a_job_up_again_may_have_mended_its_error(database: Database) -> None:
    lease = claimed_job(database, baseline=None, budget={"num_trials": 8})

    def fail(numbers: range, seconds: float) -> None:
        for number in numbers:
            now = NOW + timedelta(seconds=seconds)
            begin_trial(database, lease, number, now=now)
            end_trial(
                database,
                lease,
                number,
                TrialState.FAILED,
                reason=FailureReason.ERROR,
                detail="KeyError: 'label'",
                now=now,
            )

    fail(range(3), 1)
    assert retries_of(read_stored(database, lease)).why_to_stop() is not None
    with database.writing() as session:
        finish_job(session, lease, failure="the same error", now=NOW + timedelta(seconds=2))
    with database.writing() as session:
        resume_job(session, lease.job_id, now=NOW + timedelta(seconds=3))
    again = claim(database, add_worker(database), now=NOW + timedelta(seconds=4))
    assert again is not None
    lease = again
    assert retries_of(read_stored(database, lease)).why_to_stop() is None
    fail(range(3, 6), 5)
    assert retries_of(read_stored(database, lease)).why_to_stop() is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("IndexError: index 17 of 4", "IndexError: index 1 of 400"),
        ("ValueError: got -1.5e-07", "ValueError: got 3"),
        ("RuntimeError: <Model at 0x7f3aBc10>", "RuntimeError: <Model at 0x55d0>"),
    ],
)
def test_numbers_do_not_tell_errors_apart(one: str, other: str) -> None:
    assert same_error(one) == same_error(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("KeyError: 'a'", "KeyError: 'b'"), ("ValueError: no", "TypeError: no"), ("OSError: full", "OSError: full of 3")],
)
def test_words_do(one: str, other: str) -> None:
    assert same_error(one) != same_error(other)


def test_checkpoints_that_do_not_fit_count_as_losses_and_not_as_the_same_error() -> None:
    retries = Retries()
    for number in range(MAX_SAME_ERRORS):
        verdict = retries.judge(number, FailureReason.ERROR, "does not fit", can_begin_anew=True)
        assert (verdict.reason, verdict.begins_anew) == (None, True)
        assert retries.setbacks(number) == Setbacks(losses=1)
    assert retries.why_to_stop() is None
    worn = Retries()
    worn.restore(7, Setbacks(losses=MAX_LOSSES), None, None)
    assert worn.judge(7, FailureReason.ERROR, "does not fit", can_begin_anew=True).reason is FailureReason.ERROR
