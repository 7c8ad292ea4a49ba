"""Trials that a user proposes, checked against the plan of their job."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from search_spaces import Scalar, SearchSpace, SpaceError
from search_spaces.nearest import did_you_mean
from service.domain import Phase, Side, side_of
from service.errors import InvalidInput
from service.faults import Faults
from service.specification.planning.plan import JobPlan
from trainers.config import TrialConfig

BEYOND_BOUNDS_HINT = ' (the range of the search space; with "beyond_bounds": true, --beyond-bounds, it is tried anyway)'


def proposed_side(plan: JobPlan, phase: Phase, optimizer: str | None) -> Side:
    """The side of a trial that is proposed for a phase.

    Args:
        optimizer: the baseline's optimizer; None: that of the only one, or of the search.

    Raises:
        InvalidInput: the job has no such side; names the field.
    """
    sides = list(plan.spaces) if phase is Phase.SEARCH else plan.baselines
    if phase not in plan.allotments or phase is Phase.CONFIRMATION:
        known = ", ".join(phase for phase in plan.allotments if phase is not Phase.CONFIRMATION)
        raise InvalidInput("phase", f"trials can be proposed for {known}, got {phase.value!r}")
    if optimizer is None and (phase is Phase.SEARCH or len(sides) == 1):
        return sides[0]
    known = ", ".join(plan.spaces[side].optimizer for side in (sides[:1] if phase is Phase.SEARCH else sides))
    if optimizer is None:
        raise InvalidInput("optimizer", f"must say which baseline: {known}")
    side = side_of(phase, optimizer)
    if side not in sides or plan.spaces[side].optimizer != optimizer:
        raise InvalidInput("optimizer", f"the {phase} tunes {known}, got {optimizer!r}")
    return side


def check_proposal(
    plan: JobPlan, side: Side, given: Mapping[str, JsonValue], *, beyond_bounds: bool = False
) -> tuple[dict[str, Scalar], TrialConfig]:
    """The values of a proposed trial, those left out at their defaults, and its config.

    Args:
        beyond_bounds: whether numbers may lie beyond the space's ranges, as far as the optimizer accepts them.

    Raises:
        InvalidInput: the side's space has no such values; names the field.
    """
    space = plan.spaces[side]
    names = {parameter.name for parameter in space.parameters}
    faults = Faults()
    for name in sorted(given.keys() - names):
        known = ", ".join(sorted(names)) or "none"
        hint = did_you_mean(name, names)
        faults.note(
            InvalidInput(f"parameters.{name}", f"is not a parameter of the {side} space (known: {known}){hint}")
        )
    faults.tell()
    try:
        values = space.defaults(given, beyond_bounds=beyond_bounds)  # type: ignore[arg-type]  # it checks the values
    except SpaceError as error:
        hint = "" if beyond_bounds or not _is_possible(space, given) else BEYOND_BOUNDS_HINT
        raise InvalidInput(f"parameters.{error.field}", error.message + hint) from error
    try:
        return values, plan.trial_config(side, values)
    except ValueError as error:
        raise InvalidInput("parameters", f"give an impossible trial: {error}") from error


def _is_possible(space: SearchSpace, given: Mapping[str, JsonValue]) -> bool:
    try:
        space.defaults(given, beyond_bounds=True)  # type: ignore[arg-type]  # it checks the values
    except SpaceError:
        return False
    return True
