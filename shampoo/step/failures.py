"""Raising when the refresh of one factor has failed too often in a row, without making the device wait.

On devices where reading a number stops a queue of work, the count is copied in the background and checked in a later
step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


class RefreshFailed(RuntimeError):
    """The root or basis of a factor could not be computed several times in a row."""


@dataclass(frozen=True, slots=True, eq=False)
class _Count:
    worst: Tensor
    host: Tensor
    event: torch.cuda.Event | None
    """None where the count is read at once."""
    limit: int
    where: str


@dataclass(slots=True)
class RefreshFailures:
    """Counts of failures in a row that have been noted but not yet checked."""

    _noted: list[_Count] = field(default_factory=list)
    _shared: list[_Count] = field(default_factory=list)
    """Counts that all ranks have agreed on but that are not yet checked."""

    def note(self, num_in_a_row: Tensor, *, limit: int, where: str) -> None:
        """Notes the counters (K,) after a refresh; `where` names the factor in the message."""
        self._noted.append(_on_its_way(num_in_a_row.max(), limit, where))

    def raise_if_too_many(self) -> None:
        """Checks the counts that have arrived.

        Raises:
            RefreshFailed: one is above its limit.
        """
        arrived = [count for count in self._noted if _has_arrived(count)]
        self._noted = [count for count in self._noted if count not in arrived]
        for count in arrived:
            _raise_if_above(count)

    def excess(self, device: torch.device) -> Tensor:
        """The excess of the worst noted count over its limit, at least 0; int64 scalar on `device`."""
        above = [count.worst.to(device) - count.limit for count in self._noted]
        zero = torch.zeros((), dtype=torch.int64, device=device)
        return torch.stack([zero, *above]).max()

    def raise_together(self, excess: Tensor) -> None:
        """Raises on all ranks of a group at the same step, given the largest `excess` of them.

        If reading a number would make the host wait for the device, the number of the previous step is checked, which
        has arrived by now.

        Raises:
            RefreshFailed: it is above 0.
        """
        self._shared.append(_on_its_way(excess, 0, "a factor"))
        if len(self._shared) == 1 and self._shared[0].event is not None:
            return
        count = self._shared.pop(0)
        if count.event is not None:
            count.event.synchronize()
        noted, self._noted = self._noted, []
        if int(count.host) > 0:
            self._shared.clear()  # the next step's excess, from the same counts
            for own in noted:
                if own.event is not None:
                    own.event.synchronize()
                _raise_if_above(own)
            raise RefreshFailed(
                f"the refresh of {count.where} failed {int(count.host)} times more in a row than max_failed_refreshes; "
                "the weights have been stepped with the previous root"
            )


def _on_its_way(worst: Tensor, limit: int, where: str) -> _Count:
    if worst.device.type != "cuda":
        return _Count(worst, worst, None, limit, where)
    host = torch.empty((), dtype=worst.dtype, device="cpu", pin_memory=True)
    host.copy_(worst, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call, unused-ignore]
    event.record()
    return _Count(worst, host, event, limit, where)


def _raise_if_above(count: _Count) -> None:
    num_failed = int(count.host)
    if num_failed > count.limit:
        raise RefreshFailed(
            f"the refresh of {count.where} failed {num_failed} times in a row, more than "
            f"max_failed_refreshes={count.limit}; the weights have been stepped with the previous root"
        )


def _has_arrived(count: _Count) -> bool:
    return count.event is None or bool(count.event.query())  # type: ignore[no-untyped-call, unused-ignore]
