"""Ranks that end their own processes, and what is told of that."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from ray.util.placement_group import PlacementGroup

from service.domain import FailureReason
from service.scheduler.ranks.rank import RankFailure
from service.scheduler.ranks.rank_group import RankGroup
from tests.service.scheduler.ranks.conftest import TWO
from tests.service.scheduler.ranks.test_rank_group import order, train

pytestmark = [
    # Ray leaves its log files and sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize(
    ("trouble", "status", "said"),
    [
        ("leave", 7, "it left with exit status 7, as by `os._exit`"),
        ("crash", -signal.SIGSEGV, "it was killed by signal 11 (SIGSEGV)"),
    ],
)
def test_a_rank_that_ends_its_own_process_is_told_by_how_it_ended(
    bundles: PlacementGroup, tmp_path: Path, trouble: str, status: int, said: str
) -> None:
    group = RankGroup(TWO, bundles)
    try:
        [*_, failure] = train(group, order(trouble=trouble), tmp_path)
    finally:
        group.close()
    assert isinstance(failure, RankFailure)
    assert (failure.reason, failure.exit_status) == (FailureReason.LOST, status)
    assert failure.detail.endswith(f": {said}")
