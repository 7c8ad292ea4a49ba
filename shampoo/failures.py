"""Raising when the refresh of one factor has failed too often in a row, without making the device wait.

Where reading a number stops a queue of work, the count is copied in the background and looked at in a later step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


class RefreshFailed(RuntimeError):
    """The root or basis of a factor could not be computed several times in a row."""


@dataclass(frozen=True, slots=True)
class _Count:
    host: Tensor
    event: torch.cuda.Event | None
    """None where the count is read at once."""
    limit: int
    where: str


@dataclass(slots=True)
class RefreshFailures:
    """Counts of failures in a row that have been noted and not yet looked at."""

    _noted: list[_Count] = field(default_factory=list)

    def note(self, num_in_a_row: Tensor, *, limit: int, where: str) -> None:
        """Takes note of counters (K,) after a refresh; `where` names the factor in the message."""
        worst = num_in_a_row.max()
        if worst.device.type != "cuda":
            self._noted.append(_Count(worst, None, limit, where))
            return
        host = torch.empty((), dtype=worst.dtype, pin_memory=True)
        host.copy_(worst, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # untyped in torch
        event.record()
        self._noted.append(_Count(host, event, limit, where))

    def raise_if_too_many(self) -> None:
        """Looks at the counts that have arrived.

        Raises:
            RefreshFailed: one is above its limit.
        """
        arrived = [count for count in self._noted if _has_arrived(count)]
        self._noted = [count for count in self._noted if count not in arrived]
        for count in arrived:
            num_failed = int(count.host)
            if num_failed > count.limit:
                raise RefreshFailed(
                    f"the refresh of {count.where} failed {num_failed} times in a row, more than "
                    f"max_failed_refreshes={count.limit}; the weights have been stepped with the previous root"
                )


def _has_arrived(count: _Count) -> bool:
    return count.event is None or bool(count.event.query())  # type: ignore[no-untyped-call]  # untyped in torch
