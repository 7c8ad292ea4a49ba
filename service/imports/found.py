"""The trials that other programs kept, whatever they were read from, and what of them fits a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from search_spaces import SearchSpace, SpaceError
from service.domain import Direction, Objective
from service.errors import InvalidInput
from service.specification.imported import MAX_IMPORTED, ImportedTrial

PREFIXES = ("", "parameter.", "params_", "config.", "config/")
"""Texts before the name of a parameter in a column: none, that of our exports, of Optuna's data frames, of W&B's
tables."""
MAX_SOURCE_LENGTH = 200
"""Characters of the name of a file or study, by judgement."""

Value: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class FoundTrial:
    """A trial of another study that was completed and has a value."""

    source: str
    number: int
    values: Mapping[str, Value]
    """Values by the names that they had there."""
    value: float


class LeftOut(StrEnum):
    """The reason why a trial of another study is no result to begin with."""

    OTHER_OPTIMIZER = "other_optimizer"
    """It trained with another one than the job's search does."""
    CONFIRMATION = "confirmation"
    """It repeats a config of its study with another seed."""
    FORKED = "forked"
    """It went on from another one's weights, so that its value is not of its parameters alone."""
    NOT_COMPLETED = "not_completed"
    """It failed, was stopped or pruned, or still runs."""
    NO_VALUE = "no_value"
    """It has no finite one."""


@dataclass(frozen=True, slots=True)
class Found:
    """The content of a study, or of a table."""

    name: str
    """The name, for people, of what was read."""
    direction: Direction | None = None
    """The direction in which its values are better; None: it does not say."""
    trials: list[FoundTrial] = field(default_factory=list)
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    """The numbers of others, each counted once."""

    def leave_out(self, why: LeftOut) -> None:
        """Counts one more."""
        self.left_out[why] += 1


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome for the trials that were found."""

    pinned: Sequence[dict[str, Any]]
    """The best, to be trained first; what they do not say takes its default."""
    trials: Sequence[ImportedTrial]
    """The trials that say all of the space's parameters, the best first."""
    num_unfit: int
    """Found trials that do not fit: they say nothing of the space, or values that it does not have."""
    unsaid: Sequence[str]
    """The space's parameters without a condition that none of those which fit says."""


def check_direction(found: Found, objective: Objective, metrics: Mapping[str, str]) -> None:
    """Checks that values found are better in the direction of the job's objective, as far as is said.

    Args:
        metrics: the metrics of the job's workload, with their directions.

    Raises:
        InvalidInput: it is not; names metrics of the workload that are better in the other direction.
    """
    if found.direction in (None, objective.direction):
        return
    others = sorted(name for name, direction in metrics.items() if direction == found.direction)
    advice = f", as {', '.join(others)}," if others else ""
    raise InvalidInput(
        "objectives",
        f"{found.name} {found.direction}s, and the job {objective.direction}s {objective.metric}: what is best there "
        f"is worst here. A job whose objective is {found.direction}d{advice} can begin with it",
    )


def fitted(
    found: Sequence[FoundTrial],
    space: SearchSpace,
    direction: Direction,
    *,
    num_pinned: int,
    renamed: Mapping[str, str],
) -> Imported:
    """The trials as a job takes them: the best are pinned, and those that say all are told to its sampler.

    Args:
        renamed: name there by parameter of the space.
    """
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    pinned: list[dict[str, Any]] = []
    trials: list[ImportedTrial] = []
    names, num_unfit = names_there(space, renamed), 0
    said: set[str] = set()
    for trial in sorted(found, key=lambda trial: sign * trial.value):
        given = _of_space(trial, names)
        whole = _whole(given, space)
        if whole is None:
            num_unfit += 1
            continue
        said.update(given)
        if len(pinned) < num_pinned and given not in pinned:
            pinned.append(given)
        if whole == given and len(trials) < MAX_IMPORTED:
            trials.append(ImportedTrial(source=trial.source, number=trial.number, parameters=whole, value=trial.value))
    unsaid = [each.name for each in space.parameters if each.name not in said and not each.when]
    return Imported(pinned, trials, num_unfit, unsaid)


def names_there(space: SearchSpace, renamed: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that each parameter of the space may have in a table, the likeliest first.

    Args:
        renamed: as in `fitted`.
    """
    return {
        parameter.name: [f"{prefix}{renamed.get(parameter.name, parameter.name)}" for prefix in PREFIXES]
        for parameter in space.parameters
    }


def _of_space(trial: FoundTrial, names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for parameter, own in names.items():
        found = [trial.values[name] for name in own if trial.values.get(name) is not None]
        if found:
            given[parameter] = found[0]
    return given


def _whole(given: dict[str, Any], space: SearchSpace) -> dict[str, Any] | None:
    """The values with the defaults of those that are missing; None: the space has no such values."""
    if not given:
        return None
    try:
        return dict(space.defaults(given))
    except SpaceError:
        return None
