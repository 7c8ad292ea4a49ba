"""The lineage of a fork, the trials through which it came to its weights: pure functions of plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.evidence.caveat_kinds import Caveat, CaveatKind
from service.evidence.finished_trial import FinishedTrial
from service.evidence.types import Stage, Winner


def lineage_of(trial: FinishedTrial, trials: Sequence[FinishedTrial], *, last_step: int) -> list[Stage]:
    """The stages that trained a fork, from the first step to `last_step`; empty: the trial began from nothing.

    Args:
        trial: one of `trials`.
        trials: all of the job's.
    """
    by_number = {known.number: known for known in trials}
    stages = [_stage(trial, last_step)]
    while trial.forked_from is not None and trial.forked_at_step is not None:
        last_step, trial = trial.forked_at_step, by_number[trial.forked_from]
        stages.append(_stage(trial, last_step))
    return stages[::-1] if len(stages) > 1 else []


def caveat_of_lineage(winner: Winner) -> Caveat:
    """Says that a value was reached with a schedule of hyperparameters, and with which."""
    befores = [None, *winner.lineage[:-1]]
    stages = [
        f"steps {stage.first_step} to {stage.last_step} trial {stage.number}{_changes(before, stage)}"
        for before, stage in zip(befores, winner.lineage, strict=True)
    ]
    told = (
        f"What trial {winner.number} reached, it reached with hyperparameters that changed in training, and its config "
        f"is the last of them, with which alone nothing was trained from the start: {'; '.join(stages)}."
    )
    return Caveat(CaveatKind.CHANGED_IN_TRAINING, told, winner.number)


def _stage(trial: FinishedTrial, last_step: int) -> Stage:
    return Stage(
        number=trial.number,
        first_step=1 if trial.forked_at_step is None else trial.forked_at_step + 1,
        last_step=last_step,
        config=dict(trial.config.arguments),
        schedule=dict(trial.config.schedule),
        gradient_clip_norm=trial.config.gradient_clip_norm,
    )


def _changes(before: Stage | None, stage: Stage) -> str:
    """The changes of a stage, in brackets."""
    if before is None:
        return ""
    old, new = _values(before), _values(stage)
    changed = [f"{name} {old.get(name)!r} to {value!r}" for name, value in new.items() if old.get(name) != value]
    return f" ({', '.join(changed)})" if changed else ""


def _values(stage: Stage) -> dict[str, Any]:
    return {**stage.config, **stage.schedule, "gradient_clip_norm": stage.gradient_clip_norm}
