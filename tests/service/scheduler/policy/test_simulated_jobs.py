"""Whole jobs on synthetic curves: interruptions, several workers, divergence, confirmation."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter

import pytest

from service.domain import Direction, FailureReason, Phase, Side, TrialState
from service.scheduler.policy.protocol import TrialHistory
from tests.support.service.searching.simulation import BASELINE, FURTHER_BASELINE, SEARCH_SPACE, Job, loss

SEARCH = Phase.SEARCH


def _counts(job: Job) -> Counter[Side]:
    return Counter(row.side for row in job.rows.values())


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "crash_every"), [("tpe", 1), ("tpe", 7), ("tpe", 50), ("random", 7)])
def test_an_interrupted_job_goes_on_exactly_as_it_would_have(sampler: str, crash_every: int) -> None:
    # TPE has a model after five trials.
    quiet, crashing = (Job(num_search=7, num_baseline=3, num_further=2, sampler=sampler) for _ in range(2))  # type: ignore[arg-type]
    quiet.run()
    crashing.run(crash_every=crash_every)
    assert crashing.rows == quiet.rows
    assert crashing.decisions == quiet.decisions
    assert _counts(quiet) == {SEARCH: 7, BASELINE: 3, FURTHER_BASELINE: 2}
    assert sorted(quiet.rows) == list(range(12))
    assert quiet.num_steps_trained > 50
    assert {row.state for row in quiet.rows.values()} >= {TrialState.COMPLETED, TrialState.PRUNED}


def test_several_workers_interrupted_end_with_the_same_budget() -> None:
    job = Job()
    job.run(num_workers=4, crash_every=11)
    assert _counts(job) == {SEARCH: 20, BASELINE: 5}
    assert all(row.state.is_final for row in job.rows.values())


@pytest.mark.slow
def test_workers_that_finish_in_any_order_keep_the_allotments() -> None:
    for seed in range(5):
        job = Job(num_search=9, num_baseline=3, seed=seed)
        job.run(num_workers=3, rng=random.Random(seed), crash_every=13)
        assert _counts(job) == {SEARCH: 9, BASELINE: 3}


def test_a_space_in_which_everything_diverges_ends_all_the_same() -> None:
    job = Job(curve=lambda _parameters, _step: math.nan)
    job.run(num_workers=3)
    assert {row.reason for row in job.rows.values()} == {FailureReason.DIVERGED}
    assert _counts(job) == {SEARCH: 20, BASELINE: 5}


@pytest.mark.slow
def test_tpe_finds_better_than_random_at_equal_budget() -> None:
    def median_best(sampler: str) -> float:
        found = []
        for seed in range(5):
            job = Job(num_search=40, num_baseline=0, sampler=sampler, seed=seed)  # type: ignore[arg-type]
            job.run(num_workers=2)
            found.append(min(row.values[0] for row in job.rows.values() if row.state is TrialState.COMPLETED))
        return statistics.median(found)

    floor = 3.0 / 28
    assert median_best("tpe") - floor < 0.7 * (median_best("random") - floor)


def test_what_is_maximised_is_searched_as_its_negative_is_minimised() -> None:
    jobs = [Job(num_search=20, num_baseline=0, direction=direction, seed=1) for direction in Direction]
    for job in jobs:
        job.run(num_workers=2)
    states, mirrored = ([(row.parameters, row.state) for row in job.rows.values()] for job in jobs)
    assert states == mirrored


@pytest.mark.slow
def test_a_region_that_diverges_is_sampled_less() -> None:
    later: list[TrialHistory] = []
    for seed in range(3):
        job = Job(num_search=40, num_baseline=0, sampler="tpe", seed=seed)
        job.run()
        later.extend(row for row in job.rows.values() if row.number >= 10)
    rng = random.Random(0)
    at_random = [math.isnan(loss(SEARCH_SPACE.sample(rng), 1)) for _ in range(2000)]
    assert statistics.fmean(row.reason is FailureReason.DIVERGED for row in later) < 0.5 * statistics.fmean(at_random)


@pytest.mark.parametrize("sampler", ["auto", "tpe"])
@pytest.mark.parametrize(("num_workers", "crash_every"), [(1, None), (1, 17), (3, None), (3, 29)])
def test_the_best_are_repeated_at_full_length_when_all_else_has_ended(
    sampler: str, num_workers: int, crash_every: int | None
) -> None:
    job = Job(num_search=10, num_baseline=4, sampler=sampler, confirm=(3, 4))  # type: ignore[arg-type]
    job.run(num_workers=num_workers, crash_every=crash_every)
    assert all(row.state.is_final for row in job.rows.values())

    def best(side: Side, count: int) -> list[int]:
        found = [row for row in job.rows.values() if row.side == side and row.repeats is None]
        completed = [row for row in found if row.state is TrialState.COMPLETED]
        ranked = sorted(completed, key=lambda row: (row.values[0], row.number))
        return [row.number for row in ranked[:count]]

    if sampler == "auto":  # what it paused goes on until both sides have as many configs to confirm
        assert [len(best(side, 3)) for side in (SEARCH, BASELINE)] == [3, 3]
    # Curves here know no seed: what was best stays best, and the differences of all seeds agree.
    sources, finalists = [*best(SEARCH, 3), *best(BASELINE, 3)], [*best(SEARCH, 1), *best(BASELINE, 1)]
    repeated = [row for row in job.rows.values() if row.repeats is not None]
    assert [(row.repeats.number, row.repeats.seed) for row in repeated if row.repeats] == [
        *((source, 1) for source in sources),
        *((source, seed) for seed in (2, 3, 4) for source in finalists),
    ]
    assert [row.number for row in repeated] == list(range(14, 14 + len(repeated)))
    for row in repeated:
        assert row.repeats is not None
        source_row = job.rows[row.repeats.number]
        assert (row.parameters, row.repeats.side) == (source_row.parameters, source_row.side)
        assert (row.state, [step for step, _ in row.curve]) == (TrialState.COMPLETED, list(range(1, 28)))


def test_a_job_in_which_nothing_completed_confirms_nothing() -> None:
    job = Job(curve=lambda _parameters, _step: math.nan, confirm=(3, 2))
    job.run(num_workers=3)
    assert _counts(job) == {SEARCH: 20, BASELINE: 5}
