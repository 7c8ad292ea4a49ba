"""How far a recommendation has been put to the test."""

from __future__ import annotations

from enum import StrEnum

from service.evidence.types import Evidence


class Status(StrEnum):
    """Whether new seeds have borne a recommended config out."""

    PROVISIONAL = "provisional"
    """Nobody has tried."""
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


def status_of(evidence: Evidence) -> Status:
    """The status of a recommendation with this evidence."""
    return Status.PROVISIONAL if evidence.confirmation is None else Status.CONFIRMED
