"""The end of a trial, in words."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from service.domain import FailureReason, TrialRequest, TrialState
from service.evidence.in_words.trial_words import RepeatedTrial, Standing, TrialAccount, TrialFacts, account_of

TRIAL = TrialFacts(state=TrialState.COMPLETED, reason=None, step=200, num_steps=200, runs=1)


def told(standing: Standing | None = None, **changed: Any) -> TrialAccount:
    return account_of(dataclasses.replace(TRIAL, **changed), standing)


def failed(reason: FailureReason, **changed: Any) -> TrialAccount:
    return told(None, **{"state": TrialState.FAILED, "reason": reason, "step": 30, **changed})


def test_a_completed_trial_has_its_place_among_the_others() -> None:
    place = Standing("validation_loss", step=200, value=0.08, num_others=8, num_better=2, best=0.07)
    account = told(place)
    assert account.headline == "Completed all 200 steps"
    assert account.why == [
        "Its validation_loss is 0.08000, place 3 of the 9 of its side that completed; the best has 0.07000."
    ]
    assert "partly luck" in told(dataclasses.replace(place, num_better=0)).why[0]
    assert told(dataclasses.replace(place, num_others=1, num_better=0)).why == [
        "Its validation_loss is 0.08000: the one other trial of its side that completed is no better. The best of many "
        "is partly luck."
    ]
    assert told(dataclasses.replace(place, num_others=0, num_better=0, best=None)).why == [
        "It is the only trial of its side that has completed."
    ]
    assert told().why == []
    repeat = account_of(TRIAL, repeated=RepeatedTrial(4, "validation_loss", found_value=0.07, value=0.08))
    assert repeat.why == [
        "It repeats trial 4 with another seed: validation_loss is 0.08000 here, and was 0.07000 there."
    ]


def test_a_pruned_trial_says_at_which_step_against_what() -> None:
    standing = Standing("validation_loss", step=30, value=0.9, num_others=11, num_better=7, best=0.41)
    account = told(standing, state=TrialState.PRUNED, step=30)
    assert account.headline == "Pruned at step 30 of 200"
    assert account.why[0] == (
        "At step 30 its validation_loss was 0.9000. Of 11 other trials of its side measured there by then, 7 were "
        "better; the best had 0.4100."
    )
    assert "retry it" in account.advice[0]
    assert told(state=TrialState.PRUNED, step=30, is_fork=True).advice == []


def test_a_diverged_trial_says_what_to_do_that_is_not_done_yet() -> None:
    account = failed(FailureReason.DIVERGED)
    assert account.headline == "Diverged after its measurement at step 30"
    assert account.advice[-1] == (
        "If many diverge: lower the upper end of lr, lengthen the warm-up or set gradient_clip_norm."
    )
    tame = failed(FailureReason.DIVERGED, clips_gradients=True, is_low_precision=True)
    assert tame.advice[-1] == "If many diverge: lower the upper end of lr, lengthen the warm-up or train in float32."
    assert failed(FailureReason.DIVERGED, step=0).headline == "Diverged before its first measurement"


@pytest.mark.parametrize("reason", list(FailureReason))
@pytest.mark.parametrize("runs", [0, 1, 3])
def test_every_failure_has_a_cause_and_advice(reason: FailureReason, runs: int) -> None:
    account = failed(reason, runs=runs)
    assert account.headline
    assert account.why
    assert account.advice
    forked = failed(reason, runs=runs, is_fork=True)
    assert not any("retry" in sentence for sentence in forked.advice)  # the API would refuse it


def test_a_trial_that_was_never_launched_was_foreseen_not_to_fit() -> None:
    assert failed(FailureReason.INFEASIBLE, step=0, runs=0).headline == "Not launched: it would not fit into memory"
    assert failed(FailureReason.INFEASIBLE).headline == "Infeasible"


def test_a_trial_that_has_not_ended_says_where_it_stands() -> None:
    assert told(state=TrialState.QUEUED, step=0).headline == "Waits for its turn"
    assert told(state=TrialState.QUEUED, step=30).headline == "Paused after step 30 of 200"
    assert told(state=TrialState.RUNNING, step=0).headline == "Training, nothing measured yet"
    running = told(state=TrialState.RUNNING, step=50, runs=2, seconds=10.0)
    assert running.headline == "Training: step 50 of 200"
    assert running.why == [
        "At its pace so far, about 30 s of training are left if it goes to its end.",
        "It was started 2 times, and goes on from its last checkpoint each time.",
    ]
    stopping = told(state=TrialState.RUNNING, step=30, requested=TrialRequest.STOP)
    assert stopping.headline == "Stopping after step 30"
    cancelled = told(state=TrialState.CANCELLED, step=30)
    assert (cancelled.headline, cancelled.advice) == (
        "Cancelled after step 30",
        ["It can be retried, from its beginning."],
    )
