"""Objectives that say how soon a target is reached, and trials that missed it: they have a value that ranks them behind
the others, the nearer the better (`trainers.curve`), and that is no time. Pure functions of plain values."""

from __future__ import annotations

from collections.abc import Sequence

from service.domain import TrialState
from service.evidence.comparison.equal_spending import Pair
from service.evidence.finished_trial import FinishedTrial
from service.evidence.in_words.wording import counted
from service.evidence.types import Winner

TIMES_TO_TARGET = ("steps_to_target", "seconds_to_target")


def is_open(pairs: Sequence[Pair], metric: str) -> bool:
    """True if both trials of a pair missed the target: which of them would have reached it sooner is not known."""
    return metric in TIMES_TO_TARGET and any(all(_has_missed(trial) for trial in pair) for pair in pairs)


def target_caveats(trials: Sequence[FinishedTrial], metric: str, winners: Sequence[Winner]) -> list[str]:
    """Caveats on winners that missed the target, with a new seed or, where there was none, when they were found."""
    caveats = []
    for winner in winners if metric in TIMES_TO_TARGET else ():
        repeated = [trial for trial in trials if trial.confirms == winner.number]
        own = repeated or [trial for trial in trials if trial.number == winner.number]
        ended = [trial for trial in own if trial.state is TrialState.COMPLETED]
        num_missed = sum(map(_has_missed, ended))
        if num_missed:
            caveats.append(
                f"The config of trial {winner.number} missed the target in {num_missed} of "
                f"{counted(len(ended), 'training')}: there {metric} says how far off it stayed, so that no mean, share "
                "or interval of it is one of times."
            )
    return caveats


def _has_missed(trial: FinishedTrial) -> bool:
    return bool(trial.curve) and trial.curve[-1][2].get("target_reached") == 0.0
