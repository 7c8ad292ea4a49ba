"""Whose turn it is on a shared cluster: priorities, max-min fairness, turns, and that some job always goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from service.scheduler.cluster.fair_share import TURN_SECONDS, Claim, goes_before, turn_in_words

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def claim(
    job_id: str, num_groups: int, *, waits: float | None = None, priority: int = 0, group_share: float = 0.25
) -> Claim:
    """A job's claim; `waits`: for how many seconds it has wanted another rank group."""
    since = None if waits is None else NOW - timedelta(seconds=waits)
    return Claim(job_id, "default", priority, num_groups, group_share, since)


def first(own: Claim, *others: Claim, has_idle: bool = False) -> str | None:
    """Who goes before `own`."""
    before = goes_before(own, others, has_idle=has_idle, now=NOW)
    return None if before is None else before.job_id


def test_a_job_alone_takes_and_keeps_what_there_is() -> None:
    assert first(claim("a", 3, waits=0)) is None
    assert first(claim("a", 3, waits=0), has_idle=True) is None


def test_jobs_that_want_nothing_are_in_nobodys_way() -> None:
    others = claim("b", 0), claim("c", 1, priority=1000)
    assert first(claim("a", 3, waits=0), *others) is None
    assert first(claim("a", 3, waits=0), *others, has_idle=True) is None


def test_a_free_rank_group_goes_to_the_higher_priority_whoever_has_more_or_has_waited() -> None:
    low, high = claim("a", 0, waits=1000), claim("b", 3, waits=0, priority=1)
    assert first(low, high) == "b"
    assert first(high, low) is None


def test_a_job_that_waits_for_what_another_has_no_use_for_is_not_in_its_way() -> None:
    on_cpus = dataclasses.replace(claim("a", 3, waits=0), resources=frozenset({"CPU"}))
    on_gpus = claim("b", 0, waits=99, group_share=1.0, priority=1)
    for short_of, before in (({"GPU"}, None), ({"CPU", "GPU"}, None), ({"CPU"}, "b"), (set(), "b")):
        waiting = dataclasses.replace(on_gpus, short_of=frozenset(short_of))
        assert first(on_cpus, waiting) == before
        assert first(on_cpus, waiting, has_idle=True) == before


def test_of_a_job_of_another_project_no_more_is_told_than_that_it_goes_first() -> None:
    own, first = claim("a", 0, waits=0), claim("b", 0, waits=0, priority=1)
    assert turn_in_words(own, first) == "job b (priority 1) goes first"
    elsewhere = dataclasses.replace(first, project="theirs")
    assert turn_in_words(own, elsewhere) == "a job of another project (priority 1) goes first"


def test_among_equals_a_free_rank_group_goes_to_the_smaller_share_and_then_to_the_longest_wait() -> None:
    rich, poor, patient = claim("a", 2, waits=99), claim("b", 1, waits=1), claim("c", 1, waits=2)
    assert first(rich, poor, patient) == "c"
    assert first(poor, rich, patient) == "c"
    assert first(patient, rich, poor) is None
    assert first(claim("d", 1, waits=2), patient) == "c"  # of equals in all, one
    assert first(patient, claim("d", 1, waits=2)) is None


def test_shares_are_compared_not_numbers_of_rank_groups() -> None:
    many_small, one_large = claim("a", 3, waits=0, group_share=0.1), claim("b", 1, waits=9, group_share=0.5)
    assert first(one_large, many_small) == "a"
    assert first(many_small, one_large) is None


def test_an_idle_rank_group_is_passed_on_at_once_where_that_makes_shares_more_even() -> None:
    late = claim("b", 0, waits=0)
    assert first(claim("a", 4, waits=0), late, has_idle=True) == "b"
    assert first(claim("a", 2, waits=0), late, has_idle=True) == "b"
    assert first(claim("a", 3, waits=0), claim("b", 1, waits=0), has_idle=True) == "b"


def test_an_idle_rank_group_is_kept_warm_where_passing_it_on_would_only_swap_the_shares() -> None:
    assert first(claim("a", 2, waits=0), claim("b", 1, waits=1e6), has_idle=True) is None
    assert first(claim("a", 2, waits=0), claim("b", 2, waits=1e6), has_idle=True) is None
    assert first(claim("a", 1, waits=0), claim("b", 0, waits=0), has_idle=True) is None


def test_a_job_without_any_rank_group_gets_its_turn() -> None:
    own = claim("a", 1, waits=0)
    assert first(own, claim("b", 0, waits=TURN_SECONDS - 1), has_idle=True) is None
    assert first(own, claim("b", 0, waits=TURN_SECONDS), has_idle=True) == "b"
    # A rank group as large as the cluster, beside small ones of another job: it, too.
    small, whole = claim("a", 4, waits=0), claim("b", 0, waits=TURN_SECONDS, group_share=1.0)
    assert first(small, whole, has_idle=True) == "b"


def test_an_idle_rank_group_goes_to_a_higher_priority_at_once_and_never_to_a_lower_one() -> None:
    own = claim("a", 1, waits=0)
    assert first(own, claim("b", 3, waits=0, priority=1), has_idle=True) == "b"
    assert first(own, claim("b", 0, waits=1e6, priority=-1), has_idle=True) is None


def test_nothing_more_is_passed_on_to_a_job_that_has_yet_to_take_what_was() -> None:
    own, small = claim("a", 4, waits=0, group_share=0.1), claim("b", 0, waits=2 * TURN_SECONDS, group_share=0.1)
    large = dataclasses.replace(small, group_share=0.3)
    for priority in (0, 1):
        assert first(own, dataclasses.replace(small, priority=priority), has_idle=True) == "b"
        assert first(own, dataclasses.replace(small, priority=priority, coming=0.1), has_idle=True) is None
        # A larger rank group takes several of the small ones.
        assert first(own, dataclasses.replace(large, priority=priority, coming=0.2), has_idle=True) == "b"
        assert first(own, dataclasses.replace(large, priority=priority, coming=0.1 + 0.1 + 0.1), has_idle=True) is None


claims = st.lists(
    st.builds(
        Claim,
        job_id=st.uuids().map(str),
        priority=st.integers(-1, 1),
        num_groups=st.integers(0, 4),
        group_share=st.sampled_from([0.1, 0.2, 0.25, 1 / 3, 0.5, 1.0]),
        wants_since=st.integers(0, 100).map(lambda seconds: NOW - timedelta(seconds=seconds)),
        coming=st.sampled_from([0.0, 0.25, 1.0]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda one: one.job_id,
)


@given(claims)
def test_of_jobs_that_all_want_a_rank_group_exactly_one_may_take_a_free_one(waiting: list[Claim]) -> None:
    may = [own for own in waiting if goes_before(own, _others(own, waiting), has_idle=False, now=NOW) is None]
    assert len(may) == 1
    assert may[0].priority == max(one.priority for one in waiting)


@given(claims)
def test_whoever_passes_an_idle_rank_group_on_does_not_take_it_back(waiting: list[Claim]) -> None:
    own = waiting[0]
    if not own.num_groups:
        return
    before = goes_before(own, waiting[1:], has_idle=True, now=NOW)
    if before is not None:
        left = dataclasses.replace(own, num_groups=own.num_groups - 1, wants_since=NOW + timedelta(seconds=1))
        others = [
            dataclasses.replace(one, coming=own.group_share) if one.job_id == before.job_id else one
            for one in waiting[1:]
        ]
        assert goes_before(left, others, has_idle=False, now=NOW) is not None


@given(st.integers(1, 12), st.lists(st.integers(1, 12), min_size=1, max_size=5))
def test_as_trials_end_equal_jobs_come_to_max_min_fair_shares(num_groups: int, demands: list[int]) -> None:
    """The first job has all rank groups; each round, every job's trials end one after the other."""
    held = [num_groups, *[0] * len(demands)]
    wanted = [num_groups, *demands]

    def shown() -> list[Claim]:
        return [
            claim(f"job-{job}", held[job], waits=0 if held[job] < wanted[job] else None, group_share=1 / num_groups)
            for job in range(len(held))
        ]

    free = 0
    for _ in range(4 * num_groups):
        for job in range(len(held)):
            for _ in range(held[job]):
                # Its trial ends: it wants a rank group again for the next one, and has an idle one.
                own = dataclasses.replace(shown()[job], wants_since=NOW)
                if goes_before(own, _others(own, shown()), has_idle=True, now=NOW) is not None:
                    held[job] -= 1
                    free += 1
            while free and any(one.wants_since for one in shown()):
                for taker, own in enumerate(shown()):
                    if own.wants_since and not goes_before(own, _others(own, shown()), has_idle=False, now=NOW):
                        held[taker] += 1
                        free -= 1
                        break
    assert sum(held) == min(num_groups, sum(wanted))
    for job, other in ((j, o) for j in range(len(held)) for o in range(len(held))):
        # Nobody who wants more has two rank groups less than another.
        assert held[job] >= wanted[job] or held[other] <= held[job] + 1, (held, wanted)


def _others(own: Claim, everyone: Sequence[Claim]) -> list[Claim]:
    return [one for one in everyone if one.job_id != own.job_id]
