"""The reading of an exception: of the trial that it ended, and of the ranks that trained it."""

from __future__ import annotations

import errno
import re

import pytest

from service.domain import FailureReason
from service.scheduler.ranks.rank import describe_failure
from trainers.checkpoints import CheckpointNotStored, CheckpointNotWritten, StoreFailed
from trainers.config import Diverged, InvalidConfig


def test_an_exception_without_a_message_is_told_with_its_line() -> None:
    with pytest.raises(AssertionError) as caught:
        raise AssertionError  # as a bare `assert` does
    failure = describe_failure(caught.value)
    assert re.fullmatch(r"AssertionError \(test_rank_failure\.py, line \d+\)", failure.detail)
    assert describe_failure(KeyboardInterrupt()).detail == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("error", "reason", "group_is_usable"),
    [
        (Diverged(7, "training loss nan"), FailureReason.DIVERGED, True),
        (InvalidConfig("batch_size", "too large"), FailureReason.ERROR, True),
        (MemoryError("no room"), FailureReason.OUT_OF_MEMORY, False),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), FailureReason.OUT_OF_MEMORY, False),
        (ZeroDivisionError("in a loss"), FailureReason.ERROR, False),
        (StoreFailed("s3://b/x cannot be listed"), FailureReason.STORE_FAILED, False),
        (CheckpointNotStored("checkpoint of step 20"), FailureReason.STORE_FAILED, False),
        (CheckpointNotWritten("checkpoint of step 20: no space"), FailureReason.ERROR, False),
        (OSError(errno.ENOSPC, "No space left on device"), FailureReason.STORE_FAILED, False),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), FailureReason.STORE_FAILED, False),
        (OSError(errno.EIO, "Input/output error"), FailureReason.ERROR, False),
        (SystemExit(3), FailureReason.ERROR, False),
    ],
)
def test_an_exception_tells_why_the_trial_failed(
    error: BaseException, reason: FailureReason, group_is_usable: bool
) -> None:
    failure = describe_failure(error)
    assert (failure.reason, failure.group_is_usable) == (reason, group_is_usable)
