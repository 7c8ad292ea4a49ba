"""The room on the disks that a service writes to, in a sentence."""

from __future__ import annotations

from service.monitoring.readiness import check_files
from service.settings import Settings


def why_no_room(settings: Settings, *, data_are_here: bool) -> str | None:
    """What `/readyz` says of the disks, each named; None: they have room.

    Args:
        data_are_here: whether trials train on this machine.
    """
    checks = check_files(settings, data_are_here=data_are_here)
    return "; ".join(f"{check.name}: {check.why_not}" for check in checks if check.why_not) or None
