"""Objectives that say how soon a target is reached, and trials that missed it: they have a value that ranks them behind
the others, the nearer the better (`trainers.curve`), and that is no time. Pure functions of plain values."""

from __future__ import annotations

from collections.abc import Sequence

from service.evidence.finished_trial import FinishedTrial, Pair

TIMES_TO_TARGET = ("steps_to_target", "seconds_to_target")


def is_open(pairs: Sequence[Pair], metric: str) -> bool:
    """True if both trials of a pair missed the target: which of them would have reached it sooner is not known."""
    return metric in TIMES_TO_TARGET and any(all(has_missed(trial) for trial in pair) for pair in pairs)


def has_no_share(pairs: Sequence[Pair], metric: str) -> bool:
    """True if a compared trial missed the target: a share of its value, which is no time, says nothing."""
    return metric in TIMES_TO_TARGET and any(has_missed(trial) for pair in pairs for trial in pair)


def has_missed(trial: FinishedTrial) -> bool:
    """True if the trial ended without having reached its target."""
    return bool(trial.curve) and trial.curve[-1][2].get("target_reached") == 0.0
