"""Steps and seconds to the baseline's best: fewer steps are no gain where each takes longer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from service.domain import Direction, Objective, Phase
from service.evidence.finished_trial import FinishedTrial
from service.evidence.in_words.speed import OnTheClock, on_the_clock, speed_words
from service.evidence.in_words.words import Answer, answer_of, evidence_lines
from service.evidence.recommend import recommend
from service.evidence.types import MIN_TRIED, Evidence
from tests.support.service.confirmed import METRIC, finished_trial

FAST = [1.9, 0.5, 0.4, 0.3]
SLOW = [2.0, 1.5, 1.0, 0.5]


def trial(
    number: int,
    phase: Phase,
    values: Sequence[float],
    step_seconds: float,
    *,
    confirms: int | None = None,
    seed: int = 0,
) -> FinishedTrial:
    """A trial measured at steps 10, 20, ..., each of which took `step_seconds`."""
    curve = [(10 * i, 10 * i * step_seconds, {METRIC: value}) for i, value in enumerate(values, start=1)]
    optimizer = "adamw" if phase is Phase.BASELINE or confirms == 50 else "shampoo"
    found = finished_trial(number, phase, values, confirms=confirms, seed=seed, optimizer=optimizer)
    return dataclasses.replace(found, curve=curve)


def evidence_of(ours: Sequence[float], theirs: Sequence[float], *, step_seconds: float, num_seeds: int = 0) -> Evidence:
    """Evidence of enough trials of either side, where a step of ours takes `step_seconds` and one of theirs one."""
    trials = [trial(n, Phase.SEARCH, ours, step_seconds) for n in range(MIN_TRIED)]
    trials += [trial(50 + n, Phase.BASELINE, theirs, 1.0) for n in range(MIN_TRIED)]
    for seed in range(1, num_seeds + 1):
        luck = 1 + seed / 1000
        own, other = [luck * value for value in ours], [luck * value for value in theirs]
        trials.append(trial(100 + seed, Phase.CONFIRMATION, own, step_seconds, confirms=0, seed=seed))
        trials.append(trial(200 + seed, Phase.CONFIRMATION, other, 1.0, confirms=50, seed=seed))
    objectives = [Objective(METRIC, Direction.MINIMIZE)]
    made = recommend(trials, objectives=objectives, seeds=range(1, num_seeds + 1))
    assert made is not None
    return made.evidence


def answered(evidence: Evidence) -> Answer:
    answer = answer_of(evidence)
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("num_seeds", "verb"), [(0, "Provisional: Shampoo leads AdamW"), (3, "Shampoo beats AdamW by 40.0%")]
)
def test_fewer_steps_that_take_longer_are_told_in_the_headline_as_no_gain(num_seeds: int, verb: str) -> None:
    evidence = evidence_of(FAST, SLOW, step_seconds=12.0, num_seeds=num_seeds)
    answer = answered(evidence)
    assert answer.headline == f"{verb} at equal steps, but is slower on the clock"
    assert answer.kind == "mixed"
    assert on_the_clock(evidence) is OnTheClock.SLOWER
    told = speed_words(evidence)
    assert told is not None
    assert told.startswith(
        "The config was as good as the baseline's best at step 20, after 4 min 00 s of training. The baseline was so "
        "at step 40, after 40 s of training: 2× as many steps"
    )
    assert told.endswith("A step of it takes 12× as long as the baseline's, so that fewer steps are no gain.")
    assert told == answer.speed
    assert told in evidence_lines(evidence)


def test_fewer_steps_that_take_no_longer_are_a_gain() -> None:
    evidence = evidence_of(FAST, SLOW, step_seconds=1.1)
    answer = answered(evidence)
    assert (answer.kind, answer.headline) == ("better", "Provisional: Shampoo leads AdamW at equal steps")
    assert on_the_clock(evidence) is OnTheClock.FASTER
    assert answer.speed is not None
    assert answer.speed.endswith(": 2× as many steps, 1.8× as much training time.")


def test_what_was_as_good_at_its_first_measurement_may_have_been_so_before() -> None:
    evidence = evidence_of([0.4, 0.35, 0.32, 0.3], SLOW, step_seconds=5.0)
    told = speed_words(evidence)
    assert told is not None
    assert "at step 10 or before, after 50 s of training." in told
    assert ": at least 4× as many steps, at least 0.8× as much training time." in told
    assert told.endswith("A step of it takes 5× as long as the baseline's: whether fewer steps save time is not known.")
    assert on_the_clock(evidence) is OnTheClock.UNKNOWN
    answer = answered(evidence)
    assert (answer.kind, answer.headline) == (
        "mixed",
        "Provisional: Shampoo leads AdamW at equal steps, with steps that take 5× as long",
    )


def test_without_times_nothing_is_said_of_them() -> None:
    evidence = evidence_of(FAST, SLOW, step_seconds=0.0)
    assert on_the_clock(evidence) is OnTheClock.UNKNOWN
    answer = answered(evidence)
    assert answer.kind == "better"
    assert answer.speed is not None
    assert answer.speed.endswith("No training time was measured, so whether that saves time is not known.")


def test_what_never_was_as_good_says_so() -> None:
    answer = answered(evidence_of(SLOW, FAST, step_seconds=3.0))
    assert answer.kind == "worse"
    assert (
        answer.speed
        == "The config never was as good as the baseline's best. A step of it takes 3× as long as the baseline's."
    )


def test_a_job_pays_after_as_many_trainings_as_save_what_it_took() -> None:
    evidence = evidence_of(FAST, SLOW, step_seconds=1.1, num_seeds=3)
    reached, found = evidence.reached_baseline, evidence.break_even
    assert reached is not None
    assert reached.seconds_ratio is not None
    assert found is not None
    spent = sum(sum(of_side) for of_side in ([44.0] * (MIN_TRIED + 3), [40.0] * (MIN_TRIED + 3)))
    saved = reached.baseline_seconds - reached.baseline_seconds / reached.seconds_ratio
    assert found.device_hours == pytest.approx(spent / 3600)
    assert found.num_runs - 1 < spent / saved <= found.num_runs
    [line] = [line for line in evidence_lines(evidence) if line.startswith("This search cost")]
    assert line.endswith(
        f"fewer seconds to the baseline's best it pays after {found.num_runs} trainings of this length."
    )
    assert answered(evidence).break_even == line


def test_a_job_whose_config_is_no_faster_never_pays_and_nothing_is_said() -> None:
    evidence = evidence_of(FAST, SLOW, step_seconds=12.0, num_seeds=3)
    assert evidence.break_even is None
    assert not any("This search cost" in line for line in evidence_lines(evidence))


def test_the_luck_of_one_seed_never_pays() -> None:
    evidence = evidence_of(FAST, SLOW, step_seconds=1.1)
    assert on_the_clock(evidence) is OnTheClock.FASTER
    assert evidence.break_even is None
