"""Groups that trials are drawn in: by side, in the confirmation by the side they repeat, and apart those that ended
early. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from service.api.figures.charts import (
    DIVERGED_COLOUR,
    FURTHER_BASELINES,
    PHASE_COLOURS,
    PHASE_DASHES,
    PRUNED_COLOUR,
)
from service.domain import FailureReason, Phase, Side, TrialState, phase_of, side_of
from service.store.repositories.of_trials.chart_rows import ChartTrial

STOPPED = "stopped"
DIVERGED = "diverged"
_EARLY_ENDS = (TrialState.PRUNED, TrialState.CANCELLED, TrialState.FAILED)


@dataclass(frozen=True, slots=True)
class Group:
    """Trials that share a colour and an entry in the legend."""

    key: str
    label: str
    colour: str
    dash: str

    def columns(self) -> dict[str, Any]:
        return asdict(self)


def sides_of(trials: Sequence[ChartTrial], optimizers: Mapping[int, str], baselines: Sequence[str]) -> dict[int, Side]:
    """The side of each trial by number; a trial of the confirmation has the side that found its config.

    Args:
        optimizers: of the baselines' trials; where there is one baseline, none are needed.
        baselines: the baselines' optimizers.
    """
    only = baselines[0] if len(baselines) == 1 else ""
    found = {
        trial.number: side_of(trial.phase, optimizers.get(trial.number, only))
        for trial in trials
        if trial.phase is not Phase.CONFIRMATION
    }
    repeats = (trial for trial in trials if trial.phase is Phase.CONFIRMATION and trial.confirms is not None)
    return found | {trial.number: found.get(trial.confirms or 0, Phase.SEARCH.value) for trial in repeats}


def group_of(trial: ChartTrial, side: Side) -> str:
    """The key of a trial's group."""
    if trial.reason is FailureReason.DIVERGED:
        return DIVERGED
    if trial.state in _EARLY_ENDS:
        return STOPPED
    return f"{Phase.CONFIRMATION}:{side}" if trial.phase is Phase.CONFIRMATION else side


def groups_of(labels: Mapping[str, str]) -> list[Group]:
    """Every group that trials of a job can have.

    Args:
        labels: name of each side, the search's first and the baselines' in their order.
    """
    sides = {side: label for side, label in labels.items() if side != Phase.CONFIRMATION}
    colours = {side: colour_of(side, list(sides)) for side in sides}
    confirmed = PHASE_DASHES[Phase.CONFIRMATION]
    return [
        *(Group(side, label, colours[side], PHASE_DASHES[phase_of(side)]) for side, label in sides.items()),
        *(
            Group(f"{Phase.CONFIRMATION}:{side}", f"{label}, confirmation", colours[side], confirmed)
            for side, label in sides.items()
        ),
        Group(STOPPED, "ended early", PRUNED_COLOUR, "solid"),
        Group(DIVERGED, "diverged", DIVERGED_COLOUR, "solid"),
    ]


def colour_of(side: Side, sides: Sequence[Side]) -> str:
    """The colour of a side among all of them, the search's first."""
    place = sides.index(side)
    return PHASE_COLOURS[phase_of(side)] if place < 2 else FURTHER_BASELINES[(place - 2) % len(FURTHER_BASELINES)]
